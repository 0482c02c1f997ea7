/**
 * Limits of the control groups that this process is in, version 1 and 2. A limit of a group above holds, too: the least of all counts.
 */
import { numberIn } from "./facts.ts";

export interface GroupLimits {
  /** Bytes; undefined: no limit. */
  memory: number | undefined;
  /** Bytes that cannot be given back: the page cache is none of them. Of the group that has the least limit. */
  used: number | undefined;
  /** CPUs' worth of time. */
  cpus: number | undefined;
  /** Share of the periods in which the group had to wait, of at least 100. */
  throttled: number | undefined;
  /** CPUs that the group may be bound to. */
  cpuset: string | undefined;
  /** Processes and threads. */
  pids: number | undefined;
}

const V2 = ["memory.max", "memory.stat", "cpu.max", "cpu.stat", "cpuset.cpus.effective", "pids.max"];
const V1: Record<string, readonly string[]> = {
  memory: ["memory.limit_in_bytes", "memory.stat"],
  cpu: ["cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.stat"],
  cpuset: ["cpuset.effective_cpus", "cpuset.cpus"],
  pids: ["pids.max"],
};
/** What version 1 calls no limit: the largest multiple of a page. */
const UNLIMITED = 2 ** 62;
const PERIODS = 100;

/** Files to read for `/proc/self/cgroup`, from the group itself up. */
export function groupFiles(text: string): string[] {
  return text.split("\n").flatMap((line) => {
    const [, id, names, path] = /^(\d+):([^:]*):(\/.*)$/.exec(line.trim()) ?? [];
    if (path === undefined) return [];
    const above = foldersUp(path);
    if (id === "0") return above.flatMap((folder) => V2.map((file) => `sys/fs/cgroup${folder}/${file}`));
    const controllers = names!.split(",");
    return controllers.flatMap((name) => {
      const mounted = controllers.length === 1 ? [name] : [name, names!];
      return above.flatMap((folder) =>
        mounted.flatMap((at) => (V1[name] ?? []).map((file) => `sys/fs/cgroup/${at}${folder}/${file}`)),
      );
    });
  });
}

/** `/a/b` → `/a/b`, `/a`, ``. In a container the path may be one of the host: the top is the container's own. */
function foldersUp(path: string): string[] {
  const parts = path.split("/").filter((part) => part !== "" && part !== "..");
  return [...parts.map((_, i) => `/${parts.slice(0, parts.length - i).join("/")}`), ""];
}

export function groupLimits(files: ReadonlyMap<string, string>): GroupLimits {
  const limits: GroupLimits = {
    memory: undefined,
    used: undefined,
    cpus: undefined,
    throttled: undefined,
    cpuset: undefined,
    pids: undefined,
  };
  const least = (a: number | undefined, b: number | undefined): number | undefined =>
    a === undefined || (b !== undefined && b < a) ? b : a;
  for (const [path, text] of files) {
    if (!path.startsWith("sys/fs/cgroup")) continue;
    const folder = path.slice(0, path.lastIndexOf("/"));
    const name = path.slice(folder.length + 1);
    const value = numberIn(text);
    if ((name === "memory.max" || name === "memory.limit_in_bytes") && value !== undefined && value < UNLIMITED) {
      if (limits.memory === undefined || value < limits.memory) {
        limits.memory = value;
        limits.used = usedOf(files.get(`${folder}/memory.stat`));
      }
    }
    if (name === "pids.max") limits.pids = least(limits.pids, value);
    if (name === "cpu.max") {
      const [, quota, period] = /^(\d+) (\d+)$/.exec(text) ?? [];
      if (quota !== undefined) limits.cpus = least(limits.cpus, Number(quota) / Number(period));
    }
    if (name === "cpu.cfs_quota_us" && value !== undefined && value > 0) {
      const period = numberIn(files.get(`${folder}/cpu.cfs_period_us`));
      if (period !== undefined && period > 0) limits.cpus = least(limits.cpus, value / period);
    }
    if (name === "cpu.stat") {
      const count = (what: string): number => numberIn(new RegExp(`^${what} (.*)$`, "m").exec(text)?.[1]) ?? 0;
      const share = count("nr_throttled") / count("nr_periods");
      if (count("nr_periods") >= PERIODS) limits.throttled = Math.max(limits.throttled ?? 0, share);
    }
    // From the group itself up: the first is its own.
    if (/^cpuset\.(cpus\.effective|effective_cpus|cpus)$/.test(name) && text !== "") limits.cpuset ??= text;
  }
  return limits;
}

function usedOf(stat: string | undefined): number | undefined {
  const value = (name: string): number | undefined => numberIn(new RegExp(`^${name} (.*)$`, "m").exec(stat ?? "")?.[1]);
  const anon = value("anon") ?? value("total_rss");
  return anon === undefined ? undefined : anon + (value("shmem") ?? value("total_shmem") ?? 0);
}
