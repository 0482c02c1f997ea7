// Bytes of values that lie in planes (all first bytes, then all second ones …), put together again, 16 values at a time.

function mix8Low(a: v128, b: v128): v128 {
  return v128.shuffle<u8>(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}

function mix8High(a: v128, b: v128): v128 {
  return v128.shuffle<u8>(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}

function mix16Low(a: v128, b: v128): v128 {
  return v128.shuffle<u16>(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
}

function mix16High(a: v128, b: v128): v128 {
  return v128.shuffle<u16>(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}

function mix32Low(a: v128, b: v128): v128 {
  return v128.shuffle<u32>(a, b, 0, 4, 1, 5);
}

function mix32High(a: v128, b: v128): v128 {
  return v128.shuffle<u32>(a, b, 2, 6, 3, 7);
}

function pairs(from: usize, count: usize, out: usize): void {
  const a = v128.load(from);
  const b = v128.load(from + count);
  v128.store(out, mix8Low(a, b));
  v128.store(out, mix8High(a, b), 16);
}

function fours(from: usize, count: usize, out: usize): void {
  const a = v128.load(from);
  const b = v128.load(from + count);
  const c = v128.load(from + 2 * count);
  const d = v128.load(from + 3 * count);
  const ab = mix8Low(a, b);
  const cd = mix8Low(c, d);
  v128.store(out, mix16Low(ab, cd));
  v128.store(out, mix16High(ab, cd), 16);
  const abHigh = mix8High(a, b);
  const cdHigh = mix8High(c, d);
  v128.store(out, mix16Low(abHigh, cdHigh), 32);
  v128.store(out, mix16High(abHigh, cdHigh), 48);
}

function eights(from: usize, count: usize, out: usize): void {
  const a = v128.load(from);
  const b = v128.load(from + count);
  const c = v128.load(from + 2 * count);
  const d = v128.load(from + 3 * count);
  from += 4 * count;
  const e = v128.load(from);
  const f = v128.load(from + count);
  const g = v128.load(from + 2 * count);
  const h = v128.load(from + 3 * count);
  eightOf(mix8Low(a, b), mix8Low(c, d), mix8Low(e, f), mix8Low(g, h), out);
  eightOf(mix8High(a, b), mix8High(c, d), mix8High(e, f), mix8High(g, h), out + 64);
}

/** Eight values of pairs of their bytes. */
function eightOf(ab: v128, cd: v128, ef: v128, gh: v128, out: usize): void {
  const abcd = mix16Low(ab, cd);
  const efgh = mix16Low(ef, gh);
  v128.store(out, mix32Low(abcd, efgh));
  v128.store(out, mix32High(abcd, efgh), 16);
  const abcdHigh = mix16High(ab, cd);
  const efghHigh = mix16High(ef, gh);
  v128.store(out, mix32Low(abcdHigh, efghHigh), 32);
  v128.store(out, mix32High(abcdHigh, efghHigh), 48);
}

/** `length` bytes at `ptr` in planes of values of `size` bytes; bytes that fill no value stay at the end. */
export function unshuffle(ptr: usize, length: usize, size: usize, out: usize): void {
  const count = length / size;
  let i: usize = 0;
  if (size === 2) {
    for (; i + 16 <= count; i += 16) pairs(ptr + i, count, out + (i << 1));
  } else if (size === 4) {
    for (; i + 16 <= count; i += 16) fours(ptr + i, count, out + (i << 2));
  } else if (size === 8) {
    for (; i + 16 <= count; i += 16) eights(ptr + i, count, out + (i << 3));
  }
  for (let byte: usize = 0; byte < size; byte++) {
    const plane = ptr + byte * count;
    for (let k = i; k < count; k++) store<u8>(out + k * size + byte, load<u8>(plane + k));
  }
  const whole = count * size;
  memory.copy(out + whole, ptr + whole, length - whole);
}
