/**
 * Zstandard of blocks whose decompressed size is known: Parquet pages, array chunks.
 *
 * Contract: gives exactly `size` bytes or throws an Error that says why; input may lie in shared memory. All frames are
 * decoded, skippable ones passed over. `readyZstd` first: it takes node:zlib (Node >= 22.15), else the native
 * @toondepauw/node-zstd where that is installed, else fzstd in JavaScript (a quarter to a third of their speed).
 * Node's own decoder silently stops behind the first frame (seen in 24.21), so frames are split here.
 *
 * @example
 * await readyZstd();
 * const page = zstdDecompress(bytes, 1048576);
 */
import * as zlib from "node:zlib";
import { Decompress } from "fzstd";
import { frameAt, headerAt, ZSTD_MAGIC } from "./zstd-frame.ts";
import { Xxh64 } from "./xxh64.ts";

/** Decodes one frame of at most `capacity` bytes. */
type FrameDecoder = (frame: Buffer, capacity: number) => Uint8Array;

/** So much more than was asked for is decoded before it is refused. */
const SPARE_BYTES = 16 * 1024 * 1024;

let decode: FrameDecoder = inJavaScript;
let ready: Promise<void> | undefined;

/** Finds the fastest decoder; once a thread. */
export function readyZstd(): Promise<void> {
  ready ??= choose();
  return ready;
}

/** The decoders by themselves, for tests. */
export const zstdDecoders = { inJavaScript, native };

async function choose(): Promise<void> {
  const inNode = (zlib as { zstdDecompressSync?: (bytes: Uint8Array, options: object) => Buffer }).zstdDecompressSync;
  if (inNode !== undefined) {
    decode = (frame, capacity) => inNode(frame, { maxOutputLength: Math.max(1, capacity) });
    return;
  }
  decode = (await native()) ?? inJavaScript;
}

async function native(): Promise<FrameDecoder | undefined> {
  try {
    const { Decoder } = await import("@toondepauw/node-zstd");
    const decoder = new Decoder();
    // It has no bound of its own: a frame whose blocks could make much more than is asked for goes to the slower one.
    return (frame, capacity) =>
      frameAt(frame, 0).most > capacity + SPARE_BYTES ? inJavaScript(frame, capacity) : decoder.decodeSync(frame);
  } catch {
    // An optional dependency: not built for this platform.
    return undefined;
  }
}

function inJavaScript(frame: Buffer, capacity: number): Uint8Array {
  const out = new Uint8Array(capacity);
  let done = 0;
  const stream = new Decompress((chunk) => {
    if (chunk.length > capacity - done) throw new Error(`more than the ${capacity} bytes expected`);
    out.set(chunk, done);
    done += chunk.length;
  });
  stream.push(frame, true);
  const whole = out.subarray(0, done);
  // fzstd passes over it.
  if (headerAt(frame, 0)?.checksum === true) {
    const hash = new Xxh64();
    hash.update(whole);
    if (hash.low32() !== frame.readUInt32LE(frame.length - 4)) throw new Error("the content checksum does not fit");
  }
  return whole;
}

export function zstdDecompress(bytes: Uint8Array, size: number): Uint8Array {
  const input = ownCopy(bytes);
  let whole: Uint8Array | undefined;
  let at = 0;
  let done = 0;
  while (at < input.length) {
    const { end } = frameAt(input, at);
    if (input.readUInt32LE(at) !== ZSTD_MAGIC) {
      at = end;
      continue;
    }
    const frame = input.subarray(at, end);
    const told = headerAt(frame, 0)?.content;
    if (told !== undefined && told > size - done) throw new Error(`a frame of ${told} bytes, expected ${size - done}`);
    const part = decode(frame, size - done);
    at = end;
    if (at === input.length && whole === undefined) return exact(part, size);
    whole ??= new Uint8Array(size);
    if (part.length > size - done) throw new Error(`more than the ${size} bytes expected`);
    whole.set(part, done);
    done += part.length;
  }
  return exact((whole ?? new Uint8Array(0)).subarray(0, done), size);
}

/** Where the size is not known (strings in array chunks): all that the frames hold, `limit` bytes at most. */
export function zstdDecompressTo(bytes: Uint8Array, limit: number): Uint8Array {
  const input = ownCopy(bytes);
  const parts: Uint8Array[] = [];
  let done = 0;
  for (let at = 0; at < input.length;) {
    const { end, most } = frameAt(input, at);
    if (input.readUInt32LE(at) === ZSTD_MAGIC) {
      const part = decodeFrame(input.subarray(at, end), most, limit - done);
      done += part.length;
      parts.push(part);
    }
    at = end;
  }
  return parts.length === 1 ? parts[0]! : Buffer.concat(parts);
}

/** One whole frame, which can decode to `most` bytes by its blocks, and is to decode to `limit` at most. */
export function decodeFrame(frame: Buffer, most: number, limit: number): Uint8Array {
  const told = headerAt(frame, 0)?.content;
  const capacity = told ?? Math.min(most, limit);
  if (capacity > limit) throw new Error(`a frame of ${capacity} bytes, expected ${limit} at most`);
  const part = decode(frame, capacity);
  if (part.length > limit) throw new Error(`more than the ${limit} bytes expected`);
  if (told !== undefined && part.length !== told) throw new Error(`decoded to ${part.length} bytes of ${told}`);
  return part;
}

/** The last input: none is kept behind a call. */
let scratch: Buffer = Buffer.alloc(0);
const MAX_SCRATCH = 8 * 1024 * 1024;

/** A copy, valid until the next call: native decoders take no shared memory. */
export function ownCopy(bytes: Uint8Array): Buffer {
  const room = bytes.length + 8;
  if (room > MAX_SCRATCH) return Buffer.from(bytes);
  if (scratch.length < room) scratch = Buffer.allocUnsafeSlow(Math.max(room, 2 * scratch.length));
  // Out of shared memory V8 copies byte by byte unless both lie alike in words of 8.
  const at = bytes.byteOffset & 7;
  scratch.set(bytes, at);
  return scratch.subarray(at, at + bytes.length);
}

function exact(bytes: Uint8Array, size: number): Uint8Array {
  if (bytes.length !== size) throw new Error(`decompressed to ${bytes.length} bytes, expected ${size}`);
  return bytes;
}
