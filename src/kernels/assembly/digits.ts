// Integers of a JSON list, 64 bytes at a time.

/** Address behind the last comma that was taken. */
export let digitsEnd: usize = 0;

const COMMA: u8 = 0x2c;
const SPACE: u8 = 0x20;
const MINUS: u8 = 0x2d;
/** Each second byte is a comma. */
const SINGLES: u64 = 0xaaaaaaaaaaaaaaaa;

function commasOf(x: v128): u64 {
  return <u64>(<u32>i8x16.bitmask(i8x16.eq(x, i8x16.splat(COMMA))));
}

function spacesOf(x: v128): u64 {
  return <u64>(<u32>i8x16.bitmask(i8x16.eq(x, i8x16.splat(SPACE))));
}

function digitsOf(x: v128): u64 {
  const digit = i8x16.sub(x, i8x16.splat(0x30));
  return <u64>(<u32>i8x16.bitmask(i8x16.eq(i8x16.min_u(digit, i8x16.splat(9)), digit)));
}

/** Eight digits, each with a comma behind it. */
function storeSingles(x: v128, out: usize): void {
  const values = v128.and(x, i16x8.splat(0x0f));
  v128.store(out, i32x4.extend_low_i16x8_u(values));
  v128.store(out, i32x4.extend_high_i16x8_u(values), 16);
}

/** Eight digits 0 … 9, the first in the lowest byte: pairs, fours and eights of them in three multiplications. */
function eightDigits(w: u64): u32 {
  w = w * 10 + (w >> 8);
  return <u32>(
    (((w & 0x000000ff000000ff) * 0x000f424000000064 + ((w >> 16) & 0x000000ff000000ff) * 0x0000271000000001) >> 32)
  );
}

/**
 * Integers of up to 9 digits, each with a comma behind it and a space before it at most, from [p, end) as i32 at `out`, `max` at most.
 * Returns how many; stops before whatever else stands there.
 */
export function readDigits(p: usize, end: usize, out: usize, max: u32): u32 {
  const from = p;
  let count: u32 = 0;
  while (count < max) {
    // The digits of a number are loaded as the 8 bytes before its comma: the first numbers have none.
    while (p - from >= 8 && end - p >= 64 && count + 32 <= max) {
      const a = v128.load(p);
      const b = v128.load(p, 16);
      const c = v128.load(p, 32);
      const d = v128.load(p, 48);
      const commas = commasOf(a) | (commasOf(b) << 16) | (commasOf(c) << 32) | (commasOf(d) << 48);
      const digits = digitsOf(a) | (digitsOf(b) << 16) | (digitsOf(c) << 32) | (digitsOf(d) << 48);
      if (commas == SINGLES && digits == ~SINGLES) {
        const to = out + ((<usize>count) << 2);
        storeSingles(a, to);
        storeSingles(b, to + 32);
        storeSingles(c, to + 64);
        storeSingles(d, to + 96);
        count += 32;
        p += 64;
        continue;
      }
      const spaces = spacesOf(a) | (spacesOf(b) << 16) | (spacesOf(c) << 32) | (spacesOf(d) << 48);
      const other = ~(digits | commas | (spaces & ((commas << 1) | 1)));
      let left = other == 0 ? commas : commas & ((other & (0 - other)) - 1);
      let begin: u64 = 0;
      while (left != 0) {
        const comma = ctz(left);
        const length = comma - begin - ((spaces >> begin) & 1);
        if (length - 1 > 7) break;
        const unused = (8 - length) << 3;
        const text = (load<u64>(p + <usize>comma - 8) ^ 0x3030303030303030) >> unused;
        // A number does not begin with 0.
        if (length > 1 && (text & 255) == 0) break;
        store<u32>(out + ((<usize>count) << 2), eightDigits(text << unused));
        count++;
        begin = comma + 1;
        left &= left - 1;
      }
      p += <usize>begin;
      if (left != 0 || begin == 0) break;
    }
    if (count == max) break;
    const behind = one(p, end, out + ((<usize>count) << 2));
    if (behind == 0) break;
    p = behind;
    count++;
  }
  digitsEnd = p;
  return count;
}

/** One integer, byte by byte; the address behind its comma, 0: there is none. */
function one(p: usize, end: usize, out: usize): usize {
  if (p < end && load<u8>(p) == SPACE) p++;
  let negative = false;
  if (p < end && load<u8>(p) == MINUS) {
    negative = true;
    p++;
  }
  const first = p;
  let value: i32 = 0;
  while (p < end && p - first < 10) {
    const digit = <u32>load<u8>(p) - 0x30;
    if (digit > 9) break;
    value = value * 10 + <i32>digit;
    p++;
  }
  const length = p - first;
  if (length == 0 || length > 9 || p >= end || load<u8>(p) != COMMA) return 0;
  if (length > 1 && load<u8>(first) == 0x30) return 0;
  store<i32>(out, negative ? -value : value);
  return p + 1;
}
