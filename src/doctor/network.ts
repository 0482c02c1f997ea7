/** Check: how the servers are reached, whether faster hardware lies idle, and the state of LNet's interfaces. */
import { formatNumber } from "../base/units.ts";
import { fileSystemOf } from "../lustre/targets.ts";
import type { Facts } from "./facts.ts";
import { filesLike, lustreMounts } from "./facts.ts";
import { checked, finding } from "./finding.ts";
import type { Checked } from "./finding.ts";
import { netOf, nidsOf, parseNets, typeOf } from "./lnet.ts";
import type { NetworkInterface } from "./lnet.ts";
import { discoverySetting, healthSetting, rdmaSettings } from "./network-settings.ts";
import { NET_OF, rdmaDevices } from "./rdma.ts";
import type { RdmaDevice } from "./rdma.ts";

const WORDS: Record<string, string> = {
  tcp: "TCP",
  o2ib: "RDMA (InfiniBand, RoCE or Omni-Path)",
  efa: "RDMA (EFA)",
  kfi: "RDMA (Slingshot)",
  gni: "RDMA (Aries)",
};
/** Of a healthy interface. */
const HEALTHY = 1000;

export function checkNetwork(facts: Facts): Checked | undefined {
  const mounts = lustreMounts(facts);
  if (mounts.length === 0) return undefined;
  const found = checked("network to the servers");
  const devices = rdmaDevices(facts);
  const printed = facts.tools.get("lnetctl net show -v");
  const own = parseNets(printed?.stdout ?? "");
  const types = new Set<string>();
  for (const { point, source } of mounts) {
    const nets = targetNets(source, facts);
    const used = nets.length > 0 ? nets : nidsOf(source).map(netOf);
    for (const net of used) types.add(typeOf(net));
    const names = [...new Set(used)].map(
      (net) => `${net}: ${WORDS[typeOf(net)] ?? "a kind of network not known here"}`,
    );
    const from = nets.length > 0 ? `${formatNumber(nets.length, "connection")} to OSTs` : "by the source of the mount";
    found.seen.push(`${point}: ${names.join("; ")} (${from})`);
  }
  const listed = (facts.tools.get("lctl list_nids")?.stdout ?? "").split("\n").filter((nid) => nid.includes("@"));
  if (listed.length > 0) found.seen.push(`this client: ${listed.join(", ")}`);
  for (const device of devices) found.seen.push(describe(device));
  if (devices.length === 0) found.seen.push("no RDMA hardware in /sys/class/infiniband or /sys/class/cxi");
  if (own.length === 0) {
    const why =
      printed?.missing === true ? "`lnetctl` is not installed here" : "LNet shows its interfaces to root only";
    found.unknown.push(`state and health of LNet's interfaces: ${why}; run \`lnetctl net show -v\` as root`);
  }
  idle(found, devices, types, facts, own);
  interfaces(found, own, devices);
  parameters(found, facts, Math.max(own.filter(({ net }) => typeOf(net) !== "tcp").length, own.length));
  return found;
}

/** Networks over which the OSTs of a file system are reached; a server on this node itself is none. */
function targetNets(source: string, facts: Facts): string[] {
  const connections = filesLike(facts, `sys/fs/lustre/osc/${fileSystemOf(source)}-OST*/ost_conn_uuid`);
  return connections
    .filter(({ path, text }) => !path.includes("-osc-MDT") && text.includes("@"))
    .map(({ text }) => netOf(text))
    .filter((net) => net !== "lo");
}

function describe({ name, kind, active, ports, rate, interfaces }: RdmaDevice): string {
  const speed = rate === undefined ? "" : `, ${rate} Gbit/s`;
  const named = interfaces.length === 0 ? "" : ` (${interfaces.join(", ")})`;
  return `${name}${named}: ${kind}, ${active} of ${formatNumber(ports, "port")} active${speed}`;
}

