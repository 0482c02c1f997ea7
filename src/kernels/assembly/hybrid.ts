// Bit fields of Parquet: its mix of run-length and bit-packed integers, and the bit-packed runs by themselves.
import { lookUp } from "./columns";

/** Values that are looked up behind each other: their indices are in the first-level cache still. */
const STRETCH: u32 = 1024;

/** Four u32 as lanes. */
function lanes(a: u32, b: u32, c: u32, d: u32): v128 {
  const two = i32x4.replace_lane(i32x4.splat(a), 1, b);
  return i32x4.replace_lane(i32x4.replace_lane(two, 2, c), 3, d);
}

/** Which bytes of 16 hold four fields of `width` bits, the first at bit `from`: four bytes a lane. */
function bytesOfFour(width: u32, from: u32): v128 {
  const first = lanes(from >> 3, (from + width) >> 3, (from + 2 * width) >> 3, (from + 3 * width) >> 3);
  return i32x4.add(i32x4.mul(first, i32x4.splat(0x01010101)), i32x4.splat(0x03020100));
}

/** What moves each of them up to bit 7 of its lane: there is no shift of each lane by its own distance. */
function scaleOfFour(width: u32, from: u32): v128 {
  return lanes(
    128 >> (from & 7),
    128 >> ((from + width) & 7),
    128 >> ((from + 2 * width) & 7),
    128 >> ((from + 3 * width) & 7),
  );
}

/** Field of `width` (to 64) bits at bit `bit` of the bytes at `p`; those from `end` on are not read. */
export function field(p: usize, end: usize, bit: u64, width: u32): u64 {
  const at = p + <usize>(bit >> 3);
  const shift = bit & 7;
  const mask: u64 = width == 64 ? u64.MAX_VALUE : ((<u64>1) << width) - 1;
  let low: u64 = 0;
  if (at + 8 <= end) low = load<u64>(at);
  else for (let i: usize = 0; at + i < end; i++) low |= (<u64>load<u8>(at + i)) << (i << 3);
  low >>= shift;
  if (shift + width > 64 && at + 8 < end) low |= (<u64>load<u8>(at + 8)) << (64 - shift);
  return low & mask;
}

/** Unpacks `count` fields of `width` (1 to 32) bits as u32; all their bits lie before `end`. */
export function unpack(p: usize, end: usize, width: u32, out: usize, count: u32): void {
  let i: u32 = 0;
  if (width <= 25) {
    // Eight fields end on a byte; the second four begin in the middle of one where the width is odd.
    const half = width << 2;
    const low = bytesOfFour(width, 0);
    const high = bytesOfFour(width, half & 7);
    const lowScale = scaleOfFour(width, 0);
    const highScale = scaleOfFour(width, half & 7);
    const mask = i32x4.splat((1 << width) - 1);
    const middle = <usize>(half >> 3);
    let at = p;
    while (i + 8 <= count && at + middle + 16 <= end) {
      const a = i32x4.mul(i8x16.swizzle(v128.load(at), low), lowScale);
      const b = i32x4.mul(i8x16.swizzle(v128.load(at + middle), high), highScale);
      v128.store(out, v128.and(i32x4.shr_u(a, 7), mask));
      v128.store(out, v128.and(i32x4.shr_u(b, 7), mask), 16);
      out += 32;
      at += width;
      i += 8;
    }
  }
  for (; i < count; i++) {
    store<u32>(out, <u32>field(p, end, <u64>i * width, width));
    out += 4;
  }
}

function fill(out: usize, value: u32, count: u32): void {
  const four = i32x4.splat(value);
  let i: u32 = 0;
  for (; i + 4 <= count; i += 4) v128.store(out + (i << 2), four);
  for (; i < count; i++) store<u32>(out + (i << 2), value);
}

/**
 * `count` values at `out` from runs of `width` (1 to 32) bits in [p, end). `words`: address of i32[size], of which the values are
 * indices; 0: they are the values. False: the runs end before, or an index is too large; `out` then holds anything.
 */
export function unpackHybrid(p: usize, end: usize, width: u32, out: usize, count: u32, words: usize, size: u32): bool {
  const valueBytes = (width + 7) >> 3;
  let done: u32 = 0;
  while (done < count) {
    let header: u64 = 0;
    for (let shift: u64 = 0; ; shift += 7) {
      if (p >= end || shift > 35) return false;
      const byte = <u64>load<u8>(p++);
      header |= (byte & 127) << shift;
      if (byte < 128) break;
    }
    const run = header >> 1;
    if ((header & 1) == 0) {
      if (<usize>valueBytes > end - p) return false;
      let value: u32 = 0;
      for (let i: u32 = 0; i < valueBytes; i++) value |= (<u32>load<u8>(p + i)) << (i << 3);
      p += valueBytes;
      const some = <u32>min(run, <u64>(count - done));
      if (some == 0) continue;
      if (words != 0) {
        if (value >= size) return false;
        value = load<u32>(words + ((<usize>value) << 2));
      }
      fill(out + ((<usize>done) << 2), value, some);
      done += some;
      continue;
    }
    const some = <u32>min(run << 3, <u64>(count - done));
    // A writer may leave out the padding of the last group.
    if ((<u64>some * width + 7) >> 3 > <u64>(end - p)) return false;
    for (let from: u32 = 0; from < some; from += STRETCH) {
      const now = min(STRETCH, some - from);
      const to = out + ((<usize>(done + from)) << 2);
      unpack(p + ((<usize>from * width) >> 3), end, width, to, now);
      if (words != 0 && !lookUp(to, now, words, size)) return false;
    }
    done += some;
    if (done < count) {
      if (run * width > <u64>(end - p)) return false;
      p += <usize>(run * width);
    }
  }
  return true;
}
