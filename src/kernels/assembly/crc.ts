import { TABLE_POWERS, TABLE_ZEROS } from "./layout";
import { multiply, tables } from "./tables";

// `@inline` on a function is AssemblyScript's own: the formatter passes over this file.
/** Where a table says what becomes of the lowest byte of `x`. */
// @ts-ignore: decorator
@inline
function at(t: usize, x: u32): usize {
  return t + ((x & 255) << 2);
}

/** CRC of 8 bytes, to the first four of which the CRC of those before was added. */
// @ts-ignore: decorator
@inline
function eight(t: usize, a: u64): u32 {
  return (
    load<u32>(at(t, <u32>a), 7 << 10) ^
    load<u32>(at(t, <u32>(a >>> 8)), 6 << 10) ^
    load<u32>(at(t, <u32>(a >>> 16)), 5 << 10) ^
    load<u32>(at(t, <u32>(a >>> 24)), 4 << 10) ^
    load<u32>(at(t, <u32>(a >>> 32)), 3 << 10) ^
    load<u32>(at(t, <u32>(a >>> 40)), 2 << 10) ^
    load<u32>(at(t, <u32>(a >>> 48)), 1 << 10) ^
    load<u32>(at(t, <u32>(a >>> 56)))
  );
}

/** The same of 16 bytes. */
// @ts-ignore: decorator
@inline
function sixteen(t: usize, a: u64, b: u64): u32 {
  return eight(t + (8 << 10), a) ^ eight(t, b);
}

/** The same of 16 bytes that lie in a vector, `c` the CRC before. */
// @ts-ignore: decorator
@inline
function lanes(t: usize, c: u32, x: v128): u32 {
  return sixteen(t, i64x2.extract_lane(x, 0) ^ c, i64x2.extract_lane(x, 1));
}

/** CRC `c` over 64 zeros. */
// @ts-ignore: decorator
@inline
function zeros(t: usize, c: u32): u32 {
  const z = t + TABLE_ZEROS;
  return (
    load<u32>(at(z, c)) ^
    load<u32>(at(z, c >>> 8), 1 << 10) ^
    load<u32>(at(z, c >>> 16), 2 << 10) ^
    load<u32>(at(z, c >>> 24), 3 << 10)
  );
}

/**
 * What 16 bytes get from the 112 before them: `h` the first of these, `c` those that end 16 bytes before.
 *
 * Modulo the CRC's polynomial 1 = x^-(8·47) + x^-(8·51) + x^-(8·55) + x^-(8·85) + x^-(8·90) + x^-(8·100) + x^-(8·104), so that
 * a byte may be struck out where it is added to those 47, 51 … 104 bytes behind it: whole bytes, no bits to shift, and
 * nothing waits for the 32 bytes before it. Found by a search of all sums of seven such powers; shorter sums reach further back.
 */
// @ts-ignore: decorator
@inline
function folded(c: v128, d: v128, e: v128, f: v128, g: v128, h: v128): v128 {
  const by47 = i8x16.shuffle(d, c, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16);
  const by51 = i8x16.shuffle(e, d, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28);
  const by55 = i8x16.shuffle(e, d, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24);
  const by85 = i8x16.shuffle(g, f, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26);
  const by90 = i8x16.shuffle(g, f, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21);
  const by100 = i8x16.shuffle(h, g, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27);
  const by104 = i8x16.shuffle(h, g, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23);
  return v128.xor(
    v128.xor(v128.xor(by47, by51), v128.xor(by55, by85)),
    v128.xor(by90, v128.xor(by100, by104)),
  );
}

/** From here on folding pays: 112 bytes are left of it, and the first 17 to 32 are taken apart. */
const FOLD_FROM: usize = 160;

/** CRC32C. WebAssembly has no carry-less multiply: long stretches are folded down to 112 bytes, the rest is sliced by 16. */
export function crc32c(ptr: usize, length: usize, seed: u32): u32 {
  const t = tables;
  let c = ~seed;
  if (length >= FOLD_FROM) return ~fold(t, ptr, length, c);
  while (length >= 16) {
    c = sixteen(t, load<u64>(ptr) ^ c, load<u64>(ptr, 8));
    ptr += 16;
    length -= 16;
  }
  if (length >= 8) {
    c = eight(t, load<u64>(ptr) ^ c);
    ptr += 8;
    length -= 8;
  }
  while (length > 0) {
    c = load<u32>(at(t, c ^ load<u8>(ptr))) ^ (c >>> 8);
    ptr++;
    length--;
  }
  return ~c;
}

function fold(t: usize, ptr: usize, length: usize, carry: u32): u32 {
  const zero = i8x16.splat(0);
  const order = i8x16(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const first = i32x4.replace_lane(zero, 0, carry);
  // The first 1 to 16 bytes behind as many zeros as fill the vector: zeros in front leave a CRC of 0 as it is.
  const head = ((length - 1) & 15) + 1;
  const stop = ptr + length - 112;
  let c = i8x16.swizzle(v128.xor(v128.load(ptr), first), i8x16.add(order, i8x16.splat(<i8>(head - 16))));
  let b = v128.xor(v128.load(ptr + head), i8x16.swizzle(first, i8x16.add(order, i8x16.splat(<i8>head))));
  let d = zero;
  let e = zero;
  let f = zero;
  let g = zero;
  let h = zero;
  ptr += head + 16;
  for (; ptr < stop; ptr += 16) {
    const x = v128.xor(v128.load(ptr), folded(c, d, e, f, g, h));
    h = g;
    g = f;
    f = e;
    e = d;
    d = c;
    c = b;
    b = x;
  }
  let m = lanes(t, 0, v128.xor(v128.load(ptr), folded(c, d, e, f, g, h)));
  m = lanes(t, m, v128.xor(v128.load(ptr, 16), folded(b, c, d, e, f, g)));
  m = lanes(t, m, v128.xor(v128.load(ptr, 32), folded(zero, b, c, d, e, f)));
  let n = lanes(t, 0, v128.xor(v128.load(ptr, 48), folded(zero, zero, b, c, d, e)));
  n = lanes(t, n, v128.xor(v128.load(ptr, 64), folded(zero, zero, zero, b, c, d)));
  n = lanes(t, n, v128.xor(v128.load(ptr, 80), folded(zero, zero, zero, zero, b, c)));
  n = lanes(t, n, v128.xor(v128.load(ptr, 96), folded(zero, zero, zero, zero, zero, b)));
  return zeros(t, m) ^ n;
}

/** CRC32C of two stretches laid end to end, of the CRC of each and the bytes of the second (as zlib's crc32_combine). */
export function joinCrc(first: u32, second: u32, bytes: usize): u32 {
  const powers = tables + TABLE_POWERS;
  let x = multiply(load<u32>(powers + ((bytes & 255) << 2)), load<u32>(powers + ((bytes & 0xff00) >>> 6), 1024));
  for (let k = 0, high = bytes >>> 16; high != 0; k++, high >>>= 1)
    if (high & 1) x = multiply(x, load<u32>(powers + (k << 2), 2048));
  return multiply(x, first) ^ second;
}

/** The form in which TFRecord stores a CRC. */
export function masked(crc: u32): u32 {
  return rotr(crc, 15) + 0xa282ead8;
}
