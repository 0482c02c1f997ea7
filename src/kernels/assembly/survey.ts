// What the values of packed runs tell the index: how many they are, the extremes, and whether the list is a prefix mask.
// Most values are not worked out: of a varint of at most 3 bytes the length and the last byte say whether it can be an extreme. 64 bytes
// at a time are bit masks of a word: where varints end, of how many bytes they are, which last bytes stand out. No load passes `end`.
import { malformed } from "./lists";
import { next, varint } from "./wire";

/** Extremes of what was known and of what was seen since openSurvey. */
export let least: i64 = 0;
export let greatest: i64 = 0;
/** 1 while only ones were seen, 2 once zeros follow, 0 when it is no prefix mask. */
export let prefix: u32 = 1;
/** Values that surveyChunks passed over. */
let passed: i32 = 0;

/** Values that are no extremes beyond the known ones need not be looked at. `knownPrefix` 0: some earlier list was no prefix mask. */
export function openSurvey(knownLeast: i64, knownGreatest: i64, knownPrefix: u32): void {
  least = knownLeast;
  greatest = knownGreatest;
  prefix = knownPrefix;
}

/** The new count of values, or -1 with the fault noted. */
export function surveyVarints(p: usize, end: usize, count: i32): i32 {
  while (p < end) {
    if (end - p >= 64) {
      // A mask column: ones, then zeros. Lists that are no mask leave this at the first step.
      if (prefix != 0 && maskChunk(p)) {
        count += 64;
        p += 64;
        continue;
      }
      if (prefix == 0 && least <= 127 && greatest >= 0) {
        p = surveyChunks(p, end);
        count += passed;
        // Here lies a longer or a broken one.
        for (const stop = min(p + 64, end); p < stop; count++) {
          const value = <i64>varint(p, end);
          if (next == 0) return malformed(p);
          note(value);
          p = next;
        }
        continue;
      }
    }
    const value = <i64>varint(p, end);
    if (next == 0) return malformed(p);
    note(value);
    if (prefix != 0) {
      if (value == 0) prefix = 2;
      else if (value != 1 || prefix == 2) prefix = 0;
    }
    count++;
    p = next;
  }
  return count;
}

/** One bit of each byte's top bit. */
function bits(a: v128, b: v128, c: v128, d: v128): u64 {
  return (
    (<u64>i8x16.bitmask(a) & 0xffff) |
    ((<u64>i8x16.bitmask(b) & 0xffff) << 16) |
    ((<u64>i8x16.bitmask(c) & 0xffff) << 32) |
    ((<u64>i8x16.bitmask(d) & 0xffff) << 48)
  );
}

/** Takes 64 values of a mask; false: they are not all 0 or 1, and nothing is noted. */
function maskChunk(p: usize): bool {
  const a = v128.load(p);
  const b = v128.load(p, 16);
  const c = v128.load(p, 32);
  const d = v128.load(p, 48);
  if (v128.any_true(v128.and(v128.or(v128.or(a, b), v128.or(c, d)), i8x16.splat(<i8>0xfe)))) return false;
  const one = i8x16.splat(1);
  const ones = bits(i8x16.eq(a, one), i8x16.eq(b, one), i8x16.eq(c, one), i8x16.eq(d, one));
  const head = prefix == 1 ? ctz(~ones) : 0;
  if (head < 64) prefix = ones >>> head == 0 ? 2 : 0;
  if (ones != 0) note(1);
  if (~ones != 0) note(0);
  return true;
}

/**
 * Passes over varints of at most 3 bytes from the first one at `p`, where 64 bytes or more are left, and least ≤ 127 and greatest ≥ 0.
 * Returns `end`, or where the first varint begins that is longer or ends in no chunk; `passed` are those before it.
 */
