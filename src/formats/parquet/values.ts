/**
 * Values of a page, without levels, as typed arrays. 64-bit integers are narrowed to i32 where all of a page fit, which makes
 * everything behind them twice as fast; booleans are i32 0/1; byte arrays lie one behind the other.
 *
 * Contract: throws an Error that says what is wrong; what is given never aliases shared memory.
 *
 * @example
 * const values = readValues("PLAIN", leaf, bytes, at, count, dictionary);
 */
import { type ByteList, MAX_BYTES } from "./byte-list.ts";
import type { Encoding } from "hyparquet/src/types.js";
import { readDelta32, readDelta64 } from "../../kernels/delta.ts";
import { readHybrid } from "../../kernels/hybrid.ts";
import { workbench } from "../../kernels/workbench.ts";
import { bulkDelta32, bulkDelta64, bulkLookUp, bulkNarrow } from "./bulk.ts";
import { readDeltaLengths, readDeltaPrefixes } from "./delta.ts";
import type { Leaf } from "./schema.ts";

export type Dense = Int32Array | BigInt64Array | Float32Array | Float64Array | ByteList;

/** Values as they are stored, little-endian: they are copied once, into the column. */
interface Stored {
  stored: Uint8Array;
  type: "INT32" | "FLOAT" | "DOUBLE";
}

/** Text of a dictionary is repeated only when it is asked for: a page of 1 MiB can stand for terabytes. */
export type Values = Dense | Stored | { dictionary: ByteList; indices: Int32Array };

export function readValues(
  encoding: Encoding | undefined,
  leaf: Leaf,
  bytes: Uint8Array,
  at: number,
  count: number,
  dictionary: Dense | undefined,
): Values {
  const { type } = leaf;
  if (count === 0) return none(leaf);
  switch (encoding) {
    case "PLAIN":
      return stored(leaf, bytes, at, count) ?? readPlain(leaf, bytes, at, count);
    case "PLAIN_DICTIONARY":
    case "RLE_DICTIONARY":
      return lookUp(bytes, at, count, dictionary);
    case "RLE":
      if (type === "BOOLEAN") return readBooleans(bytes, at, count);
      break;
    case "DELTA_BINARY_PACKED":
      if (type === "INT32")
        return signed((bulkDelta32(bytes, at, count) ?? readDelta32(bytes, at, count)).values, leaf);
      if (type === "INT64") return (bulkDelta64(bytes, at, count) ?? readDelta64(bytes, at, count)).values;
      break;
    case "DELTA_LENGTH_BYTE_ARRAY":
      if (type === "BYTE_ARRAY") return readDeltaLengths(bytes, at, count).values;
      break;
    case "DELTA_BYTE_ARRAY":
      if (type === "BYTE_ARRAY" || type === "FIXED_LEN_BYTE_ARRAY") return readDeltaPrefixes(bytes, at, count);
      break;
    case "BYTE_STREAM_SPLIT":
      if (type !== "BYTE_ARRAY" && type !== "BOOLEAN" && type !== "INT96") {
        return readPlain(leaf, unsplit(bytes, at, count, widthOf(leaf)), 0, count);
      }
      break;
    default:
  }
  throw new Error(`encoding ${encoding ?? "unknown"} of ${type} is not supported`);
}

/** Bytes of a value of fixed width. */
function widthOf({ type, width }: Leaf): number {
  switch (type) {
    case "INT32":
    case "FLOAT":
      return 4;
    case "INT64":
    case "DOUBLE":
      return 8;
    case "INT96":
      return 12;
    default:
      return width;
  }
}

function none({ type }: Leaf): Dense {
  if (type === "FLOAT") return new Float32Array(0);
  if (type === "DOUBLE") return new Float64Array(0);
  if (type === "BOOLEAN" || type === "INT32" || type === "INT64") return new Int32Array(0);
  return { bytes: new Uint8Array(0), ends: new Uint32Array(0) };
}

function stored({ type, unsigned }: Leaf, bytes: Uint8Array, at: number, count: number): Stored | undefined {
  if ((type !== "INT32" || unsigned !== 0) && type !== "FLOAT" && type !== "DOUBLE") return undefined;
  const length = count * (type === "DOUBLE" ? 8 : 4);
  if (at + length > bytes.length) throw short(bytes.length - at, `${count} values of ${type}`);
  return { stored: bytes.subarray(at, at + length), type };
}

