/**
 * No room: what helps where a write failed for want of space or quota. On Lustre one full OST is enough, and `df` does not show it.
 *
 * @example
 * noRoom(error, "/mnt/lustre/d/.athanor"); // "free space: one full OST is enough, `lfs df /mnt/lustre` names it …"
 */
import { errnoName } from "../base/errno.ts";
import { findMount, readMounts } from "./mounts.ts";
import type { Mount } from "./mounts.ts";

/** Undefined: the fault is another one. Asks /proc alone. */
export function noRoom(error: unknown, path: string): string | undefined {
  const code = errnoName(error);
  if (code !== "ENOSPC" && code !== "EDQUOT") return undefined;
  const mount = mountHere(path);
  const lustre = mount?.kind === "lustre" ? mount.point : undefined;
  if (code === "EDQUOT") {
    const tool =
      lustre === undefined
        ? ""
        : `: \`lfs quota ${lustre}\` shows it, \`-g\` that of the group, \`-p\` that of the project`;
    return `the quota of space or of files is used up${tool}; remove files, or ask for more`;
  }
  return lustre === undefined
    ? "free space there (or inodes: `df -i`), then run it again"
    : `free space: one full OST is enough, which \`lfs df ${lustre}\` names and \`df\` does not; new files avoid it, so that running it again may do`;
}

function mountHere(path: string): Mount | undefined {
  try {
    return findMount(path, readMounts());
  } catch {
    return undefined;
  }
}
