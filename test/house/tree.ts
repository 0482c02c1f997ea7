/** What the tests of the house look at: files that git knows or would take, so that outputs and caches are left out. */
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

/** Root of the repository; this file runs as dist/test/house/tree.js. */
export const root = join(dirname(fileURLToPath(import.meta.url)), "..", "..", "..");

/** Paths relative to the root, tracked or new, not ignored, that exist. */
export function repositoryFiles(): string[] {
  const options = { cwd: root, encoding: "utf8", maxBuffer: 64 * 1024 * 1024 } as const;
  const listed = execFileSync("git", ["ls-files", "-z", "--cached", "--others", "--exclude-standard"], options);
  const files = [...new Set(listed.split("\0"))].filter((path) => path !== "" && existsSync(join(root, path)));
  if (files.length < 20) throw new Error(`git lists only ${files.length} files in ${root}`);
  return files;
}

export function read(path: string): string {
  return readFileSync(join(root, path), "utf8");
}