/** PLAIN, which dictionaries are stored in too. */
export function readPlain(leaf: Leaf, bytes: Uint8Array, at: number, count: number): Dense {
  const { type } = leaf;
  if (type === "BYTE_ARRAY") return readByteArrays(bytes, at, count);
  if (type === "BOOLEAN") {
    if (at + Math.ceil(count / 8) > bytes.length) throw short(bytes.length - at, `${count} booleans`);
    const out = new Int32Array(count);
    for (let i = 0; i < count; i++) out[i] = (bytes[at + (i >> 3)]! >> (i & 7)) & 1;
    return out;
  }
  const width = widthOf(leaf);
  const length = count * width;
  if (at + length > bytes.length) throw short(bytes.length - at, `${count} values of ${width} bytes`);
  if (type === "INT64") {
    const narrowed = bulkNarrow(bytes, at, count);
    if (narrowed !== undefined) return narrowed;
  }
  const buffer = new ArrayBuffer(length);
  const own = new Uint8Array(buffer);
  own.set(bytes.subarray(at, at + length));
  switch (type) {
    case "INT32":
      return signed(new Int32Array(buffer), leaf);
    case "INT64":
      return narrow(buffer);
    case "FLOAT":
      return new Float32Array(buffer);
    case "DOUBLE":
      return new Float64Array(buffer);
    default: {
      const ends = new Uint32Array(count);
      for (let i = 0; i < count; i++) ends[i] = (i + 1) * width;
      return { bytes: own, ends };
    }
  }
}

function short(found: number, expected: string): Error {
  return new Error(`the page has ${found} bytes for ${expected}`);
}

/** 64-bit integers as i32 where all fit. */
function narrow(buffer: ArrayBuffer): Int32Array | BigInt64Array {
  const words = new Int32Array(buffer);
  const count = words.length >> 1;
  const out = new Int32Array(count);
  for (let i = 0; i < count; i++) {
    const low = words[2 * i]!;
    if (words[2 * i + 1]! !== low >> 31) return new BigInt64Array(buffer);
    out[i] = low;
  }
  return out;
}

/** Unsigned 32-bit integers from 2^31 on are wide. */
function signed(values: Int32Array, { unsigned }: Leaf): Int32Array | BigInt64Array {
  if (unsigned !== 32 || values.every((value) => value >= 0)) return values;
  return BigInt64Array.from(values, (value) => BigInt(value >>> 0));
}

function readByteArrays(bytes: Uint8Array, at: number, count: number): ByteList {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const end = bytes.length;
  if (count > (end - at) / 4) throw short(end - at, `${count} byte arrays`);
  const out = new Uint8Array(end - at - 4 * count);
  const ends = new Uint32Array(count);
  let from = at;
  let to = 0;
  for (let i = 0; i < count; i++) {
    if (from + 4 > end) throw short(end - at, `${count} byte arrays`);
    const length = view.getUint32(from, true);
    from += 4;
    if (length > end - from || length > out.length - to) throw short(end - from, `a byte array of ${length}`);
    // A call costs as much as a loop over some 24 bytes.
    if (length > 24) out.set(bytes.subarray(from, from + length), to);
    else for (let j = 0; j < length; j++) out[to + j] = bytes[from + j]!;
    from += length;
    to += length;
    ends[i] = to;
  }
  return { bytes: out.subarray(0, to), ends };
}

function readBooleans(bytes: Uint8Array, at: number, count: number): Int32Array {
  if (at + 4 > bytes.length) throw short(bytes.length - at, `${count} booleans`);
  const length = new DataView(bytes.buffer, bytes.byteOffset, bytes.length).getUint32(at, true);
  const out = new Int32Array(count);
  readHybrid(bytes, at + 4, Math.min(bytes.length, at + 4 + length), 1, out);
  return out;
}

function lookUp(bytes: Uint8Array, at: number, count: number, dictionary: Dense | undefined): Values {
  if (dictionary === undefined) throw new Error("the page needs a dictionary, its column has none");
  if (at >= bytes.length) throw short(0, `${count} indices`);
  const width = bytes[at]!;
  if (dictionary instanceof Int32Array) {
    const found = bulkLookUp(bytes, at + 1, width, count, dictionary);
    if (found !== undefined) return found;
  }
  const indices = new Int32Array(count);
  const largest = width === 0 ? 0 : readHybrid(bytes, at + 1, bytes.length, width, indices);
  const size = "ends" in dictionary ? dictionary.ends.length : dictionary.length;
  // The bound is sharp only to its highest bit: where it does not decide, each index is looked at.
  if (largest >= size) checkIndices(indices, size);
  if ("ends" in dictionary) return { dictionary, indices };
  if (dictionary instanceof Int32Array) {
    // In place: the hot path of token ids.
    for (let i = 0; i < count; i++) indices[i] = dictionary[indices[i]!]!;
    return indices;
  }
  if (dictionary instanceof BigInt64Array) {
    const out = new BigInt64Array(count);
    for (let i = 0; i < count; i++) out[i] = dictionary[indices[i]!]!;
    return out;
  }
  const out = dictionary instanceof Float32Array ? new Float32Array(count) : new Float64Array(count);
  for (let i = 0; i < count; i++) out[i] = dictionary[indices[i]!]!;
  return out;
}

function checkIndices(indices: Int32Array, size: number): void {
  let largest = 0;
  for (let i = 0; i < indices.length; i++) {
    const index = indices[i]! >>> 0;
    largest = index > largest ? index : largest;
  }
  if (largest >= size) throw new Error(`index ${largest} into a dictionary of ${size} values`);
}

