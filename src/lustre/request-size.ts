/**
 * Request size: how many bytes one read of a Lustre file should bring, from what its client tells any user in /sys.
 *
 * A read that reaches `hybrid_io_read_threshold_bytes` (Lustre 2.17) goes direct and brings exactly what is asked; below it, reads in
 * order set off read-ahead past the end of what is wanted. One that is smaller than an RPC wastes round trips. Reads nothing but /sys.
 *
 * @example
 * requestBytes("trainfs", "/"); // 16 MiB where the admin has set RPCs of 16 MiB
 */
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";

/** What is asked at least: direct with the default threshold, and two RPCs of the default size. */
const LEAST = 8 * 1024 * 1024;
/** Larger requests gain nothing and hold memory. */
const MOST = 16 * 1024 * 1024;
const PAGE = 4096;

/** Bytes, from 8 to 16 MiB. `system`: name of the file system; `root`: where /sys is looked for. */
export function requestBytes(system: string, root: string): number {
  const rpc = tunable(root, "osc", `${system}-OST`, "max_pages_per_rpc") * PAGE;
  const direct = tunable(root, "llite", `${system}-`, "hybrid_io_read_threshold_bytes");
  // A threshold beyond what is read at once cannot be reached: then it does not matter.
  return Math.max(LEAST, Math.min(rpc, MOST), direct > MOST ? 0 : direct);
}

/** Of the first client device of that name; 0: not told. Sites set all devices of a file system alike. */
function tunable(root: string, kind: string, prefix: string, name: string): number {
  const folder = join(root, "sys/fs/lustre", kind);
  try {
    const device = readdirSync(folder).find((entry) => entry.startsWith(prefix) && !/-osc-MDT/.test(entry));
    const value = device === undefined ? 0 : Number(readFileSync(join(folder, device, name), "utf8"));
    return Number.isSafeInteger(value) && value > 0 ? value : 0;
  } catch {
    return 0; // an older client without it, or a pod without /sys
  }
}
