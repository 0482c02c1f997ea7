/**
 * Delta: the two encodings of byte arrays whose lengths are delta-packed integers.
 *
 * @example
 * const { values } = readDeltaLengths(bytes, 0, count);
 */
import { type Delta, readDelta32 } from "../../kernels/delta.ts";
import { bulkDelta32 } from "./bulk.ts";
import { type ByteList, MAX_BYTES } from "./byte-list.ts";

/** DELTA_LENGTH_BYTE_ARRAY: all lengths, then all bytes. */
export function readDeltaLengths(bytes: Uint8Array, at: number, count: number): Delta<ByteList> {
  const { values: lengths, next } = bulkDelta32(bytes, at, count) ?? readDelta32(bytes, at, count);
  const ends = new Uint32Array(count);
  let end = 0;
  for (let i = 0; i < count; i++) {
    const length = lengths[i]!;
    if (length < 0) throw new Error(`a value of ${length} bytes`);
    end += length;
    if (end > bytes.length) throw new Error("byte arrays reach behind the end of the page");
    ends[i] = end;
  }
  if (next + end > bytes.length) throw new Error("byte arrays reach behind the end of the page");
  return { values: { bytes: bytes.slice(next, next + end), ends }, next: next + end };
}

/** DELTA_BYTE_ARRAY: how much of the value before is kept, and the rest. */
export function readDeltaPrefixes(bytes: Uint8Array, at: number, count: number): ByteList {
  const { values: prefixes, next } = readDelta32(bytes, at, count);
  const { values: rest } = readDeltaLengths(bytes, next, count);
  const ends = new Uint32Array(count);
  let total = rest.bytes.length;
  for (const prefix of prefixes) total += Math.max(0, prefix);
  if (total > MAX_BYTES) throw new Error(`values of ${total} bytes in one page`);
  const out = new Uint8Array(total);
  let end = 0;
  let last = 0;
  for (let i = 0; i < count; i++) {
    const prefix = prefixes[i]!;
    const from = i === 0 ? 0 : rest.ends[i - 1]!;
    const begin = end;
    if (prefix < 0 || prefix > begin - last)
      throw new Error(`a value that shares ${prefix} bytes with ${begin - last}`);
    out.copyWithin(begin, last, last + prefix);
    out.set(rest.bytes.subarray(from, rest.ends[i]), begin + prefix);
    end = begin + prefix + rest.ends[i]! - from;
    ends[i] = end;
    last = begin;
  }
  return { bytes: out.subarray(0, end), ends };
}
