import { TABLE_POWERS, TABLE_ZEROS } from "./layout";
import { multiply, tables } from "./tables";

function slice(n: u32, byte: u32): u32 {
  return load<u32>(tables + (n << 10) + (byte << 2));
}

// `@inline` on a function is AssemblyScript's own: the formatter passes over this file.
/** CRC `c` over 16 bytes. */
// @ts-ignore: decorator
@inline
function step(c: u32, ptr: usize): u32 {
  const a = load<u32>(ptr) ^ c;
  return (
    slice(15, a & 255) ^
    slice(14, (a >>> 8) & 255) ^
    slice(13, (a >>> 16) & 255) ^
    slice(12, a >>> 24) ^
    slice(11, load<u8>(ptr, 4)) ^
    slice(10, load<u8>(ptr, 5)) ^
    slice(9, load<u8>(ptr, 6)) ^
    slice(8, load<u8>(ptr, 7)) ^
    slice(7, load<u8>(ptr, 8)) ^
    slice(6, load<u8>(ptr, 9)) ^
    slice(5, load<u8>(ptr, 10)) ^
    slice(4, load<u8>(ptr, 11)) ^
    slice(3, load<u8>(ptr, 12)) ^
    slice(2, load<u8>(ptr, 13)) ^
    slice(1, load<u8>(ptr, 14)) ^
    slice(0, load<u8>(ptr, 15))
  );
}

/** CRC `c` over 64 zeros (`at` = TABLE_ZEROS), or over 128 (4096 further on). */
// @ts-ignore: decorator
@inline
function zeros(at: usize, c: u32): u32 {
  const table = tables + at;
  return (
    load<u32>(table + ((c & 255) << 2)) ^
    load<u32>(table + (((c >>> 8) & 255) << 2), 1024) ^
    load<u32>(table + (((c >>> 16) & 255) << 2), 2048) ^
    load<u32>(table + ((c >>> 24) << 2), 3072)
  );
}

/**
 * CRC32C, slicing by 16, of three stretches of 64 bytes at a time, which do not wait for one another: WebAssembly has no
 * carry-less multiply.
 */
export function crc32c(ptr: usize, length: usize, seed: u32): u32 {
  let c = ~seed;
  while (length >= 192) {
    let d: u32 = 0;
    let e: u32 = 0;
    const stop = ptr + 64;
    while (ptr < stop) {
      c = step(c, ptr);
      d = step(d, ptr + 64);
      e = step(e, ptr + 128);
      ptr += 16;
    }
    c = zeros(TABLE_ZEROS + 4096, c) ^ zeros(TABLE_ZEROS, d) ^ e;
    ptr += 128;
    length -= 192;
  }
  while (length >= 16) {
    c = step(c, ptr);
    ptr += 16;
    length -= 16;
  }
  if (length >= 8) {
    const a = load<u32>(ptr) ^ c;
    const b = load<u32>(ptr, 4);
    c =
      slice(7, a & 255) ^
      slice(6, (a >>> 8) & 255) ^
      slice(5, (a >>> 16) & 255) ^
      slice(4, a >>> 24) ^
      slice(3, b & 255) ^
      slice(2, (b >>> 8) & 255) ^
      slice(1, (b >>> 16) & 255) ^
      slice(0, b >>> 24);
    ptr += 8;
    length -= 8;
  }
  while (length > 0) {
    c = slice(0, (c ^ load<u8>(ptr)) & 255) ^ (c >>> 8);
    ptr++;
    length--;
  }
  return ~c;
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
