// Zarr folders written by hand.
import { mkdirSync, mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gzipSync } from "node:zlib";

export interface ZarrArray {
  name: string;
  type: "<i4" | "<i8";
  /** Values a row; undefined: scalars. */
  width?: number;
  chunkRows: number;
  /** Level of gzip: 0 is as large as it is. Undefined: stored plain. */
  gzip?: number;
}

/** A Zarr folder of version 2 in a folder of its own; record n has id n, and n in every other value. */
export function writeZarr(rows: number, arrays: readonly ZarrArray[]): string {
  const folder = mkdtempSync(join(tmpdir(), "athanor-feed-zarr-"));
  const group = join(folder, "a.zarr");
  mkdirSync(group);
  writeFileSync(join(group, ".zgroup"), JSON.stringify({ zarr_format: 2 }));
  for (const { name, type, width, chunkRows, gzip } of arrays) {
    mkdirSync(join(group, name));
    const rest = width === undefined ? [] : [width];
    const meta = {
      zarr_format: 2,
      shape: [rows, ...rest],
      chunks: [chunkRows, ...rest],
      dtype: type,
      compressor: gzip === undefined ? null : { id: "gzip", level: gzip },
      fill_value: 0,
      order: "C",
      filters: null,
    };
    writeFileSync(join(group, name, ".zarray"), JSON.stringify(meta));
    for (let chunk = 0; chunk * chunkRows < rows; chunk++) {
      const count = chunkRows * (width ?? 1);
      const valueOf = (i: number): number => chunk * chunkRows + Math.floor(i / (width ?? 1));
      const values =
        type === "<i4"
          ? Int32Array.from({ length: count }, (_, i) => valueOf(i))
          : BigInt64Array.from({ length: count }, (_, i) => BigInt(valueOf(i)));
      const bytes = new Uint8Array(values.buffer);
      const file = join(group, name, rest.length === 0 ? `${chunk}` : `${chunk}.0`);
      writeFileSync(file, gzip === undefined ? bytes : gzipSync(bytes, { level: gzip }));
    }
  }
  return folder;
}
