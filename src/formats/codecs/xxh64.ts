/**
 * XXH64 (seed 0), the checksum of Zstandard frames, in halves of 32 bits: BigInt is 30 times slower. xxhash-wasm would do it too, but is one
 * more WebAssembly module to carry for one check that fzstd leaves out.
 *
 * @example
 * const hash = new Xxh64();
 * hash.update(Buffer.from("abc"));
 * hash.low32(); // 0x0e0e8e13…: the lower half, which frames store
 */
const P1 = [0x9e3779b1, 0x85ebca87] as const;
const P2 = [0xc2b2ae3d, 0x27d4eb4f] as const;
const P3 = [0x165667b1, 0x9e3779f9] as const;
const P4 = [0x85ebca77, 0xc2b2ae63] as const;
const P5 = [0x27d4eb2f, 0x165667c5] as const;

export class Xxh64 {
  /** Four lanes, high and low half each. */
  private readonly lanes = new Int32Array(8);
  private readonly rest = new Uint8Array(32);
  private held = 0;
  private length = 0;

  constructor() {
    const lane = (i: number, high: number, low: number): void => {
      this.lanes[2 * i] = high;
      this.lanes[2 * i + 1] = low;
    };
    const [high, low] = add(P1[0], P1[1], P2[0], P2[1]);
    lane(0, high, low);
    lane(1, P2[0], P2[1]);
    lane(2, 0, 0);
    const [minusHigh, minusLow] = add(~P1[0], ~P1[1], 0, 1);
    lane(3, minusHigh, minusLow);
  }

  update(bytes: Uint8Array): void {
    this.length += bytes.length;
    let at = 0;
    if (this.held > 0) {
      at = Math.min(32 - this.held, bytes.length);
      this.rest.set(bytes.subarray(0, at), this.held);
      this.held += at;
      if (this.held < 32) return;
      this.stripes(this.rest, 0, 32);
      this.held = 0;
    }
    const whole = at + ((bytes.length - at) & ~31);
    this.stripes(bytes, at, whole);
    this.rest.set(bytes.subarray(whole));
    this.held = bytes.length - whole;
  }

  /** The lower 32 bits of the hash. */
  low32(): number {
    let [high, low] = this.length >= 32 ? this.merged() : [P5[0] | 0, P5[1] | 0];
    [high, low] = add(high, low, Math.floor(this.length / 2 ** 32), this.length | 0);
    const { rest, held } = this;
    let at = 0;
    for (; at + 8 <= held; at += 8) {
      const [roundHigh, roundLow] = round(0, 0, word(rest, at + 4), word(rest, at));
      [high, low] = rotate(high ^ roundHigh, low ^ roundLow, 27);
      [high, low] = times(high, low, P1);
      [high, low] = add(high, low, P4[0], P4[1]);
    }
    if (at + 4 <= held) {
      const [h, l] = times(0, word(rest, at), P1);
      [high, low] = rotate(high ^ h, low ^ l, 23);
      [high, low] = times(high, low, P2);
      [high, low] = add(high, low, P3[0], P3[1]);
      at += 4;
    }
    for (; at < held; at++) {
      const [h, l] = times(0, rest[at]!, P5);
      [high, low] = rotate(high ^ h, low ^ l, 11);
      [high, low] = times(high, low, P1);
    }
    // h ^= h >> 33, and so on.
    [high, low] = times(high, low ^ (high >>> 1), P2);
    [high, low] = times(high ^ (high >>> 29), low ^ ((low >>> 29) | (high << 3)), P3);
    return (low ^ high) >>> 0;
  }

  private merged(): Half {
    const { lanes } = this;
    const lane = (i: number): Half => [lanes[2 * i]!, lanes[2 * i + 1]!];
    let sum: Half = [0, 0];
    for (const [i, bits] of [1, 7, 12, 18].entries()) {
      const [high, low] = rotate(...lane(i), bits);
      sum = add(...sum, high, low);
    }
    for (let i = 0; i < 4; i++) {
      const [high, low] = round(0, 0, ...lane(i));
      sum = times(sum[0] ^ high, sum[1] ^ low, P1);
      sum = add(...sum, P4[0], P4[1]);
    }
    return sum;
  }

