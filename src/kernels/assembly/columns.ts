// Loops over columns of integers.

/** Replaces `count` indices by what they stand for in i32[size] at `words`; false: one is too large. */
export function lookUp(at: usize, count: u32, words: usize, size: u32): bool {
  let most = i32x4.splat(0);
  let i: u32 = 0;
  for (; i + 4 <= count; i += 4) most = i32x4.max_u(most, v128.load(at + ((<usize>i) << 2)));
  let largest = max(
    max(<u32>i32x4.extract_lane(most, 0), <u32>i32x4.extract_lane(most, 1)),
    max(<u32>i32x4.extract_lane(most, 2), <u32>i32x4.extract_lane(most, 3)),
  );
  for (; i < count; i++) largest = max(largest, load<u32>(at + ((<usize>i) << 2)));
  if (count > 0 && largest >= size) return false;
  const end = at + ((<usize>count) << 2);
  for (; at + 16 <= end; at += 16) {
    store<u32>(at, load<u32>(words + ((<usize>load<u32>(at)) << 2)));
    store<u32>(at, load<u32>(words + ((<usize>load<u32>(at, 4)) << 2)), 4);
    store<u32>(at, load<u32>(words + ((<usize>load<u32>(at, 8)) << 2)), 8);
    store<u32>(at, load<u32>(words + ((<usize>load<u32>(at, 12)) << 2)), 12);
  }
  for (; at < end; at += 4) store<u32>(at, load<u32>(words + ((<usize>load<u32>(at)) << 2)));
  return true;
}

/** i64[count] at `p` as i32 at `out`; false: one does not fit. */
export function narrowInts(p: usize, count: u32, out: usize): bool {
  let i: u32 = 0;
  for (; i + 4 <= count; i += 4) {
    const a = v128.load(p);
    const b = v128.load(p, 16);
    const low = v128.shuffle<i32>(a, b, 0, 2, 4, 6);
    const high = v128.shuffle<i32>(a, b, 1, 3, 5, 7);
    if (v128.any_true(v128.xor(high, i32x4.shr_s(low, 31)))) return false;
    v128.store(out, low);
    p += 32;
    out += 16;
  }
  for (; i < count; i++) {
    const value = load<i64>(p);
    if (value != <i64>(<i32>value)) return false;
    store<i32>(out, <i32>value);
    p += 8;
    out += 4;
  }
  return true;
}
