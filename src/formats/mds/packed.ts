/**
 * Packed: MDS shards that were compressed as a whole, as MDSWriter's `compression` does. A gzip one is a stream with blocks of its
 * own; the others are decompressed at once.
 *
 * @example
 * const bytes = unpack("zstd", stored, file);
 */
import { brotliDecompressSync } from "node:zlib";
import { bzip2Decompress } from "../codecs/bzip2.ts";
import { snappyDecompress } from "../codecs/snappy.ts";
import { readyZstd, zstdDecompressTo } from "../codecs/zstd.ts";
import { StreamCorrupt } from "../errors.ts";

export type Packing = "gzip" | "zstd" | "br" | "snappy" | "bz2";

/** Stored bytes: a block's must fit the memory for reads. */
export const MAX_PACKED = 32 * 1024 * 1024;
/** Decompressed: MDSWriter's shards are 64 MiB if nothing else was asked for. */
const MAX_UNPACKED = 128 * 1024 * 1024;

const SUFFIXES: Readonly<Record<string, Packing>> = {
  ".gz": "gzip",
  ".zstd": "zstd",
  ".zst": "zstd",
  ".br": "br",
  ".snappy": "snappy",
  ".bz2": "bz2",
};

/** By name: Brotli and Snappy have no magic number, and one of gzip may be a number of samples. */
export function packingOf(head: Uint8Array, path: string): Packing | undefined {
  const suffix = /\.[a-z0-9]+$/.exec(path)?.[0] ?? "";
  const packing = SUFFIXES[suffix];
  if (packing !== undefined) return packing;
  const view = new DataView(head.buffer, head.byteOffset, head.length);
  if (head.length < 8 || view.getUint32(4, true) > 4 * view.getUint32(0, true)) return undefined;
  if (head[0] === 0x1f && head[1] === 0x8b) return "gzip";
  return view.getUint32(0, true) === 0xfd2fb528 ? "zstd" : undefined;
}

/** `stored`: may lie in shared memory. */
export function unpack(packing: Exclude<Packing, "gzip">, stored: Uint8Array, file: string): Uint8Array {
  try {
    switch (packing) {
      case "zstd":
        return zstdDecompressTo(stored, MAX_UNPACKED);
      case "br":
        return brotliDecompressSync(Buffer.from(stored), { maxOutputLength: MAX_UNPACKED });
      case "snappy":
        return snappyDecompress(stored, snappySize(stored));
      case "bz2":
        return bzip2Decompress(stored, MAX_UNPACKED);
    }
  } catch (error) {
    throw new StreamCorrupt(
      `the ${packing} shard cannot be decompressed: ${(error as Error).message} (at most ${MAX_UNPACKED} bytes)`,
      { file, byteOffset: 0 },
      "the file is damaged or was not copied to its end: copy it again",
      error,
    );
  }
}

export const ready = readyZstd;

function snappySize(bytes: Uint8Array): number {
  let size = 0;
  for (let i = 0; i < 5; i++) {
    const byte = bytes[i];
    if (byte === undefined) break;
    size += (byte & 127) * 128 ** i;
    if (byte < 128) break;
  }
  if (size > MAX_UNPACKED) throw new Error(`${size} bytes`);
  return size;
}
