/**
 * Blosc 1 buffers, as Zarr and HDF5 store them.
 *
 *   │ u8 version │ u8 of codec │ u8 flags │ u8 element bytes │ u32 bytes │ u32 block bytes │ u32 compressed bytes │
 *   │ u32 start of each block │ blocks: streams of (u32 bytes │ data) │
 *
 * numcodecs 0.3.2 has it as WebAssembly: it does not compare the sizes in the header with the bytes that it is given, keeps a
 * trap's memory, adds 0.6 MB to the agent, and its LZ4 and Zstandard are several times slower than the native ones used here.
 *
 * Contract: gives what the header says, at most `limit` bytes, or throws an Error that says why; input may lie in shared memory.
 *
 * @example
 * await readyBlosc();
 * const chunk = bloscDecompress(bytes, 4 << 20);
 */
import { inflate } from "./inflate.ts";
import { lz4Decompress, readyLz4 } from "./lz4.ts";
import { snappyDecompress } from "./snappy.ts";
import { unshuffleBytes } from "../../kernels/shuffle.ts";
import { readyZstd, zstdDecompress } from "./zstd.ts";

const HEADER = 16;
const SHUFFLED = 1;
const COPIED = 2;
const BIT_SHUFFLED = 4;
const NOT_SPLIT = 16;
/** Of c-blosc: blocks of small elements are split into a stream for each byte of them. */
const MOST_SPLITS = 16;
const LEAST_SPLIT = 128;

export async function readyBlosc(): Promise<void> {
  await Promise.all([readyZstd(), readyLz4()]);
}

export function bloscDecompress(input: Uint8Array, limit: number): Uint8Array {
  if (input.length < HEADER) throw new Error(`a Blosc buffer of ${input.length} bytes has no header`);
  const view = new DataView(input.buffer, input.byteOffset, input.length);
  const [version, flags, typeBytes] = [input[0]!, input[2]!, Math.max(1, input[3]!)];
  const [size, blockBytes, stored] = [view.getUint32(4, true), view.getUint32(8, true), view.getUint32(12, true)];
  if (version !== 1 && version !== 2) throw new Error(`Blosc buffers of version ${version} are not known`);
  if (stored !== input.length) throw new Error(`the Blosc buffer has ${input.length} bytes, its header says ${stored}`);
  if (size > limit) throw new Error(`a Blosc buffer of ${size} bytes, expected ${limit} at most`);
  if ((flags & COPIED) !== 0) {
    if (stored !== HEADER + size) throw new Error(`a stored Blosc buffer of ${stored} bytes cannot hold ${size}`);
    return input.slice(HEADER);
  }
  if (size === 0) return new Uint8Array(0);
  if (blockBytes === 0) throw new Error("a Blosc buffer with blocks of 0 bytes");
  const blocks = Math.ceil(size / blockBytes);
  if (HEADER + blocks * 4 > stored) throw new Error("the Blosc buffer is cut in its block table");
  const out = new Uint8Array(size);
  const codec = codecOf(flags >> 5);
  for (let block = 0; block < blocks; block++) {
    const from = block * blockBytes;
    const length = Math.min(blockBytes, size - from);
    const split = (flags & NOT_SPLIT) === 0 && typeBytes <= MOST_SPLITS && blockBytes / typeBytes >= LEAST_SPLIT;
    // The last block, if shorter, is never split.
    const streams = split && length === blockBytes ? typeBytes : 1;
    const data = blockOf(input, view, view.getUint32(HEADER + block * 4, true), length, streams, codec);
    const target = out.subarray(from, from + length);
    if ((flags & BIT_SHUFFLED) !== 0 && length >= typeBytes) unshuffleBits(data, target, typeBytes);
    else if ((flags & SHUFFLED) !== 0 && typeBytes > 1) unshuffleBytes(data, target, typeBytes);
    else target.set(data);
  }
  return out;
}

type Codec = (input: Uint8Array, size: number) => Uint8Array;

function codecOf(number: number): Codec {
  const found = [blosclz, lz4Decompress, snappy, inflate, zstdDecompress][number];
  if (found === undefined) throw new Error(`Blosc's codec ${number} is not known`);
  return found;
}

function snappy(input: Uint8Array, size: number): Uint8Array {
  return snappyDecompress(input, size);
}

