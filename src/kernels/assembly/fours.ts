// Four varints of at most 3 bytes each out of 16 bytes, by a table of what the continuation bits of the first 12 say.
import { TABLE_FOURS, TABLE_SHUFFLE } from "./layout";

/** Of an entry: the bytes of the four. */
export const FOURS_BYTES: u32 = 15;
/** Of an entry: one of the four is longer than 3 bytes. The bits between are the offset of their shuffle. */
export const FOURS_LONG: u32 = 0x8000;

// `@inline` on a function is AssemblyScript's own: the formatter passes over this file.
/** The entry for 16 bytes whose continuation bits are `more`. */
// @ts-ignore: decorator
@inline
export function foursAt(tables: usize, more: u32): u32 {
  return load<u16>(tables + ((more & 0xfff) << 1), TABLE_FOURS);
}

/**
 * The four at the head of `x` as u32 lanes; not for FOURS_LONG. The last three are the vectors at TABLE_SEPTETS, which the caller
 * loads before its loop: constants V8 would make anew in every round.
 */
// @ts-ignore: decorator
@inline
export function foursOf(tables: usize, x: v128, fours: u32, septets: v128, evens: v128, weights: v128): v128 {
  const y = i8x16.swizzle(x, v128.load(tables + (fours & ~FOURS_BYTES), TABLE_SHUFFLE));
  // The first two bytes in the low half of a lane: (a + 256 b + a) / 2 is a + 128 b. The third in the high half, 2^14 times.
  return i32x4.dot_i16x8_s(i16x8.avgr_u(v128.and(y, septets), v128.and(y, evens)), weights);
}
