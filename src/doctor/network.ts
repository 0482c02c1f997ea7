/** Check: how the servers are reached, and whether faster hardware lies idle. */
import { formatNumber } from "../base/units.ts";
import { typeOf } from "../lustre/nids.ts";
import type { Facts } from "./facts.ts";
import { lustreMounts } from "./facts.ts";
import { checked, finding } from "./finding.ts";
import type { Checked } from "./finding.ts";
import { networksTo, parseNets } from "./lnet.ts";
import type { NetworkInterface } from "./lnet.ts";
import { judgeInterfaces, judgeParameters } from "./network-interfaces.ts";
import { rdmaSettings } from "./network-settings.ts";
import { NET_OF, rdmaDevices } from "./rdma.ts";
import type { RdmaDevice } from "./rdma.ts";

const WORDS: Record<string, string> = {
  tcp: "TCP",
  o2ib: "RDMA (InfiniBand, RoCE or Omni-Path)",
  efa: "RDMA (EFA)",
  kfi: "RDMA (Slingshot)",
  gni: "RDMA (Aries)",
};

export function checkNetwork(facts: Facts): Checked | undefined {
  const mounts = lustreMounts(facts);
  if (mounts.length === 0) return undefined;
  const found = checked("network to the servers");
  const devices = rdmaDevices(facts);
  const printed = facts.tools.get("lnetctl net show -v");
  const own = parseNets(printed?.stdout ?? "");
  const types = new Set<string>();
  for (const { point, source } of mounts) {
    const { nets: used, from } = networksTo(source, facts);
    for (const net of used) types.add(typeOf(net));
    const names = [...new Set(used)].map(
      (net) => `${net}: ${WORDS[typeOf(net)] ?? "a kind of network not known here"}`,
    );
    found.seen.push(`${point}: ${names.join("; ")} (${from})`);
  }
  const listed = (facts.tools.get("lctl list_nids")?.stdout ?? "").split("\n").filter((nid) => nid.includes("@"));
  if (listed.length > 0) found.seen.push(`this client: ${listed.join(", ")}`);
  const configured = facts.files.get("sys/module/lnet/parameters/networks");
  if (configured !== undefined && configured !== "") found.seen.push(`module option: networks=${configured}`);
  for (const device of devices) found.seen.push(describe(device));
  if (devices.length === 0) found.seen.push("no RDMA hardware in /sys/class/infiniband or /sys/class/cxi");
  if (own.length === 0) {
    const why =
      printed?.missing === true ? "`lnetctl` is not installed here" : "LNet shows its interfaces to root only";
    found.unknown.push(`state and health of LNet's interfaces: ${why}; run \`lnetctl net show -v\` as root`);
  }
  idle(found, devices, types, facts, own);
  judgeInterfaces(found, own, devices);
  judgeParameters(found, facts, Math.max(own.filter(({ net }) => typeOf(net) !== "tcp").length, own.length));
  return found;
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