function blockOf(
  input: Uint8Array,
  view: DataView,
  start: number,
  length: number,
  streams: number,
  codec: Codec,
): Uint8Array {
  const each = length / streams;
  if (!Number.isInteger(each)) throw new Error(`a Blosc block of ${length} bytes in ${streams} streams`);
  const out = streams === 1 ? undefined : new Uint8Array(length);
  let at = start;
  for (let stream = 0; ; stream++) {
    const bytes = at + 4 <= input.length ? view.getUint32(at, true) : Number.POSITIVE_INFINITY;
    at += 4;
    if (at + bytes > input.length) throw new Error(`the Blosc buffer is cut at byte ${Math.min(at, input.length)}`);
    const piece = input.subarray(at, at + bytes);
    const data = bytes === each ? piece : codec(piece, each);
    if (out === undefined) return data;
    out.set(data, stream * each);
    if (stream === streams - 1) return out;
    at += bytes;
  }
}

/** Row b·8 + k holds bit k of byte b of all elements, eight to a byte. */
function unshuffleBits(data: Uint8Array, out: Uint8Array, typeBytes: number): void {
  const count = Math.floor(data.length / typeBytes);
  if (count % 8 !== 0) {
    out.set(data);
    return;
  }
  const row = count / 8;
  for (let byte = 0; byte < typeBytes; byte++) {
    for (let group = 0; group < row; group++) {
      let from = byte * 8 * row + group;
      // Transposes 8 × 8 bits (Hacker's Delight 7–3), rows 7 to 4 in `high`.
      let low = data[from]!;
      low |= data[(from += row)]! << 8;
      low |= data[(from += row)]! << 16;
      low |= data[(from += row)]! << 24;
      let high = data[(from += row)]!;
      high |= data[(from += row)]! << 8;
      high |= data[(from += row)]! << 16;
      high |= data[(from += row)]! << 24;
      let swap = (low ^ (low >>> 7)) & 0x00aa00aa;
      low ^= swap ^ (swap << 7);
      swap = (high ^ (high >>> 7)) & 0x00aa00aa;
      high ^= swap ^ (swap << 7);
      swap = (low ^ (low >>> 14)) & 0x0000cccc;
      low ^= swap ^ (swap << 14);
      swap = (high ^ (high >>> 14)) & 0x0000cccc;
      high ^= swap ^ (swap << 14);
      swap = (low & 0xf0f0f0f0) >>> 4;
      const bottom = (low & 0x0f0f0f0f) | ((high & 0x0f0f0f0f) << 4);
      const top = swap | (high & 0xf0f0f0f0);
      let at = group * 8 * typeBytes + byte;
      for (let i = 0; i < 32; i += 8, at += typeBytes) out[at] = bottom >>> i;
      for (let i = 0; i < 32; i += 8, at += typeBytes) out[at] = top >>> i;
    }
  }
  const whole = count * typeBytes;
  out.set(data.subarray(whole), whole);
}

/** Copies from further back than this take two more bytes. */
const NEAR = 8191;

/** BloscLZ, a kin of FastLZ: literal runs, and copies of three and more bytes. */
function blosclz(input: Uint8Array, size: number): Uint8Array {
  const out = new Uint8Array(size);
  const next = (): number => {
    if (pos >= input.length) throw new Error("a BloscLZ stream is cut");
    return input[pos++]!;
  };
  let pos = 0;
  let at = 0;
  // The first byte is always of literals.
  let control = input.length > 0 ? next() & 31 : -1;
  while (control >= 0) {
    if (control < 32) {
      const length = control + 1;
      if (at + length > size || pos + length > input.length) throw new Error("a BloscLZ run ends behind its block");
      out.set(input.subarray(pos, pos + length), at);
      pos += length;
      at += length;
    } else {
      let length = (control >> 5) + 2;
      let distance = (control & 31) << 8;
      if (control >> 5 === 7) for (let more = 255; more === 255; length += more) more = next();
      const code = next();
      distance += code;
      if (code === 255 && distance === NEAR) distance = next() * 256 + next() + NEAR;
      const from = at - distance - 1;
      if (from < 0 || at + length > size) throw new Error("a BloscLZ copy lies outside its block");
      for (let i = 0; i < length; i++) out[at + i] = out[from + i]!;
      at += length;
    }
    control = pos < input.length ? next() : -1;
  }
  if (at !== size) throw new Error(`a BloscLZ stream gives ${at} bytes, expected ${size}`);
  return out;
}