/** RDMA hardware whose network no file system uses, while one is reached over TCP. */
function idle(
  found: Checked,
  devices: readonly RdmaDevice[],
  types: ReadonlySet<string>,
  facts: Facts,
  own: readonly NetworkInterface[],
): void {
  const active = devices.filter(({ active: ports }) => ports > 0);
  if (!types.has("tcp") || active.some(({ kind }) => types.has(NET_OF[kind]))) return;
  // Every modern Ethernet card shows up as RoCE, with or without a network that could carry it.
  const best = active.find(({ kind }) => kind !== "RoCE") ?? active[0];
  if (best === undefined) return;
  const same = active.filter(({ kind }) => kind === best.kind);
  const names = same.map(({ name }) => name).join(", ");
  const evidence = `${names} ACTIVE in /sys, servers reached over tcp`;
  if (best.kind === "RoCE") {
    const fix =
      "where the servers have NIDs on o2ib and the network is lossless (PFC, ECN): the lines of `--site-config`; in a cloud these cards carry TCP only";
    found.findings.push(
      finding("network-roce-idle", `${names} could do RDMA, and Lustre goes over TCP`, evidence, fix),
    );
  } else {
    const fix =
      "ask the admin whether the servers have NIDs on that network (`lctl list_nids` there); the lines are in `athanor doctor --site-config`";
    const what = `${best.kind} is here and active, and Lustre goes over TCP: less bandwidth, and CPU for every byte`;
    found.findings.push(finding("network-rdma-idle", what, evidence, fix));
  }
  found.settings.push(...rdmaSettings(same, lustreMounts(facts), own));
}

function interfaces(found: Checked, own: readonly NetworkInterface[], devices: readonly RdmaDevice[]): void {
  for (const { nid, net, status, health, timeouts, interfaces: names } of own) {
    const named = names.length === 0 ? nid : `${nid} (${names.join(", ")})`;
    found.seen.push(
      `LNet ${net}: ${named} ${status ?? "of unknown state"}${health === undefined ? "" : `, health ${health} of ${HEALTHY}`}`,
    );
    if (status !== undefined && status !== "up") {
      const fix = "look at cable, port and switch; `lnetctl net show -v` tells when it is back";
      found.findings.push(
        finding("network-ni-down", `the interface ${named} of LNet is ${status}`, "lnetctl net show -v", fix),
      );
    }
    if (health !== undefined && health < HEALTHY) {
      const counted = timeouts > 0 ? `, ${formatNumber(timeouts, "timeout")}` : "";
      const fix = "look at errors of this port and its switch; Lustre sends less over it until its health is back";
      const evidence = `lnetctl net show -v: health value ${health} of ${HEALTHY}${counted}`;
      found.findings.push(finding("network-health", `the interface ${named} loses messages`, evidence, fix));
    }
  }
  const rails = own.filter(({ net }) => typeOf(net) !== "tcp");
  const ports = devices.filter(({ kind, active }) => kind !== "RoCE" && active > 0);
  if (rails.length > 0 && rails.length < ports.length) {
    const what = `Lustre uses ${rails.length} of ${formatNumber(ports.length, "active port")} with RDMA`;
    const fix =
      "where ports are not kept for the traffic between GPUs: all of them in one network, `lnetctl net add --net o2ib --if IF,IF`";
    found.findings.push(finding("network-rails", what, "lnetctl net show -v against /sys/class/infiniband", fix));
  }
  for (const { name, kind, active, ports: all } of devices) {
    if (active > 0 || kind === "RoCE") continue;
    const what = `${name} (${kind}) has no active port`;
    const fix = "look at cable and subnet manager, if it should carry anything";
    found.findings.push(finding("network-port-down", what, `0 of ${all} ACTIVE in /sys`, fix));
  }
}

function parameters(found: Checked, facts: Facts, rails: number): void {
  const folder = "sys/module/lnet/parameters";
  const off = facts.files.get(`${folder}/lnet_peer_discovery_disabled`);
  if (off === "1" && rails > 1) {
    const fix = "`lnetctl set discovery 1`, or the line of `--site-config`";
    const what = "LNet does not look for further interfaces of its peers: several rails are not used together";
    found.findings.push(finding("network-discovery-off", what, "lnet_peer_discovery_disabled is 1", fix));
    found.settings.push(discoverySetting());
  }
  if (facts.files.get(`${folder}/lnet_health_sensitivity`) === "0" && rails > 1) {
    const fix = "`lnetctl set health_sensitivity 100`, or the line of `--site-config`";
    const what = "LNet does not lead messages away from an interface that loses them";
    found.findings.push(finding("network-health-off", what, "lnet_health_sensitivity is 0", fix));
    found.settings.push(healthSetting());
  }
}
