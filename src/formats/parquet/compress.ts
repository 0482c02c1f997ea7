/**
 * Compression of pages: codecs by their numbers in the format.
 *
 * @example
 * await readyCodecs();
 * const page = decompress(6, bytes, 1048576); // Zstandard
 */
import { brotliDecompress, inflate } from "../codecs/inflate.ts";
import { hadoopLz4Decompress, lz4Decompress, readyLz4 } from "../codecs/lz4.ts";
import { snappyDecompress } from "../codecs/snappy.ts";
import { readyZstd, zstdDecompress } from "../codecs/zstd.ts";

const NAMES = ["UNCOMPRESSED", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4", "ZSTD", "LZ4_RAW"] as const;

/** Number of a codec in the format; 15: one that came later. */
export type Codec = number;
const UNKNOWN = 15;

export function codecNumber(name: string | undefined): Codec {
  const found = NAMES.indexOf(name as (typeof NAMES)[number]);
  return found < 0 ? UNKNOWN : found;
}

/** Undefined: we do not read it. */
export function unreadCodec(codec: Codec): string | undefined {
  return codec === 3 ? "LZO" : codec < NAMES.length ? undefined : `codec ${codec}`;
}

export async function readyCodecs(): Promise<void> {
  await Promise.all([readyZstd(), readyLz4()]);
}

/** Exactly `size` bytes, in memory of our own unless stored plain; throws an Error that says why not. */
export function decompress(codec: Codec, bytes: Uint8Array, size: number): Uint8Array {
  switch (NAMES[codec]) {
    case "UNCOMPRESSED":
      if (bytes.length !== size) throw new Error(`${bytes.length} bytes stored plain, expected ${size}`);
      return bytes;
    case "SNAPPY":
      return snappyDecompress(bytes, size);
    case "GZIP":
      return inflate(bytes, size);
    case "BROTLI":
      return brotliDecompress(bytes, size);
    case "LZ4":
      return hadoopLz4Decompress(bytes, size);
    case "ZSTD":
      return zstdDecompress(bytes, size);
    case "LZ4_RAW":
      return lz4Decompress(bytes, size);
    default:
      throw new Error(`codec ${codec} is not supported`);
  }
}
