/** Check: limits of a process, as doctor has them; a job may be started with others. */
import { formatCount, formatSize } from "../base/units.ts";
import { groupLimits } from "./cgroup.ts";
import type { Facts } from "./facts.ts";
import { gpusOf } from "./facts.ts";
import { checked, finding } from "./finding.ts";
import type { Checked } from "./finding.ts";
import { rdmaDevices } from "./rdma.ts";

/** An agent keeps up to 1024 shards open and needs some 500 files besides; torch has some hundreds a rank with its workers. */
const HARD_FILES = 4096;
/** Of a rank with its workers; 1024 is what most systems give. */
const SOFT_FILES = 1024;
const HARD = " (hard limit)";
const PROCESSES = 4096;
const LOCKED = 2 ** 30;
/** An agent and its threads reserve some tens of GiB and use little of it. */
const SPACE = 64 * 2 ** 30;

export function checkLimits(facts: Facts): Checked {
  const found = checked("limits of a process");
  const limits = parseLimits(facts.files.get(facts.limitsFile) ?? "");
  if (limits.size === 0) {
    found.unknown.push(`limits: /${facts.limitsFile} cannot be read`);
    return found;
  }
  const { pids } = groupLimits(facts.files);
  if (pids !== undefined && pids < (limits.get("Max processes") ?? Infinity)) limits.set("Max processes", pids);
  const shown = [
    ["open files", "Max open files"],
    ["processes", "Max processes"],
    ["locked memory", "Max locked memory"],
    ["address space", "Max address space"],
  ] as const;
  const text = (name: string, value: number): string =>
    value === Infinity ? "unlimited" : /memory|space/.test(name) ? formatSize(value) : formatCount(value);
  found.seen.push(
    shown.flatMap(([name, key]) => (limits.has(key) ? [`${name} ${text(name, limits.get(key)!)}`] : [])).join(", "),
  );
  const least = (id: Parameters<typeof finding>[0], key: string, atLeast: number, what: string, fix: string): void => {
    const value = limits.get(key);
    if (value === undefined || value >= atLeast) return;
    found.findings.push(
      finding(
        id,
        what,
        `${value === pids ? "pids.max of the control group" : `/${facts.limitsFile}`}: ${key} ${text(key, value)}`,
        fix,
      ),
    );
  };
  least(
    "limit-open-files",
    "Max open files",
    SOFT_FILES,
    "few files may be open at a time",
    "`ulimit -n 65536` in the job script, or LimitNOFILE in its unit",
  );
  least(
    "limit-open-files",
    `Max open files${HARD}`,
    HARD_FILES,
    "few files may be open at a time, also by an agent, which raises its own limit",
    "LimitNOFILE of slurmd, containerd or sshd, or nofile in /etc/security/limits.conf",
  );
  least(
    "limit-address-space",
    "Max address space",
    SPACE,
    "address space is limited: an agent reserves far more than it uses, and V8 does",
    "`ulimit -v unlimited`; limit memory by a control group",
  );
  least(
    "limit-processes",
    "Max processes",
    PROCESSES,
    "few processes and threads may run",
    "`ulimit -u`, or TasksMax of the unit",
  );
  const gpus = gpusOf(facts).length;
  if (rdmaDevices(facts).length > 0 || gpus > 0) {
    const fix = "`ulimit -l unlimited` (memlock in /etc/security/limits.conf, LimitMEMLOCK of slurmd or containerd)";
    least(
      "limit-locked-memory",
      "Max locked memory",
      LOCKED,
      "little memory may be locked: NCCL over InfiniBand and pinned memory fail",
      fix,
    );
  }
  return found;
}

/** The soft limits by name, and the hard ones; no limit is Infinity. */
export function parseLimits(text: string): Map<string, number> {
  const lines = text.matchAll(/^(Max [a-z ]+?) {2,}(\d+|unlimited) +(\d+|unlimited)\s/gm);
  const value = (word: string): number => (word === "unlimited" ? Infinity : Number(word));
  return new Map(
    [...lines].flatMap(([, name, soft, hard]) => [
      [name!, value(soft!)],
      [`${name!}${HARD}`, value(hard!)],
    ]),
  );
}
