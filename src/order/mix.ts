/**
 * Chance: every random choice of the order is one 64-bit number,
 *   h = 0; for f of fields: h = fmix64((h XOR f) + 0x9e3779b97f4a7c15)
 * with SplitMix64's finalizer as `fmix64`, all arithmetic mod 2^64. The order's fields are, in this order,
 * (seed, purpose, source, epoch, lane, window, i).
 *
 * Contract: `test/fixtures/order-v1.json` holds vectors; another value of any of them is order version 2.
 * No BigInt here: a 64-bit number is two 32-bit halves, because a BigInt multiply costs some 100 ns and a
 * window of 30 000 rows must cost less than that a row, sort included (measured: about 40 ns).
 *
 * @example
 * const chain = new Mixer().bigint(1234n).number(PURPOSE.window).number(0).number(epoch).number(lane).number(w);
 * const perm = permutation(chain, rows);   // perm[i]: which row is served i-th
 */

/** Second field of the order's numbers. Never reused for another purpose. */
export const PURPOSE = { extents: 1, window: 2, feistel: 3 } as const;

/** High 32 bits of the 64-bit product of two u32, by 16-bit halves: each partial sum fits 32 bits. */
function mulHigh(a: number, b: number): number {
  const a0 = a & 0xffff;
  const a1 = a >>> 16;
  const b0 = b & 0xffff;
  const b1 = b >>> 16;
  const w = (Math.imul(a1, b0) + (Math.imul(a0, b0) >>> 16)) | 0;
  const v = (Math.imul(a0, b1) + (w & 0xffff)) | 0;
  return (Math.imul(a1, b1) + (w >>> 16) + (v >>> 16)) | 0;
}

/** The chain of fields so far: `hi` and `lo` are int32 halves of h. */
export class Mixer {
  hi = 0;
  lo = 0;

  /** Adds a field given as two halves (any int32 or u32). */
  absorb(fieldHi: number, fieldLo: number): this {
    const sum = ((this.lo ^ fieldLo) >>> 0) + 0x7f4a7c15;
    let lo = sum | 0;
    let hi = ((this.hi ^ fieldHi) + (0x9e3779b9 | 0) + (sum > 0xffffffff ? 1 : 0)) | 0;
    lo ^= (lo >>> 30) | (hi << 2);
    hi ^= hi >>> 30;
    hi = (mulHigh(lo, 0x1ce4e5b9) + Math.imul(lo, 0xbf58476d) + Math.imul(hi, 0x1ce4e5b9)) | 0;
    lo = Math.imul(lo, 0x1ce4e5b9);
    lo ^= (lo >>> 27) | (hi << 5);
    hi ^= hi >>> 27;
    hi = (mulHigh(lo, 0x133111eb) + Math.imul(lo, 0x94d049bb) + Math.imul(hi, 0x133111eb)) | 0;
    lo = Math.imul(lo, 0x133111eb);
    this.lo = lo ^ ((lo >>> 31) | (hi << 1));
    this.hi = hi ^ (hi >>> 31);
    return this;
  }

  /** Adds a whole number from 0 to 2^53. */
  number(field: number): this {
    return this.absorb(Math.floor(field / 4294967296), field >>> 0);
  }

  /** Adds any integer, mod 2^64. */
  bigint(field: bigint): this {
    return this.absorb(Number((field >> 32n) & 0xffffffffn), Number(field & 0xffffffffn));
  }

  copy(): Mixer {
    const other = new Mixer();
    other.hi = this.hi;
    other.lo = this.lo;
    return other;
  }

  /** h as an unsigned 64-bit number. */
  get value(): bigint {
    return (BigInt(this.hi >>> 0) << 32n) | BigInt(this.lo >>> 0);
  }
}

const BUCKETS = 2048;
let scratch = {
  size: 0,
  hi: new Uint32Array(0),
  lo: new Uint32Array(0),
  key: new Uint32Array(0),
  index: new Uint32Array(0),
};

/**
 * The permutation of 0 … n − 1 by (mix(…prefix, i), i): exact by all 64 bits.
 * A radix sort of the high halves (three passes of 11 bits), then the few equal ones by their low halves.
 */
export function permutation(prefix: Mixer, n: number): Uint32Array {
  const result = new Uint32Array(n);
  if (n < 2) return result;
  if (scratch.size < n) {
    const array = () => new Uint32Array(n);
    scratch = { size: n, hi: array(), lo: array(), key: array(), index: array() };
  }
  const { hi, lo, key, index } = scratch;
  const counts = [new Uint32Array(BUCKETS), new Uint32Array(BUCKETS), new Uint32Array(BUCKETS)] as const;
  const one = new Mixer();
  for (let i = 0; i < n; i++) {
    one.hi = prefix.hi;
    one.lo = prefix.lo;
    one.absorb(0, i);
    const high = one.hi >>> 0;
    hi[i] = high;
    lo[i] = one.lo;
    counts[0][high & 2047]!++;
    counts[1][(high >>> 11) & 2047]!++;
    counts[2][high >>> 22]!++;
    result[i] = i;
  }
  // Three passes: (hi, result) → (key, index) → back → forth; then the order stands in `index`.
  scatter(hi, result, key, index, n, counts[0], 0);
  scatter(key, index, hi, result, n, counts[1], 11);
  scatter(hi, result, key, index, n, counts[2], 22);
  result.set(index.subarray(0, n));
  // Equal high halves (some n² / 2^33 pairs) lie side by side, by i: insertion by the low half keeps that.
  for (let i = 1; i < n; i++) {
    const same = key[i]!;
    if (key[i - 1]! !== same) continue;
    const item = result[i]!;
    const low = lo[item]!;
    let at = i;
    while (at > 0 && same === key[at - 1] && lo[result[at - 1]!]! > low) {
      result[at] = result[at - 1]!;
      at--;
    }
    result[at] = item;
  }
  return result;
}

function scatter(
  fromKey: Uint32Array,
  fromIndex: Uint32Array,
  toKey: Uint32Array,
  toIndex: Uint32Array,
  n: number,
  counts: Uint32Array,
  shift: number,
): void {
  let start = 0;
  for (let b = 0; b < BUCKETS; b++) {
    const count = counts[b]!;
    counts[b] = start;
    start += count;
  }
  for (let i = 0; i < n; i++) {
    const key = fromKey[i]!;
    const at = counts[(key >>> shift) & 2047]!++;
    toKey[at] = key;
    toIndex[at] = fromIndex[i]!;
  }
}