/** BYTE_STREAM_SPLIT: first all first bytes, then all second ones. */
function unsplit(bytes: Uint8Array, at: number, count: number, width: number): Uint8Array {
  if (at + count * width > bytes.length) throw short(bytes.length - at, `${count} values of ${width} bytes`);
  const out = new Uint8Array(count * width);
  for (let byte = 0; byte < width; byte++) {
    const from = at + byte * count;
    for (let i = 0, to = byte; i < count; i++, to += width) out[to] = bytes[from + i]!;
  }
  return out;
}

/** Bytes that values [from, to) of byte arrays take in a column. */
export function bytesOf(values: Values, from: number, to: number): number {
  if ("indices" in values) {
    const { dictionary, indices } = values;
    let sum = 0;
    for (let i = from; i < to; i++) {
      const index = indices[i]!;
      sum += dictionary.ends[index]! - (index === 0 ? 0 : dictionary.ends[index - 1]!);
    }
    return sum;
  }
  if (!("ends" in values)) return 0;
  return to === from ? 0 : values.ends[to - 1]! - (from === 0 ? 0 : values.ends[from - 1]!);
}

/** Some values of several pages, in order, as one array. */
export function join(leaf: Leaf, parts: readonly { values: Values; from: number; to: number }[]): Dense {
  const used = parts.filter(({ from, to }) => to > from);
  const [first] = used;
  if (first === undefined) return none(leaf);
  if ("indices" in first.values || "ends" in first.values) return joinBytes(used);
  if (used.length === 1 && !("stored" in first.values))
    return (first.values as Int32Array).subarray(first.from, first.to);
  const total = used.reduce((sum, { from, to }) => sum + to - from, 0);
  const whole = inOneRun(used, total);
  if (whole !== undefined) return whole;
  const out = emptyOf(leaf, used, total);
  let at = 0;
  for (const { values, from, to } of used) {
    if ("stored" in values) {
      const width = out.BYTES_PER_ELEMENT;
      const bytes = new Uint8Array(out.buffer, out.byteOffset, out.byteLength);
      bytes.set(values.stored.subarray(from * width, to * width), at * width);
    } else if (out instanceof BigInt64Array && values instanceof Int32Array) {
      for (let i = from; i < to; i++) out[at + i - from] = BigInt(values[i]!);
    } else {
      (out as Int32Array).set((values as Int32Array).subarray(from, to), at);
    }
    at += to - from;
  }
  return out;
}

/** Pages that kernels decoded one behind the other need not be joined. */
function inOneRun(
  parts: readonly { values: Values; from: number; to: number }[],
  total: number,
): Int32Array | undefined {
  const first = parts[0]!.values;
  if (!(first instanceof Int32Array)) return undefined;
  const begin = first.byteOffset + parts[0]!.from * 4;
  let end = begin;
  for (const { values, from, to } of parts) {
    if (!(values instanceof Int32Array) || values.buffer !== first.buffer) return undefined;
    if (values.byteOffset + from * 4 !== end) return undefined;
    end += (to - from) * 4;
  }
  return new Int32Array(first.buffer, begin, total);
}

function emptyOf(
  { type }: Leaf,
  parts: readonly { values: Values }[],
  count: number,
): Int32Array | BigInt64Array | Float32Array | Float64Array {
  if (type === "FLOAT") return new Float32Array(count);
  if (type === "DOUBLE") return new Float64Array(count);
  return parts.some(({ values }) => values instanceof BigInt64Array)
    ? new BigInt64Array(count)
    : (workbench().spareInts(count) ?? new Int32Array(count));
}

function joinBytes(parts: readonly { values: Values; from: number; to: number }[]): ByteList {
  const total = parts.reduce((sum, { values, from, to }) => sum + bytesOf(values, from, to), 0);
  if (total > MAX_BYTES) throw new Error(`text of ${total} bytes in one block`);
  const out = new Uint8Array(total);
  const ends = new Uint32Array(parts.reduce((sum, { from, to }) => sum + to - from, 0));
  let at = 0;
  let done = 0;
  for (const { values, from, to } of parts) {
    if ("indices" in values) {
      const { bytes, ends: dictionaryEnds } = values.dictionary;
      for (let i = from; i < to; i++) {
        const index = values.indices[i]!;
        const begin = index === 0 ? 0 : dictionaryEnds[index - 1]!;
        const end = dictionaryEnds[index]!;
        if (end - begin > 24) out.set(bytes.subarray(begin, end), at);
        else for (let j = begin; j < end; j++) out[at + j - begin] = bytes[j]!;
        at += end - begin;
        ends[done++] = at;
      }
      continue;
    }
    const list = values as ByteList;
    const begin = from === 0 ? 0 : list.ends[from - 1]!;
    out.set(list.bytes.subarray(begin, list.ends[to - 1]), at);
    for (let i = from; i < to; i++) ends[done++] = at + list.ends[i]! - begin;
    at += list.ends[to - 1]! - begin;
  }
  return { bytes: out, ends };
}
