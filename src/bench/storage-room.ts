/**
 * Room for what `bench storage` writes: refused beforehand where the file system, or a quota of Lustre, would not hold twice as much. Other
 * quotas show when they are reached, as EDQUOT.
 */
import { formatSize } from "../base/units.ts";
import { roomByQuota } from "../lustre/quota.ts";
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
  const { path, timeoutMs } = need;
  const wanted = { bytes: MARGIN * need.bytes, files: MARGIN * need.files };
  if (available < wanted.bytes) {
    const found = `${formatSize(available)} are free, twice ${formatSize(need.bytes)} are wanted`;
    throw new BenchRoom(found, { file: path }, REMEDY);
  }
  if (mount.kind !== "lustre") return [];
  const { short, notes } = await roomByQuota(mount.point, path, undefined, wanted, timeoutMs);
  if (short.length > 0)
    throw new BenchRoom(
      `${short.join("; ")} (twice what is written)`,
      { file: path },
      `\`lfs quota\` shows it; ${REMEDY}`,
    );
  return notes;
}
