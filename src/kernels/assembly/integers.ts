// The integers of one packed run, appended to a stored column of T (i32 or i64); rules as in lists.ts.
import { fault } from "./fault";
import { foursAt, FOURS_BYTES, FOURS_LONG, foursOf } from "./fours";
import { FAULT_RANGE, TABLE_SEPTETS } from "./layout";
import { malformed } from "./lists";
import { tables } from "./tables";
import { next, varint } from "./wire";

/** Bytes of a list from which on quarters of it are read side by side. */
const QUARTERS_FROM: usize = 128;

function put<T>(to: usize, four: v128): void {
  if (sizeof<T>() == 4) v128.store(to, four);
  else {
    v128.store(to, i64x2.extend_low_i32x4_u(four));
    v128.store(to, i64x2.extend_high_i32x4_u(four), 16);
  }
}

/** The first byte of a varint at `p` or behind; 0: none within the next 3 bytes. */
function firstFrom(p: usize): usize {
  const ends = ~load<u32>(p - 1) & 0x80808080;
  return ends == 0 ? 0 : p + (ctz(ends) >>> 3);
}

/** Varints that end in [p, stop), of which 16 bytes may be read behind it. */
function ending(p: usize, stop: usize): u32 {
  let count: u32 = 0;
  for (; p + 16 <= stop; p += 16) count += 16 - <u32>popcnt(i8x16.bitmask(v128.load(p)));
  const rest = <u32>(stop - p);
  return count + rest - <u32>popcnt(i8x16.bitmask(v128.load(p)) & ((1 << rest) - 1));
}

/**
 * Four varints a step, of four quarters of the list in turn: where the next step begins is known late, and meanwhile the other
 * three go on. A quarter that is done runs on into the next one and stores there what belongs there. It stays behind the last
 * quarter, so that the guards of that one hold for all.
 */
export function appendInts<T>(p: usize, end: usize, out: usize, count: u32, max: u32): i32 {
  if (end - p < QUARTERS_FROM || count >= max) return appendRun<T>(p, end, end, out, count, max);
  const quarter = (end - p) >>> 2;
  const stop1 = firstFrom(p + quarter);
  const stop2 = firstFrom(p + 2 * quarter);
  const stop3 = firstFrom(p + 3 * quarter);
  if (stop1 == 0 || stop2 == 0 || stop3 == 0) return appendRun<T>(p, end, end, out, count, max);
  const count2 = count + ending(p, stop1);
  const count3 = count2 + ending(stop1, stop2);
  const count4 = count3 + ending(stop2, stop3);
  // Mostly single bytes: 16 a step.
  if (count4 - count + 16 >= <u32>(stop3 - p)) return appendRun<T>(p, end, end, out, count, max);

  const t = tables;
  const septets = v128.load(tables, TABLE_SEPTETS);
  const evens = v128.load(tables, TABLE_SEPTETS + 16);
  const weights = v128.load(tables, TABLE_SEPTETS + 32);
  const size = alignof<T>();
  let p1 = p;
  let p2 = stop1;
  let p3 = stop2;
  let p4 = stop3;
  let to1 = out + (count << (<u32>size));
  let to2 = out + (count2 << (<u32>size));
  let to3 = out + (count3 << (<u32>size));
  let to4 = out + (count4 << (<u32>size));
  const from = to1;
  const step = (<usize>4) << size;
  const stop4 = end - 16;
  const last = count4 + 4 <= max ? out + ((max - 4) << (<u32>size)) : 0;
  while (p4 <= stop4) {
    if (to4 > last) break; // apart: as one condition both would be made numbers and joined
    const x1 = v128.load(p1);
    const x2 = v128.load(p2);
    const x3 = v128.load(p3);
    const x4 = v128.load(p4);
    const f1 = foursAt(t, i8x16.bitmask(x1));
    const f2 = foursAt(t, i8x16.bitmask(x2));
    const f3 = foursAt(t, i8x16.bitmask(x3));
    const f4 = foursAt(t, i8x16.bitmask(x4));
    if ((f1 | f2 | f3 | f4) >= FOURS_LONG) break;
    put<T>(to1, foursOf(t, x1, f1, septets, evens, weights));
    put<T>(to2, foursOf(t, x2, f2, septets, evens, weights));
    put<T>(to3, foursOf(t, x3, f3, septets, evens, weights));
    put<T>(to4, foursOf(t, x4, f4, septets, evens, weights));
    p1 += f1 & FOURS_BYTES;
    p2 += f2 & FOURS_BYTES;
    p3 += f3 & FOURS_BYTES;
    p4 += f4 & FOURS_BYTES;
    to1 += step;
    to2 += step;
    to3 += step;
    to4 += step;
  }
  const done = <u32>((to1 - from) >>> size);
  // The last bytes with zeros behind them, of which none may be used.
  const order = i8x16(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const rest = v128.load(stop4);
  while (p4 > stop4 && to4 <= last) {
    const x = i8x16.swizzle(rest, i8x16.add(order, i8x16.splat(<i8>(p4 - stop4))));
    const f = foursAt(t, i8x16.bitmask(x));
    if (f >= FOURS_LONG || p4 + (f & FOURS_BYTES) > end) break;
    put<T>(to4, foursOf(t, x, f, septets, evens, weights));
    p4 += f & FOURS_BYTES;
    to4 += step;
  }
  if (p1 < stop1 && appendRun<T>(p1, stop1, end, out, count + done, max) < 0) return -1;
  if (p2 < stop2 && appendRun<T>(p2, stop2, end, out, count2 + done, max) < 0) return -1;
  if (p3 < stop3 && appendRun<T>(p3, stop3, end, out, count3 + done, max) < 0) return -1;
  return appendRun<T>(p4, end, end, out, <u32>((to4 - out) >>> size), max);
}

/** From `p` to `stop` or a few varints further, but not to `end`. */
function appendRun<T>(p: usize, stop: usize, end: usize, out: usize, count: u32, max: u32): i32 {
  const size = alignof<T>();
  const septets = v128.load(tables, TABLE_SEPTETS);
  const evens = v128.load(tables, TABLE_SEPTETS + 16);
  const weights = v128.load(tables, TABLE_SEPTETS + 32);
  while (p < stop) {
    if (end - p >= 16) {
      const x = v128.load(p);
      const more = <u32>i8x16.bitmask(x);
      if (sizeof<T>() == 4 && more == 0 && (count + 16 <= max || count >= max)) {
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
      const fours = foursAt(tables, more);
      if (fours < FOURS_LONG && (count + 4 <= max || count >= max)) {
        if (count < max) put<T>(out + (count << (<u32>size)), foursOf(tables, x, fours, septets, evens, weights));
        count += 4;
        p += fours & FOURS_BYTES;
        continue;
      }
    }
    const value = <i64>varint(p, end);
    if (next == 0) return malformed(p);
    if (sizeof<T>() == 4 && value != <i64>(<i32>value)) {
      fault(FAULT_RANGE, p, value, 0);
      return -1;
    }
    if (count < max) store<T>(out + (count << (<u32>size)), <T>value);
    count++;
    p = next;
  }
  return count;
}