  /** The hot loop: lane = rotate(lane + input × P2, 31) × P1, with all products written out. */
  private stripes(bytes: Uint8Array, from: number, to: number): void {
    const { lanes } = this;
    for (let at = from; at < to; at += 32) {
      for (let i = 0; i < 4; i++) {
        const place = at + i * 8;
        const low = bytes[place]! | (bytes[place + 1]! << 8) | (bytes[place + 2]! << 16) | (bytes[place + 3]! << 24);
        const high =
          bytes[place + 4]! | (bytes[place + 5]! << 8) | (bytes[place + 6]! << 16) | (bytes[place + 7]! << 24);
        // input × P2
        const a0 = low & 0xffff;
        const a1 = low >>> 16;
        const c0 = P2[1] & 0xffff;
        const c1 = P2[1] >>> 16;
        const p00 = Math.imul(a0, c0) >>> 0;
        const p01 = Math.imul(a0, c1) >>> 0;
        const p10 = Math.imul(a1, c0) >>> 0;
        const middle = (p00 >>> 16) + (p01 & 0xffff) + (p10 & 0xffff);
        const productLow = ((middle << 16) | (p00 & 0xffff)) >>> 0;
        const productHigh =
          (Math.imul(a1, c1) +
            (p01 >>> 16) +
            (p10 >>> 16) +
            (middle >>> 16) +
            Math.imul(high, P2[1]) +
            Math.imul(low, P2[0])) |
          0;
        // + lane, rotated by 31
        const sum = (lanes[2 * i + 1]! >>> 0) + productLow;
        const sumLow = sum | 0;
        const sumHigh = (lanes[2 * i]! + productHigh + (sum > 0xffffffff ? 1 : 0)) | 0;
        const turnedHigh = (sumHigh << 31) | (sumLow >>> 1);
        const turnedLow = (sumLow << 31) | (sumHigh >>> 1);
        // × P1
        const b0 = turnedLow & 0xffff;
        const b1 = turnedLow >>> 16;
        const d0 = P1[1] & 0xffff;
        const d1 = P1[1] >>> 16;
        const q00 = Math.imul(b0, d0) >>> 0;
        const q01 = Math.imul(b0, d1) >>> 0;
        const q10 = Math.imul(b1, d0) >>> 0;
        const between = (q00 >>> 16) + (q01 & 0xffff) + (q10 & 0xffff);
        lanes[2 * i + 1] = (between << 16) | (q00 & 0xffff);
        lanes[2 * i] =
          Math.imul(b1, d1) +
          (q01 >>> 16) +
          (q10 >>> 16) +
          (between >>> 16) +
          Math.imul(turnedHigh, P1[1]) +
          Math.imul(turnedLow, P1[0]);
      }
    }
  }
}

/** High and low 32 bits. */
type Half = [high: number, low: number];

function word(bytes: Uint8Array, at: number): number {
  return bytes[at]! | (bytes[at + 1]! << 8) | (bytes[at + 2]! << 16) | (bytes[at + 3]! << 24);
}

function add(aHigh: number, aLow: number, bHigh: number, bLow: number): Half {
  const low = (aLow >>> 0) + (bLow >>> 0);
  return [(aHigh + bHigh + (low > 0xffffffff ? 1 : 0)) | 0, low | 0];
}

function rotate(high: number, low: number, bits: number): Half {
  return [(high << bits) | (low >>> (32 - bits)), (low << bits) | (high >>> (32 - bits))];
}

function times(high: number, low: number, factor: readonly [number, number]): Half {
  const a0 = low & 0xffff;
  const a1 = low >>> 16;
  const b0 = factor[1] & 0xffff;
  const b1 = factor[1] >>> 16;
  const p00 = Math.imul(a0, b0) >>> 0;
  const p01 = Math.imul(a0, b1) >>> 0;
  const p10 = Math.imul(a1, b0) >>> 0;
  const middle = (p00 >>> 16) + (p01 & 0xffff) + (p10 & 0xffff);
  const crossed = Math.imul(high, factor[1]) + Math.imul(low, factor[0]);
  return [
    (Math.imul(a1, b1) + (p01 >>> 16) + (p10 >>> 16) + (middle >>> 16) + crossed) | 0,
    (middle << 16) | (p00 & 0xffff),
  ];
}

/** rotate(acc + input × P2, 31) × P1 */
function round(accHigh: number, accLow: number, high: number, low: number): Half {
  const [productHigh, productLow] = times(high, low, P2);
  const [sumHigh, sumLow] = add(accHigh, accLow, productHigh, productLow);
  return times(...rotate(sumHigh, sumLow, 31), P1);
}
