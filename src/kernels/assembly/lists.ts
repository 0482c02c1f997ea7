// The values of one packed run, appended to a stored column. Each returns the new count of values, or -1 with the fault noted.
// Values beyond `max` are read and checked, but not stored. No load passes `end`: 16-byte steps need 16 bytes, the rest goes singly.
// Integers to be stored as they are: integers.ts.
import { fault } from "./fault";
import { foursAt, FOURS_BYTES, FOURS_LONG } from "./fours";
import { FAULT_MALFORMED, FAULT_NOT_PREFIX } from "./layout";
import { tables } from "./tables";
import { next, varint } from "./wire";

/** Ones at the head of the list so far; `prefixOpen` while no zero was seen. */
export let prefixOnes: u32 = 0;
export let prefixOpen: bool = true;

export function openPrefix(): void {
  prefixOnes = 0;
  prefixOpen = true;
}

/** Are 64 bytes four times those of `x`? */
function allSame(p: usize, x: v128): bool {
  const a = v128.or(v128.xor(v128.load(p), x), v128.xor(v128.load(p, 16), x));
  const b = v128.or(v128.xor(v128.load(p, 32), x), v128.xor(v128.load(p, 48), x));
  return !v128.any_true(v128.or(a, b));
}

export function appendPrefix(p: usize, end: usize, count: u32): i32 {
  while (p < end) {
    if (end - p >= 64 && allSame(p, i8x16.splat(<i8>prefixOpen))) {
      if (prefixOpen) prefixOnes += 64;
      count += 64;
      p += 64;
      continue;
    }
    if (end - p >= 16) {
      const x = v128.load(p);
      if (!v128.any_true(v128.and(x, i8x16.splat(<i8>0xfe)))) {
        const ones = <u32>i8x16.bitmask(i8x16.eq(x, i8x16.splat(1)));
        const head = prefixOpen ? <u32>ctz(~ones) : 0;
        if (ones >>> head != 0) return notPrefix(p + head + ctz(ones >>> head), 1);
        prefixOnes += head;
        if (head < 16) prefixOpen = false;
        count += 16;
        p += 16;
        continue;
      }
    }
    const value = varint(p, end);
    if (next == 0) return malformed(p);
    if (value > 1 || (value == 1 && !prefixOpen)) return notPrefix(p, value);
    if (value == 1) prefixOnes++;
    else prefixOpen = false;
    count++;
    p = next;
  }
  return count;
}

/** Counts only; every varint ends where its last byte is below 0x80. */
export function countVarints(p: usize, end: usize, count: u32): i32 {
  while (p < end) {
    if (end - p >= 16) {
      const more = <u32>i8x16.bitmask(v128.load(p));
      if (more == 0) {
        count += 16;
        p += 16;
        continue;
      }
      const fours = foursAt(tables, more);
      if (fours < FOURS_LONG) {
        count += 4;
        p += fours & FOURS_BYTES;
        continue;
      }
    }
    varint(p, end);
    if (next == 0) return malformed(p);
    count++;
    p = next;
  }
  return count;
}

export function appendF32(p: usize, end: usize, out: usize, count: u32, max: u32): i32 {
  const bytes = end - p;
  if (bytes & 3) return malformed(p);
  if (count < max) memory.copy(out + (count << 2), p, min<usize>(bytes, (max - count) << 2));
  return count + <i32>(bytes >>> 2);
}

export function malformed(p: usize): i32 {
  fault(FAULT_MALFORMED, p, 0, 0);
  return -1;
}

function notPrefix(p: usize, value: i64): i32 {
  fault(FAULT_NOT_PREFIX, p, value, 0);
  return -1;
}
