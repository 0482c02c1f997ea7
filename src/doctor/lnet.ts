/**
 * LNet: what `lnetctl net show -v` prints (root only), and the networks of NIDs. Pure.
 *
 * A YAML of which five keys are wanted, in two indentations (2.15 and 2.17 differ) and cut off where the tool was: read line by line
 * instead of by a YAML library, which gives nothing of a text that is cut.
 *
 * @example
 * parseNets(printed); // [{ nid: "10.0.8.101@o2ib", net: "o2ib", status: "up", health: 1000, interfaces: ["ib0"] }]
 */

import { formatNumber } from "../base/units.ts";
import { fileSystemOf } from "../lustre/targets.ts";
import type { Facts } from "./facts.ts";
import { filesLike, numberIn } from "./facts.ts";

export interface NetworkInterface {
  nid: string;
  net: string;
  /** `up`, `down` */
  status: string | undefined;
  /** 1000: well; undefined: not told (2.17 without health). */
  health: number | undefined;
  /** Timeouts that its health statistics count. */
  timeouts: number;
  interfaces: string[];
}

/** Without the loopback. */
export function parseNets(text: string): NetworkInterface[] {
  const found: NetworkInterface[] = [];
  let here: NetworkInterface | undefined;
  for (const line of text.split("\n")) {
    const [, key, rest] = /^[\s-]*([A-Za-z0-9()_][A-Za-z0-9 ()_]*):(.*)$/.exec(line.trimEnd()) ?? [];
    if (key === undefined) continue;
    const value = rest!.trimStart();
    if (key === "net type") here = undefined;
    if (key === "nid") {
      here = { nid: value, net: netOf(value), status: undefined, health: undefined, timeouts: 0, interfaces: [] };
      found.push(here);
    }
    if (here === undefined) continue;
    if (key === "status") here.status = value === "" ? undefined : value;
    if (key === "health value") here.health = numberIn(value);
    if (key === "timeouts") here.timeouts = numberIn(value) ?? 0;
    if (/^\d+$/.test(key)) here.interfaces.push(value);
  }
  return found.filter(({ net }) => net !== "lo");
}

/** `10.0.8.11@o2ib1` → `o2ib1`; the first network of a type has no number. */
export function netOf(nid: string): string {
  return nid.slice(nid.lastIndexOf("@") + 1).replace(/^([a-z]+(?:2ib)?)0$/, "$1");
}

/** `o2ib1` → `o2ib`. */
export const typeOf = (net: string): string => /^(o2ib|[a-z]+)/.exec(net)?.[1] ?? net;

/** `10.0.8.11@o2ib,10.1.8.11@o2ib1:10.0.8.12@o2ib:/trainfs` → the NIDs. */
export function nidsOf(source: string): string[] {
  return source
    .slice(0, source.lastIndexOf(":/"))
    .split(/[,:](?=[^:,]*@)/)
    .filter((nid) => nid.includes("@"));
}

/**
 * Networks over which the OSTs of a file system are reached; a server on this node itself is none. Where /sys does not tell, those of the
 * mount, which name only the way to the management server. `from`: which it is, in words.
 */
export function networksTo(source: string, facts: Facts): { nets: string[]; from: string } {
  const connections = filesLike(facts, `sys/fs/lustre/osc/${fileSystemOf(source)}-OST*/ost_conn_uuid`);
  const nets = connections
    .filter(({ path, text }) => !path.includes("-osc-MDT") && text.includes("@"))
    .map(({ text }) => netOf(text))
    .filter((net) => net !== "lo");
  if (nets.length > 0) return { nets, from: `${formatNumber(nets.length, "connection")} to OSTs` };
  return { nets: nidsOf(source).map(netOf), from: "by the source of the mount" };
}
