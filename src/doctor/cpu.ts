/** Check: the CPUs that the job may use, how it is bound to them, and where they lie beside the GPUs. */
import { formatNumber } from "../base/units.ts";
import { groupLimits } from "./cgroup.ts";
import type { Facts } from "./facts.ts";
import { cpuList, filesLike, gpusOf, numberIn } from "./facts.ts";
import { checked, finding } from "./finding.ts";
import type { Checked } from "./finding.ts";

/** One to decode, one for all the rest. */
const FEW = 2;
const THROTTLED = 0.05;

export function checkCpu(facts: Facts): Checked {
  const found = checked("CPUs");
  const { cpus: quota, throttled, cpuset } = groupLimits(facts.files);
  const online = cpuList(facts.files.get("sys/devices/system/cpu/online"));
  const status = facts.files.get("proc/self/status") ?? "";
  const bound = cpuList(/^Cpus_allowed_list:\s*(.*)$/m.exec(status)?.[1]);
  const group = cpuset === undefined ? bound : cpuList(cpuset);
  if (bound.length === 0 || online.length === 0) {
    found.unknown.push("CPUs: /proc/self/status or /sys/devices/system/cpu cannot be read");
    return found;
  }
  const limit = quota === undefined ? "" : `, time of ${quota.toFixed(1)} CPUs`;
  found.seen.push(
    `${formatNumber(online.length, "CPU")}, bound to ${bound.length}, ${group.length} in the control group${limit}`,
  );
  const usable = Math.min(Math.max(group.length, bound.length), quota ?? Infinity);
  if (usable < FEW && online.length > usable) {
    const what = `the job has ${usable.toFixed(1)} of ${formatNumber(online.length, "CPU")}: reading, decoding and training share it`;
    const fix = "ask for more (`--cpus-per-task` of Slurm, `resources.limits.cpu` of the pod): 2 and more a GPU";
    found.findings.push(
      finding("cpu-few", what, `control group ${group.length}, quota ${quota?.toFixed(1) ?? "none"}`, fix),
    );
  } else if (bound.length < group.length) {
    const what = `this process is bound to ${bound.length} of the ${formatNumber(group.length, "CPU")} of the job`;
    const fix =
      "fine for a rank: the agent that a rank starts takes all CPUs of the job; an agent started by hand is bound as its shell";
    found.findings.push(finding("cpu-pinned", what, "/proc/self/status: Cpus_allowed_list", fix));
  }
  if (throttled !== undefined && throttled >= THROTTLED) {
    const what = `the job had to wait for CPU time in ${(100 * throttled).toFixed(0)} % of the periods`;
    const fix = "raise the CPU limit of the pod, or leave it out and set the request only";
    found.findings.push(
      finding("cpu-throttled", what, "cpu.stat of the control group: nr_throttled of nr_periods", fix),
    );
  }
  nodes(found, facts, group);
  return found;
}

function nodes(found: Checked, facts: Facts, cpus: readonly number[]): void {
  const here = new Set(cpus);
  const lists = filesLike(facts, "sys/devices/system/node/node*/cpulist");
  const near = lists
    .filter(({ text }) => cpuList(text).some((cpu) => here.has(cpu)))
    .map(({ parts }) => Number(parts[0]));
  const gpus = gpusOf(facts);
  // -1: one node, or a virtual machine that does not tell.
  const at = gpus.map(({ text }) => numberIn(text) ?? -1).filter((node) => node >= 0);
  if (lists.length > 1)
    found.seen.push(
      `memory nodes: CPUs on ${near.join(", ")}, GPUs on ${[...new Set(at)].sort((a, b) => a - b).join(", ") || "none that tell"}`,
    );
  const far = at.filter((node) => !near.includes(node));
  if (far.length === 0 || near.length === 0) return;
  const what = `${far.length} of ${formatNumber(at.length, "GPU")} hang on a memory node where the job has no CPU`;
  const fix =
    "bind with the topology (`--cpu-bind` or `--gpu-bind=closest` of Slurm, the Topology Manager of the kubelet)";
  found.findings.push(
    finding("cpu-far-from-gpu", what, "numa_node of the GPUs against the CPUs of the control group", fix),
  );
}
