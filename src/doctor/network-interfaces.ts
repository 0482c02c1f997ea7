/** Part of the check of the network: state, health and number of LNet's interfaces, and what they are allowed to do. */
import { formatNumber } from "../base/units.ts";
import type { Facts } from "./facts.ts";
import { finding } from "./finding.ts";
import type { Checked } from "./finding.ts";
import { typeOf } from "../lustre/nids.ts";
import type { NetworkInterface } from "./lnet.ts";
import { discoverySetting, healthSetting } from "./network-settings.ts";
import type { RdmaDevice } from "./rdma.ts";

/** Of a healthy interface. */
const HEALTHY = 1000;

export function judgeInterfaces(
  found: Checked,
  own: readonly NetworkInterface[],
  devices: readonly RdmaDevice[],
): void {
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

/** `rails`: interfaces that could share the load. */
export function judgeParameters(found: Checked, facts: Facts, rails: number): void {
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
