/**
 * Gzip (all members), zlib and Brotli of blocks whose decompressed size is known, by node:zlib.
 *
 * Contract: gives exactly `size` bytes or throws an Error that says why; input may lie in shared memory.
 *
 * @example
 * const page = inflate(bytes, 1048576);
 */
import { brotliDecompressSync, unzipSync } from "node:zlib";

/** node:zlib reserves this much at once; a larger size than stands in the file is never believed beyond it. */
const CHUNK_BYTES = 16 * 1024 * 1024;

export function inflate(bytes: Uint8Array, size: number): Uint8Array {
  return exact(unzipSync(Buffer.from(bytes), limits(size)), size);
}

export function brotliDecompress(bytes: Uint8Array, size: number): Uint8Array {
  return exact(brotliDecompressSync(Buffer.from(bytes), limits(size)), size);
}

function limits(size: number): { chunkSize: number; maxOutputLength: number } {
  return { chunkSize: Math.min(Math.max(64, size), CHUNK_BYTES), maxOutputLength: Math.max(1, size) };
}

function exact(bytes: Uint8Array, size: number): Uint8Array {
  if (bytes.length !== size) throw new Error(`decompressed to ${bytes.length} bytes, expected ${size}`);
  return bytes;
}
