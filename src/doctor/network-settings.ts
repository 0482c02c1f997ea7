/**
 * The lines by which an admin would let Lustre go over RDMA hardware that lies idle, all ports in one network (multi-rail), with health. Pure.
 */
import { quoted } from "../lustre/setstripe.ts";
import type { Mount } from "../storage/mounts.ts";
import type { Setting } from "./finding.ts";
import { typeOf } from "../lustre/nids.ts";
import type { NetworkInterface } from "./lnet.ts";
import { NET_OF } from "./rdma.ts";
import type { RdmaDevice } from "./rdma.ts";

const BY_HAND = "by hand: unmount first, with no job running";
/** Options of a mount that somebody has given; the others the file system shows by itself. */
const KEPT = new Set(["ro", "noatime", "nodiratime", "flock", "localflock", "nosuid", "nodev", "noexec", "user_xattr"]);
const MANUAL = "Lustre manual, configuring LNet; lnetctl(8)";

/** `devices`: active ones of one kind. */
export function rdmaSettings(
  devices: readonly RdmaDevice[],
  mounts: readonly Mount[],
  own: readonly NetworkInterface[],
): Setting[] {
  const kind = devices[0]!.kind;
  const net = NET_OF[kind];
  // EFA and Slingshot are named by their device, the others by the IP interface on it.
  const byDevice = net !== "o2ib";
  const names = devices.flatMap(({ name, interfaces }) => (byDevice ? [name] : interfaces));
  const list = names.length > 0 ? names.join(",") : "IB-INTERFACE";
  const why = `${kind} is active on ${devices.map(({ name }) => name).join(", ")}, and the servers are reached over TCP`;
  const needs = `the servers must have NIDs on ${net}, else nothing is reached: test with \`lnetctl ping NID@${net}\` first`;
  const settings: Setting[] = [];
  if (byDevice) {
    const source = kind === "EFA" ? "AWS FSx for Lustre, EFA clients" : "Lustre source, kfilnd; lnetctl(8)";
    const flags = kind === "EFA" ? " --peer-credits 32" : "";
    const risk = kind === "EFA" ? `${needs}; of many devices AWS takes some only (every fourth of a p5)` : needs;
    for (const name of names) {
      const line = `lnetctl net add --net ${net} --if ${name}${flags}`;
      const undo = `lnetctl net del --net ${net} --if ${name}`;
      settings.push({ where: "root shell", line, now: undefined, why, source, risk, undo });
    }
    if (kind === "EFA") {
      const line = "lnetctl udsp add --src efa --priority 0";
      const first = "messages go over EFA first and over TCP where a peer has no EFA";
      settings.push({
        where: "root shell",
        line,
        now: undefined,
        why: first,
        source,
        risk: needs,
        undo: "lnetctl udsp del --idx 0",
      });
    }
  } else {
    const tcp = own.filter((ni) => typeOf(ni.net) === "tcp").flatMap(({ interfaces }) => interfaces);
    const kept = tcp.length > 0 ? `,tcp(${tcp.join(",")})` : "";
    const risk = `${needs}; read when the modules are loaded: unmount, \`lustre_rmmod\`, mount anew${kept === "" ? "; add tcp(IF) where other file systems are reached over TCP" : ""}`;
    settings.push({
      where: "/etc/modprobe.d/lnet.conf",
      line: `options lnet networks="${net}(${list})${kept}"`,
      now: undefined,
      why,
      source: `${MANUAL}; NVIDIA GPUDirect Storage guide`,
      risk,
      undo: "take the line out",
    });
    settings.push({
      where: "root shell",
      line: `lnetctl net add --net ${net} --if ${list}`,
      now: undefined,
      why: "the same on a running node, until it boots; keep it with `lnetctl export --backup > /etc/lnet.conf` and lnet.service",
      source: MANUAL,
      risk: needs,
      undo: `lnetctl net del --net ${net}`,
    });
  }
  if (devices.length > 1) settings.push(discoverySetting(), healthSetting());
  if (kind === "EFA") return settings;
  for (const { point, source, options } of mounts) {
    const kept = options.filter((option) => KEPT.has(option)).join(",");
    const line = (from: string): string =>
      `mount -t lustre${kept === "" ? "" : ` -o ${kept}`} ${from} ${quoted(point)}`;
    settings.push({
      where: BY_HAND,
      line: line(`MGS-ADDRESS@${net}:${source.slice(source.lastIndexOf(":/") + 1)}`),
      now: source,
      why: "the source of a mount names the network by which the servers are looked for",
      source: "mount.lustre(8)",
      risk: "the addresses of the servers on that network are known to the admin only",
      undo: line(source),
    });
  }
  return settings;
}

export const discoverySetting = (): Setting => ({
  where: "root shell",
  line: "lnetctl set discovery 1",
  now: undefined,
  why: "peers tell each other all their interfaces: several rails carry one file system (multi-rail)",
  source: MANUAL,
  risk: "conflicts with mounts that have network= and with peers that were set by hand",
  undo: "lnetctl set discovery 0",
});

export const healthSetting = (): Setting => ({
  where: "root shell",
  line: "lnetctl set health_sensitivity 100",
  now: undefined,
  why: "an interface that loses messages gets fewer of them until it is well again",
  source: MANUAL,
  risk: "with one interface only there is nothing to lead around",
  undo: "lnetctl set health_sensitivity 0",
});
