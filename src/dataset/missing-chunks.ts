/**
 * Missing chunks: parts of arrays (Zarr) that no file holds. The specification says that they read as the fill value, and writers
 * leave out chunks of nothing else; but a file that was lost looks the same. So they are counted, and may be refused.
 *
 * @example
 * const missing = new MissingCount();
 * missing.add("a.zarr", table.meta);
 * missing.found; // { chunks: 2, path: "a.zarr", what: 'array "tokens", chunk tokens/c/3/0' }
 */
import { join } from "node:path";
import type { AthanorError } from "../base/errors.ts";
import { ChunkMissing } from "../formats/errors.ts";
import type { ShardMeta } from "../formats/types.ts";
import type { MissingChunks } from "./types.ts";

export class MissingCount {
  found: MissingChunks | undefined;

  add(path: string, meta: ShardMeta | undefined): void {
    const { missingChunks = 0, firstMissing = "" } = meta ?? {};
    if (missingChunks === 0) return;
    const { chunks, ...first } =
      this.found === undefined || path < this.found.path
        ? { chunks: this.found?.chunks ?? 0, path, what: firstMissing }
        : this.found;
    this.found = { chunks: chunks + missingChunks, ...first };
  }
}

/** For runs that take no fill value for data. */
export function refuseMissing(root: string, missing: MissingChunks | undefined): void {
  if (missing !== undefined) throw missingError(root, missing);
}

export function missingError(root: string, missing: MissingChunks): AthanorError {
  return new ChunkMissing(
    `${missing.what} is missing${missing.chunks > 1 ? `, and ${missing.chunks - 1} more of the set` : ""}`,
    { file: join(root, missing.path) },
    "put lost files back; leave out --strict-chunks if these chunks were never written",
  );
}
