/**
 * Files of a shard beside the first, and what tells two contents of one apart: size and mtime, on object stores the ETag too.
 *
 * @example
 * const file = shardFile("a.zarr/0.0", await storage.stat("/d/a.zarr/0.0"));
 * await storage.open("/d/a.zarr/0.0", versionOf(file)); // ATH_SHARD_CHANGED if it is another one by now
 */
import type { ShardFile } from "../formats/types.ts";
import type { ObjectVersion } from "../storage/types.ts";

export function shardFile(path: string, { size, mtimeNs, etag }: ObjectVersion): ShardFile {
  return { path, size, mtimeNs: String(mtimeNs), ...(etag !== undefined && { etag }) };
}

export function versionOf({ size, mtimeNs, etag }: ShardFile): ObjectVersion {
  return { size, mtimeNs: BigInt(mtimeNs), ...(etag !== undefined && { etag }) };
}

export function isSameFile(a: ShardFile, b: ShardFile): boolean {
  return a.path === b.path && a.size === b.size && a.mtimeNs === b.mtimeNs && a.etag === b.etag;
}