function surveyChunks(p: usize, end: usize): usize {
  passed = 0;
  let before: u64 = 0; // continuation bits of the chunk before
  let bytes = bytesOf(greatest);
  let floor = floorOf(greatest, bytes);
  while (p < end) {
    // The last chunk is loaded with bytes that were seen before in front.
    const left = min<usize>(end - p, 64);
    const from = p + left - 64;
    const shift = <u64>(64 - left);
    const a = v128.load(from);
    const b = v128.load(from, 16);
    const c = v128.load(from, 32);
    const d = v128.load(from, 48);
    const more = bits(a, b, c, d) >>> shift;
    const more1 = (more << 1) | (before >>> 63);
    const more2 = (more << 2) | (before >>> 62);
    const cut = p + left == end ? more >>> (<u64>left - 1) : 0;
    if ((more & more1 & more2) != 0 || cut != 0) {
      const begun = before >>> 63;
      return p - <usize>(begun + (begun & (before >>> 62)));
    }
    const ends = ~more & (<u64>-1 >>> shift);
    const gt = i8x16.splat(<i8>floor);
    const high = bits(i8x16.gt_s(a, gt), i8x16.gt_s(b, gt), i8x16.gt_s(c, gt), i8x16.gt_s(d, gt)) >>> shift;
    let look: u64 = 0;
    if (bytes == 3) look = high & more1 & more2;
    else if (bytes == 2) look = more1 & (high | more2);
    else if (bytes == 1) look = high | more1;
    look &= ends;
    if (least > 0) {
      const lt = i8x16.splat(<i8>least);
      const low = bits(i8x16.lt_s(a, lt), i8x16.lt_s(b, lt), i8x16.lt_s(c, lt), i8x16.lt_s(d, lt)) >>> shift;
      // A last byte of 0 makes a value smaller than its length says.
      const none = i8x16.splat(0);
      const zero = bits(i8x16.eq(a, none), i8x16.eq(b, none), i8x16.eq(c, none), i8x16.eq(d, none)) >>> shift;
      look |= ends & ((low & ~more1) | zero);
    }
    passed += <i32>popcnt(ends);
    if (look != 0) {
      // Rows are often filled up with one id, which may be the greatest.
      if (bytes == 3 && popcnt(look) > 2) {
        const x = i8x16.splat(<i8>(greatest >>> 14));
        const y = i8x16.splat(<i8>((greatest >>> 7) | 128));
        const z = i8x16.splat(<i8>(greatest | 128));
        const last = bits(i8x16.eq(a, x), i8x16.eq(b, x), i8x16.eq(c, x), i8x16.eq(d, x)) >>> shift;
        const second = bits(i8x16.eq(a, y), i8x16.eq(b, y), i8x16.eq(c, y), i8x16.eq(d, y)) >>> shift;
        const first = bits(i8x16.eq(a, z), i8x16.eq(b, z), i8x16.eq(c, z), i8x16.eq(d, z)) >>> shift;
        look &= ~(last & (second << 1) & (first << 2));
      }
      while (look != 0) {
        const bit = ctz(look);
        note(valueAt(p + <usize>bit, (more1 >>> bit) & 1, ((more1 & more2) >>> bit) & 1));
        look &= look - 1;
      }
      bytes = bytesOf(greatest);
      floor = floorOf(greatest, bytes);
    }
    before = more;
    p += left;
  }
  return p;
}

/** The value of the varint whose last byte lies at `last`, behind one or two others. */
function valueAt(last: usize, second: u64, third: u64): u32 {
  let value = <u32>load<u8>(last);
  if (second != 0) value = (value << 7) | (<u32>load<u8>(last - 1) & 0x7f);
  if (third != 0) value = (value << 7) | (<u32>load<u8>(last - 2) & 0x7f);
  return value;
}

/** Bytes of its shortest varint; 4: more than 3. */
function bytesOf(value: i64): u32 {
  return value < 128 ? 1 : value < 1 << 14 ? 2 : value < 1 << 21 ? 3 : 4;
}

/** A greater value of as many bytes has a last byte above this. */
function floorOf(value: i64, bytes: u32): i32 {
  return bytes == 1 ? <i32>value : bytes > 3 ? 127 : <i32>(value >>> (7 * <i64>(bytes - 1))) - 1;
}

function note(value: i64): void {
  if (value < least) least = value;
  if (value > greatest) greatest = value;
}
