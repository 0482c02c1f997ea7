/**
 * The twin's kernels of column formats: the plain functions of `hybrid.ts`, `delta.ts` and `digits.ts`, over addresses.
 *
 * @example
 * unpackHybrid(memory, ptr, length, 17, out, 512, words, 102400); // true: i32[512] at `out`
 */
import { DELTA_INT32, DELTA_NARROW } from "./assembly/layout.ts";
import { readDelta32, readDelta64 } from "./delta.ts";
import { type Digits, readDigits } from "./digits.ts";
import { readHybrid } from "./hybrid.ts";
import { unshuffleBytes } from "./shuffle.ts";

type Memory = WebAssembly.Memory;

function bytesAt({ buffer }: Memory, ptr: number, length: number): Uint8Array {
  return new Uint8Array(buffer, ptr, length);
}

export function unpackHybrid(
  memory: Memory,
  ptr: number,
  length: number,
  width: number,
  out: number,
  count: number,
  words: number,
  size: number,
): boolean {
  const values = new Int32Array(memory.buffer, out, count);
  try {
    readHybrid(bytesAt(memory, ptr, length), 0, length, width, values);
  } catch {
    return false;
  }
  if (words === 0) return true;
  const dictionary = new Int32Array(memory.buffer, words, size);
  if (values.some((index) => index >>> 0 >= size)) return false;
  for (let i = 0; i < count; i++) values[i] = dictionary[values[i]!]!;
  return true;
}

export function unpackDelta(
  memory: Memory,
  ptr: number,
  length: number,
  out: number,
  count: number,
  form: number,
): number {
  const bytes = bytesAt(memory, ptr, length);
  try {
    const { values, next } = form === DELTA_INT32 ? readDelta32(bytes, 0, count) : readDelta64(bytes, 0, count);
    if (form === DELTA_INT32 || form === DELTA_NARROW) {
      // They are wide already where a difference is.
      const narrow =
        values instanceof Int32Array ? values : Int32Array.from(values, (value) => Number(BigInt.asIntN(32, value)));
      if (values instanceof BigInt64Array && values.some((value, i) => value !== BigInt(narrow[i]!))) return -1;
      new Int32Array(memory.buffer, out, count).set(narrow);
    } else {
      const wide = values instanceof Int32Array ? BigInt64Array.from(values, BigInt) : values;
      bytesAt(memory, out, count * 8).set(new Uint8Array(wide.buffer, wide.byteOffset, count * 8));
    }
    return next;
  } catch {
    return -1;
  }
}

export function narrowInts(memory: Memory, ptr: number, count: number, out: number): boolean {
  // Input lies at any address.
  const words = new Int32Array(bytesAt(memory, ptr, count * 8).slice().buffer);
  const values = new Int32Array(memory.buffer, out, count);
  for (let i = 0; i < count; i++) {
    const low = words[2 * i]!;
    if (words[2 * i + 1]! !== low >> 31) return false;
    values[i] = low;
  }
  return true;
}

export function unshuffle(memory: Memory, ptr: number, length: number, size: number, out: number): void {
  unshuffleBytes(bytesAt(memory, ptr, length), bytesAt(memory, out, length), size);
}

export function digits(memory: Memory, ptr: number, length: number, out: number, max: number): Digits {
  return readDigits(bytesAt(memory, ptr, length), 0, length, new Int32Array(memory.buffer, out, max));
}
