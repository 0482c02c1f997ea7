// DELTA_BINARY_PACKED of Parquet: blocks of miniblocks of bit-packed differences.
import { field, unpack } from "./hybrid";
import { DELTA_NARROW, DELTA_WIDE } from "./layout";

/** Address behind the last miniblock that holds a value. */
export let deltaEnd: usize = 0;

/** Address behind the varint last read; 0: it is longer than 64 bits, or passes the end. */
let next: usize = 0;

function varint(p: usize, end: usize): u64 {
  let value: u64 = 0;
  for (let shift: u64 = 0; shift < 70 && p < end; shift += 7) {
    const byte = <u64>load<u8>(p++);
    if (shift == 63 && byte > 1) break;
    value |= (byte & 127) << shift;
    if (byte < 128) {
      next = p;
      return value;
    }
  }
  next = 0;
  return 0;
}

function zigzag(value: u64): i64 {
  return <i64>(value >> 1) ^ -(<i64>(value & 1));
}

/**
 * `count` integers at `out`: as i32 modulo 2^32 (DELTA_INT32, deltas of 32 bits at most), as i32 where each fits (DELTA_NARROW), as
 * i64 modulo 2^64 (DELTA_WIDE). False: cut, damaged, another number of values, or one that does not fit; `out` then holds anything.
 */
export function unpackDelta(p: usize, end: usize, out: usize, count: u32, form: u32): bool {
  const perBlock = varint(p, end);
  if (next == 0) return false;
  const minis = varint(next, end);
  if (next == 0) return false;
  const total = varint(next, end);
  if (next == 0) return false;
  let value = zigzag(varint(next, end));
  if (next == 0 || perBlock > 1 << 24 || minis == 0 || perBlock % minis != 0 || total != count) return false;
  const perMini = <u32>(perBlock / minis);
  if (perMini == 0 || (perMini & 7) != 0) return false;
  p = next;
  if (count == 0) {
    deltaEnd = p;
    return true;
  }
  if (!put(out, value, form)) return false;
  const step: usize = form == DELTA_WIDE ? 8 : 4;
  const most: u32 = form == DELTA_WIDE || form == DELTA_NARROW ? 64 : 32;
  let to = out + step;
  let left = count - 1;
  while (left > 0) {
    const least = zigzag(varint(p, end));
    if (next == 0 || minis > <u64>(end - next)) return false;
    const widths = next;
    p = next + <usize>minis;
    for (let m: usize = 0; m < <usize>minis && left > 0; m++) {
      const width = <u32>load<u8>(widths + m);
      if (width > most) return false;
      const some = min(left, perMini);
      if ((<u64>some * width + 7) >> 3 > <u64>(end - p)) return false;
      if (form != DELTA_WIDE && width <= 25) {
        // They lie where their sums come to stand.
        if (width != 0) unpack(p, end, width, to, some);
        else memory.fill(to, 0, (<usize>some) << 2);
        let wide: i64 = 0;
        for (let i: u32 = 0; i < some; i++) {
          value += least + <i64>load<u32>(to);
          store<i32>(to, <i32>value);
          wide |= value ^ <i64>(<i32>value);
          to += 4;
        }
        if (form == DELTA_NARROW && wide != 0) return false;
      } else {
        for (let i: u32 = 0; i < some; i++) {
          value += least + <i64>field(p, end, <u64>i * width, width);
          if (!put(to, value, form)) return false;
          to += step;
        }
      }
      // The padding of the last miniblock may be left out.
      p = <usize>min(<u64>end, <u64>p + ((<u64>perMini * width) >> 3));
      left -= some;
    }
  }
  deltaEnd = p;
  return true;
}

function put(to: usize, value: i64, form: u32): bool {
  if (form == DELTA_WIDE) {
    store<i64>(to, value);
    return true;
  }
  store<i32>(to, <i32>value);
  return form != DELTA_NARROW || value == <i64>(<i32>value);
}
