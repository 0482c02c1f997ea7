/**
 * The client's network to the servers of a Lustre, as fast as its interfaces say: those that carry the NIDs of this node (`lctl list_nids`), of
 * the networks that the mount uses. /sys names a speed; what a link of that speed gives is less, by headers.
 *
 * @example
 * (await networkOf(mount, { root: "/", timeoutMs: 10_000 })).bytesPerSecond; // 12.5e9
 */
import { networkInterfaces } from "node:os";
import { runTool } from "../base/run-tool.ts";
import { netOf, nidsOf } from "../lustre/nids.ts";
import type { Mount } from "../storage/mounts.ts";

export interface Network {
  /** Undefined: not known, see `text`. */
  bytesPerSecond: number | undefined;
  text: string;
}

type Addresses = Readonly<Record<string, { address: string }[] | undefined>>;

export async function networkOf(
  mount: Mount,
  { root, timeoutMs, addresses = networkInterfaces() }: { root: string; timeoutMs: number; addresses?: Addresses },
): Promise<Network> {
  if (mount.kind !== "lustre") return unknown("only Lustre tells which interfaces it uses");
  const used = new Set(nidsOf(mount.source).map(netOf));
  const { stdout } = await runTool("lctl", ["list_nids"], { timeoutMs });
  const own = stdout.split(/\s+/).filter((nid) => nid.includes("@") && used.has(netOf(nid)));
  if (own.length === 0) return unknown("`lctl list_nids` tells no NID of the networks of the mount");
  const names = own.map((nid) => interfaceOf(nid.slice(0, nid.lastIndexOf("@")), addresses));
  const unnamed = own.filter((_, i) => names[i] === undefined);
  if (unnamed.length > 0) return unknown(`${unnamed.join(", ")} is no address of an interface of this node`);
  const distinct = [...new Set(names as string[])];
  // By a process that may be left behind: a driver in trouble keeps a reader waiting.
  const folder = `${root === "/" ? "" : root}/sys/class/net`;
  const told = await Promise.all(distinct.map((name) => runTool("cat", [`${folder}/${name}/speed`], { timeoutMs })));
  // Mbit/s; −1 where the link is down or virtual.
  const speeds = told.map(({ stdout: text }) => Number(text.trim() || Number.NaN));
  if (!speeds.every((speed) => speed > 0)) return unknown(`/sys/class/net tells no speed of ${distinct.join(", ")}`);
  const whole = speeds.reduce((sum, speed) => sum + speed, 0);
  return { bytesPerSecond: (whole * 1e6) / 8, text: `${distinct.join(" and ")}: ${whole / 1000} Gbit/s` };
}

const unknown = (why: string): Network => ({ bytesPerSecond: undefined, text: `not known: ${why}` });

function interfaceOf(address: string, interfaces: Addresses): string | undefined {
  return Object.entries(interfaces).find(([, list]) => list?.some((each) => each.address === address))?.[0];
}
