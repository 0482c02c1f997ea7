/** Checks: shared memory, and the limit of memory of the job. */
import { formatSize } from "../base/units.ts";
import { findMount } from "../storage/mounts.ts";
import { groupLimits } from "./cgroup.ts";
import { numberIn } from "./facts.ts";
import type { Facts } from "./facts.ts";
import { adderOf, checked, finding } from "./finding.ts";
import type { Checked } from "./finding.ts";

const SHM = "/dev/shm";
const MIB = 2 ** 20;
const GIB = 2 ** 30;
/** What NCCL and the workers of a few ranks take. */
const SMALL = GIB;
const FULL = 16 * MIB;
/** The windows of a loader (1 GiB by default), its reads and its batches. */
const ROOM = 2 * GIB;

export function checkSharedMemory(facts: Facts): Checked {
  const found = checked("shared memory");
  const add = adderOf(found);
  const pod =
    "in a pod: a volume `emptyDir: {medium: Memory, sizeLimit: 16Gi}` mounted at /dev/shm; in Docker: --shm-size";
  const space = facts.spaces.get(SHM);
  const mount = findMount(SHM, facts.mounts);
  if (space === undefined || !("total" in space)) {
    const why = space !== undefined && "silent" in space ? "does not answer" : "is not there";
    add("shm-missing", `${SHM} ${why}: Athanor goes to /tmp, NCCL and DataLoader workers fail`, `statfs ${SHM}`, pod);
  } else {
    found.seen.push(
      `${SHM}: ${formatSize(space.total)}, ${formatSize(space.available)} free, ${mount?.type ?? "of no known kind"}`,
    );
    found.seen.push("batches need none of it: their memory has no name and counts against the memory limit");
    const evidence = `statfs ${SHM}: ${formatSize(space.available)} of ${formatSize(space.total)} free`;
    if (space.available < FULL)
      add(
        "shm-full",
        `${SHM} is full: agents, NCCL and DataLoader workers fail`,
        evidence,
        "remove files of dead jobs there, or give it more",
      );
    else if (space.total < SMALL)
      add("shm-small", `${SHM} is small for NCCL and DataLoader workers (Bus error)`, evidence, pod);
    if (mount !== undefined && mount.kind !== "memory") {
      const fix = "medium: Memory for the volume at /dev/shm";
      add(
        "shm-on-disk",
        `${SHM} lies on ${mount.type}, not in memory`,
        `/proc/self/mountinfo: ${mount.point} is ${mount.type}`,
        fix,
      );
    }
  }
  return found;
}

export function checkMemory(facts: Facts): Checked {
  const found = checked("memory");
  const { memory, used } = groupLimits(facts.files);
  const taken = used === undefined ? "" : `, ${formatSize(used)} in use (without the page cache)`;
  found.seen.push(memory === undefined ? "no limit of a control group can be seen" : `${formatSize(memory)}${taken}`);
  const node = nodeMemory(facts);
  if (node !== undefined)
    found.seen.push(`the node has ${formatSize(node.total)}, of which ${formatSize(node.available)} can be had`);
  const room = memory === undefined ? Infinity : Math.max(0, memory - (used ?? 0));
  const least = Math.min(room, node?.available ?? Infinity);
  if (least < ROOM) {
    const what = `the job may take ${formatSize(least)} more: a loader wants about ${formatSize(ROOM)} by default`;
    const fix = "give the job more memory, or lower shuffle_memory of the loader and ATHANOR_AGENT_MEMORY";
    const evidence =
      least === room ? `control group: limit ${formatSize(memory!)}${taken}` : "/proc/meminfo: MemAvailable";
    found.findings.push(finding("memory-tight", what, evidence, fix));
  }
  return found;
}

function nodeMemory(facts: Facts): { total: number; available: number } | undefined {
  const text = facts.files.get("proc/meminfo") ?? "";
  const total = numberIn(/^MemTotal: +(\d+ kB)$/m.exec(text)?.[1]);
  const available = numberIn(/^MemAvailable: +(\d+ kB)$/m.exec(text)?.[1]);
  return total === undefined || available === undefined
    ? undefined
    : { total: total * 1024, available: available * 1024 };
}
