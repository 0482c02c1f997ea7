/**
 * Groups: files that make up one shard: a `.bin` with its `.idx`, the chunks of a Zarr folder. By names only, as a folder's
 * listing gives them; what the shard really is, its content says.
 *
 * @example
 * groupFiles(["a.bin", "a.idx", "b.jsonl"]); // [{ path: "a.bin", beside: ["a.idx"] }, { path: "b.jsonl", beside: [] }]
 */

import { groupMds } from "./mds/groups.ts";
import { FOLDER_MARKS } from "../storage/types.ts";
import { baseName, folderName } from "./names.ts";

/**
 * One shard as its files: `path` names it, `beside` are the others (all, where the shard is a folder); all relative to the root,
 * in byte order.
 */
export interface FileGroup {
  path: string;
  beside: string[];
}

/** `paths` in byte order. Every path is in a group; one that lists shards (MDS: `index.json`) in those of all of them. */
export function groupFiles(paths: readonly string[]): FileGroup[] {
  return groupMds(groupFolders(paths));
}

function groupFolders(paths: readonly string[]): FileGroup[] {
  const marked = new Set(paths.filter((path) => FOLDER_MARKS.includes(baseName(path))).map((path) => folderName(path)));
  if (marked.size === 0) return paths.map((path) => ({ path, beside: [] }));
  const groups = new Map<string, FileGroup>();
  for (const path of paths) {
    const folder = topmost(path, marked);
    const group = groups.get(folder ?? path) ?? { path: folder ?? path, beside: [] };
    groups.set(group.path, group);
    if (folder !== undefined) group.beside.push(path);
  }
  return [...groups.values()].sort((a, b) => Buffer.compare(Buffer.from(a.path), Buffer.from(b.path)));
}

/** The folder nearest to the root that holds metadata of Zarr; arrays and groups below it are parts of it. */
function topmost(path: string, marked: ReadonlySet<string>): string | undefined {
  for (let at = path.indexOf("/"); at >= 0; at = path.indexOf("/", at + 1)) {
    const folder = path.slice(0, at);
    if (marked.has(folder)) return folder;
  }
  return undefined;
}
