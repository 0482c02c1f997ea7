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

/** Decodes one frame of at most `capacity` bytes. */
type FrameDecoder = (frame: Buffer, capacity: number) => Uint8Array;

const MAGIC = 0xfd2fb528;
/** RFC 8878 §3.1.1.2.4: no block decodes to more. */
const MAX_BLOCK_BYTES = 128 * 1024;
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
  return out.subarray(0, done);
}

export function zstdDecompress(bytes: Uint8Array, size: number): Uint8Array {
  // A copy: native decoders take no shared memory.
  const input = Buffer.from(bytes);
  let whole: Uint8Array | undefined;
  let at = 0;
  let done = 0;
  while (at < input.length) {
    const { end } = frameAt(input, at);
    if (input.readUInt32LE(at) !== MAGIC) {
      at = end;
      continue;
    }
    const frame = input.subarray(at, end);
    const told = contentSize(frame);
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
  const input = Buffer.from(bytes);
  const parts: Uint8Array[] = [];
  let done = 0;
  for (let at = 0; at < input.length;) {
    const { end, most } = frameAt(input, at);
    if (input.readUInt32LE(at) === MAGIC) {
      const frame = input.subarray(at, end);
      const told = contentSize(frame) ?? Math.min(most, limit - done);
      if (told > limit - done) throw new Error(`a frame of ${told} bytes, expected ${limit - done} at most`);
      const part = decode(frame, told);
      if (part.length > limit - done) throw new Error(`more than the ${limit} bytes expected`);
      done += part.length;
      parts.push(part);
    }
    at = end;
  }
  return parts.length === 1 ? parts[0]! : Buffer.concat(parts);
}

function exact(bytes: Uint8Array, size: number): Uint8Array {
  if (bytes.length !== size) throw new Error(`decompressed to ${bytes.length} bytes, expected ${size}`);
  return bytes;
}

/** Bytes that the header of a frame says it decodes to (RFC 8878 §3.1.1.1). */
function contentSize(frame: Buffer): number | undefined {
  const descriptor = frame[4]!;
  const single = (descriptor & 0x20) !== 0;
  const at = 5 + (single ? 0 : 1) + [0, 1, 2, 4][descriptor & 3]!;
  switch (descriptor >> 6) {
    case 0:
      return single ? frame[at] : undefined;
    case 1:
      return frame.readUInt16LE(at) + 256;
    case 2:
      return frame.readUInt32LE(at);
    default:
      return Number(frame.readBigUInt64LE(at));
  }
}

/** Where the frame at `at` ends and what it decodes to at most, by the headers of its blocks. */
function frameAt(bytes: Buffer, at: number): { end: number; most: number } {
  const short = (): never => {
    throw new Error("the Zstandard frame is cut");
  };
  if (at + 8 > bytes.length) short();
  const magic = bytes.readUInt32LE(at);
  if (magic >>> 4 === 0x184d2a5) {
    const end = at + 8 + bytes.readUInt32LE(at + 4);
    return end > bytes.length ? short() : { end, most: 0 };
  }
  if (magic !== MAGIC) throw new Error("no Zstandard frame");
  const descriptor = bytes[at + 4]!;
  const single = (descriptor & 0x20) !== 0;
  const sizeBytes = descriptor >> 6 === 0 ? (single ? 1 : 0) : 1 << (descriptor >> 6);
  let next = at + 5 + (single ? 0 : 1) + [0, 1, 2, 4][descriptor & 3]! + sizeBytes;
  let most = 0;
  for (;;) {
    if (next + 3 > bytes.length) short();
    const header = bytes.readUIntLE(next, 3);
    const type = (header >> 1) & 3;
    if (type === 3) throw new Error("a Zstandard block of the reserved type");
    next += 3 + (type === 1 ? 1 : header >> 3);
    most += type === 2 ? MAX_BLOCK_BYTES : header >> 3;
    if ((header & 1) === 1) break;
  }
  next += (descriptor & 4) === 0 ? 0 : 4;
  return next > bytes.length ? short() : { end: next, most };
}
