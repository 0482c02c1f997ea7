/**
 * Room for what `bench storage` writes: refused beforehand where the file system, or a quota of Lustre, would not hold twice as much. Other
 * quotas show when they are reached, as EDQUOT.
 */
import { runTool } from "../base/run-tool.ts";
import { formatCount, formatSize } from "../base/units.ts";
import { parseQuota } from "../lustre/quota.ts";
import type { Mount } from "../storage/mounts.ts";
import { BenchRoom } from "./errors.ts";

export interface Need {
  path: string;
  bytes: number;
  files: number;
  timeoutMs: number;
}

/** Others write, too. */
const MARGIN = 2;
const REMEDY = "a smaller --size, or another folder";

/** Throws ATH_BENCH_ROOM. Gives what could not be found out. */
export async function checkRoom(available: number, mount: Mount, need: Need): Promise<string[]> {
  const { path, bytes } = need;
  if (available < MARGIN * bytes) {
    const found = `${formatSize(available)} are free, ${formatSize(bytes)} and as much again are wanted`;
    throw new BenchRoom(found, { file: path }, REMEDY);
  }
  if (mount.kind !== "lustre") return [];
  const project = await runTool("lfs", ["project", "-d", path], { timeoutMs: need.timeoutMs });
  const number = /^\s*(\d+) /.exec(project.stdout)?.[1] ?? "0";
  const owners = [
    ["-u", String(process.getuid?.() ?? 0)],
    ["-g", String(process.getgid?.() ?? 0)],
    ...(number === "0" ? [] : [["-p", number]]),
  ] as const;
  const told = await Promise.all(owners.map(([kind, id]) => checkQuota(kind, id, mount, need)));
  return told.some((known) => !known) ? ["the quota could not be found out (`lfs quota`)"] : [];
}

/** Whether it is known. */
async function checkQuota(kind: string, id: string, mount: Mount, need: Need): Promise<boolean> {
  const { stdout } = await runTool("lfs", ["quota", kind, id, mount.point], { timeoutMs: need.timeoutMs });
  const quota = parseQuota(stdout);
  if (quota === undefined) return false;
  const line = `\`lfs quota ${kind} ${id} ${mount.point}\``;
  for (const [limits, wanted, text] of [
    [quota.bytes, need.bytes, formatSize],
    [quota.files, need.files, (files: number) => `${formatCount(files)} files`],
  ] as const) {
    // The soft limit begins a time of grace, behind which the user's own writes fail.
    const limit = limits.soft > 0 ? limits.soft : limits.hard;
    if (limit === 0 || limits.used + MARGIN * wanted <= limit) continue;
    const found = `the quota leaves ${text(Math.max(0, limit - limits.used))}, ${text(wanted)} and as much again are wanted`;
    throw new BenchRoom(found, { file: need.path }, `${line} shows it; ${REMEDY}`);
  }
  return true;
}
