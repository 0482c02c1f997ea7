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
  const present = new Set(paths);
  const groups = new Map<string, FileGroup>();
  for (const path of paths) {
    const owner = topmost(path, marked) ?? pairOf(path, present) ?? path;
    const group = groups.get(owner) ?? { path: owner, beside: [] };
    groups.set(owner, group);
    if (owner !== path) group.beside.push(path);
  }
  return [...groups.values()].sort((a, b) => Buffer.compare(Buffer.from(a.path), Buffer.from(b.path)));
}

/** The `.bin` that an `.idx` belongs to. */
function pairOf(path: string, present: ReadonlySet<string>): string | undefined {
  const partner = path.endsWith(".idx") ? partnerOf(path) : undefined;
  return partner !== undefined && present.has(partner) ? partner : undefined;
}

/** The folder nearest to the root that holds metadata of Zarr; arrays and groups below it are parts of it. */
function topmost(path: string, marked: ReadonlySet<string>): string | undefined {
  for (let at = path.indexOf("/"); at >= 0; at = path.indexOf("/", at + 1)) {
    const folder = path.slice(0, at);
    if (marked.has(folder)) return folder;
  }
  return undefined;
}

/** The other file of a Megatron pair; undefined for a name that is of none. */
export function partnerOf(path: string): string | undefined {
  const other = { ".bin": ".idx", ".idx": ".bin" }[path.slice(-4)];
  return other === undefined ? undefined : path.slice(0, -4) + other;
}
