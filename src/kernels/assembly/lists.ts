// The values of one packed run, appended to a stored column. Each returns the new count of values, or -1 with the fault noted.
// Values beyond `max` are read and checked, but not stored. No load passes `end`: 16-byte steps need 16 bytes, the rest goes singly.
import { fault } from "./fault";
import { FAULT_MALFORMED, FAULT_NOT_PREFIX, FAULT_RANGE, TABLE_LEN, TABLE_SHUFFLE } from "./layout";
import { tables } from "./tables";
import { next, varint } from "./wire";

/** Four varints of at most 3 bytes each as u32 lanes. */
function fourVarints(x: v128, mask: u32): v128 {
  const y = i8x16.swizzle(x, v128.load(tables + TABLE_SHUFFLE + (mask << 4)));
  return v128.or(
    v128.or(v128.and(y, i32x4.splat(0x7f)), i32x4.shr_u(v128.and(y, i32x4.splat(0x7f00)), 1)),
    i32x4.shr_u(v128.and(y, i32x4.splat(0x7f0000)), 2),
  );
}

function bytesOfFour(mask: u32): usize {
  return load<u8>(tables + TABLE_LEN + mask);
}

export function appendI32(p: usize, end: usize, out: usize, count: u32, max: u32): i32 {
  while (p < end) {
    if (end - p >= 16) {
      const x = v128.load(p);
      const more = <u32>i8x16.bitmask(x);
      if (more == 0 && (count + 16 <= max || count >= max)) {
        if (count < max) {
          const to = out + (count << 2);
          const low = i16x8.extend_low_i8x16_u(x);
          const high = i16x8.extend_high_i8x16_u(x);
          v128.store(to, i32x4.extend_low_i16x8_u(low));
          v128.store(to, i32x4.extend_high_i16x8_u(low), 16);
          v128.store(to, i32x4.extend_low_i16x8_u(high), 32);
          v128.store(to, i32x4.extend_high_i16x8_u(high), 48);
        }
        count += 16;
        p += 16;
        continue;
      }
      const mask = more & 0xfff;
      const used = bytesOfFour(mask);
      if (used != 0 && (count + 4 <= max || count >= max)) {
        if (count < max) v128.store(out + (count << 2), fourVarints(x, mask));
        count += 4;
        p += used;
        continue;
      }
    }
    const value = <i64>varint(p, end);
    if (next == 0) return malformed(p);
    if (value != <i64>(<i32>value)) return outside(p, value);
    if (count < max) store<i32>(out + (count << 2), <i32>value);
    count++;
    p = next;
  }
  return count;
}

export function appendI64(p: usize, end: usize, out: usize, count: u32, max: u32): i32 {
  while (p < end) {
    if (end - p >= 16) {
      const x = v128.load(p);
      const mask = <u32>i8x16.bitmask(x) & 0xfff;
      const used = bytesOfFour(mask);
      if (used != 0 && (count + 4 <= max || count >= max)) {
        if (count < max) {
          const four = fourVarints(x, mask);
          const to = out + (count << 3);
          v128.store(to, i64x2.extend_low_i32x4_u(four));
          v128.store(to, i64x2.extend_high_i32x4_u(four), 16);
        }
        count += 4;
        p += used;
        continue;
      }
    }
    const value = varint(p, end);
    if (next == 0) return malformed(p);
    if (count < max) store<u64>(out + (count << 3), value);
    count++;
    p = next;
  }
  return count;
}

/** Ones at the head of the list so far; `prefixOpen` while no zero was seen. */
export let prefixOnes: u32 = 0;
export let prefixOpen: bool = true;

export function openPrefix(): void {
  prefixOnes = 0;
  prefixOpen = true;
}

export function appendPrefix(p: usize, end: usize, count: u32): i32 {
  while (p < end) {
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
      const used = bytesOfFour(more & 0xfff);
      if (used != 0) {
        count += 4;
        p += used;
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

function outside(p: usize, value: i64): i32 {
  fault(FAULT_RANGE, p, value, 0);
  return -1;
}

function notPrefix(p: usize, value: i64): i32 {
  fault(FAULT_NOT_PREFIX, p, value, 0);
  return -1;
}
