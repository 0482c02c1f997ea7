/**
 * Gzip (all members), zlib and Brotli of blocks whose decompressed size is known, by node:zlib.
 *
 * node:zlib makes arrays of its own for its output, which the collector does not keep up with: a third of a decode thread's time
 * went to it. So its synchronous call is given our array by the fields that it keeps for old users (`_outBuffer`,
 * `_processChunk`; minizlib does so too); where a version of Node does not take it, the bytes are copied.
 *
 * Contract: gives exactly `size` bytes or throws an Error that says why; input and output may lie in shared memory.
 *
 * @example
 * const page = inflate(bytes, 1048576);
 * inflateInto(bytes, memory.subarray(at, at + 1048576 + INFLATE_SPARE), 1048576);
 */
import { brotliDecompressSync, constants, Unzip } from "node:zlib";

/** node:zlib reserves this much at once; a larger size than stands in the file is never believed beyond it. */
const CHUNK_BYTES = 16 * 1024 * 1024;

/** Room behind the output, without which zlib asks for another array. */
export const INFLATE_SPARE = 1;

/* oxlint-disable no-underscore-dangle -- what zlib's classes keep of old is named so. */
interface Inner {
  _outBuffer: Uint8Array;
  _chunkSize: number;
  _processChunk(bytes: Uint8Array, flush: number): Uint8Array;
}

export function inflate(bytes: Uint8Array, size: number): Uint8Array {
  return exact(inflateMost(bytes, size), size);
}

/** As many bytes as there are; more than `size` are an error. */
export function inflateMost(bytes: Uint8Array, size: number): Uint8Array {
  return unzip(bytes, new Uint8Array(Math.min(size, CHUNK_BYTES) + INFLATE_SPARE), size);
}

/** `target`: of `size` bytes and INFLATE_SPARE. */
export function inflateInto(bytes: Uint8Array, target: Uint8Array, size: number): void {
  const found = exact(unzip(bytes, target, size), size);
  if (found.buffer !== target.buffer || found.byteOffset !== target.byteOffset) target.set(found);
}

export function brotliDecompress(bytes: Uint8Array, size: number): Uint8Array {
  const limits = { chunkSize: Math.min(Math.max(64, size), CHUNK_BYTES), maxOutputLength: Math.max(1, size) };
  return exact(brotliDecompressSync(Buffer.from(bytes), limits), size);
}

function unzip(bytes: Uint8Array, target: Uint8Array, size: number): Uint8Array {
  const stream = new Unzip({ chunkSize: 64, maxOutputLength: Math.max(1, size) });
  const inner = stream as unknown as Inner;
  inner._outBuffer = Buffer.from(target.buffer, target.byteOffset, target.byteLength);
  inner._chunkSize = target.byteLength;
  return inner._processChunk(bytes, constants.Z_FINISH);
}

function exact(bytes: Uint8Array, size: number): Uint8Array {
  if (bytes.length !== size) throw new Error(`decompressed to ${bytes.length} bytes, expected ${size}`);
  return bytes;
}
