/**
 * Seeded damage of bytes: bit flips, values that parsers fear, cuts, splices, insertions.
 *
 * @example
 * const { bytes, what } = damage(valid, [valid, other], generator(1)); // what: "flip bit 3 of byte 17"
 */

/** An integer of [0, below). */
export type Random = (below: number) => number;

export interface Damage {
  bytes: Uint8Array;
  what: string;
}

/** Mulberry32. */
export function generator(seed: number): Random {
  let state = seed >>> 0;
  return (below) => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return Math.floor((((t ^ (t >>> 14)) >>> 0) / 4294967296) * below);
  };
}

const FEARED = [0x00, 0x01, 0x7f, 0x80, 0xfe, 0xff];

/** One piece of damage; `donors`: other bytes that pieces are taken from. */
export function damage(valid: Uint8Array, donors: readonly Uint8Array[], random: Random): Damage {
  const size = valid.length;
  if (size === 0)
    return { bytes: new Uint8Array(donors[random(donors.length)]!.subarray(0, 64)), what: "bytes into an empty file" };
  // Heads and tails hold the structure of most formats.
  const place = (): number =>
    [random(size), random(size), random(Math.min(size, 256)), size - 1 - random(Math.min(size, 256))][random(4)]!;
  // A Buffer's own `slice` would share its memory.
  const bytes = new Uint8Array(valid);
  const at = place();
  switch (random(8)) {
    case 0:
    case 1: {
      const bit = random(8);
      bytes[at]! ^= 1 << bit;
      return { bytes, what: `flip bit ${bit} of byte ${at}` };
    }
    case 2: {
      const value = FEARED[random(FEARED.length)]!;
      const length = [1, 2, 4, 8][random(4)]!;
      bytes.fill(value, at, at + length);
      return { bytes, what: `${length} bytes ${value} at ${at}` };
    }
    case 3:
      return { bytes: new Uint8Array(valid.subarray(0, at)), what: `cut at ${at} of ${size}` };
    case 4: {
      const length = 1 + random(Math.min(size - at, 64));
      return { bytes: join(valid.subarray(0, at), valid.subarray(at + length)), what: `${length} bytes out at ${at}` };
    }
    case 5: {
      const donor = donors[random(donors.length)]!;
      const from = random(donor.length);
      const piece = donor.subarray(from, from + 1 + random(256));
      bytes.set(piece.subarray(0, size - at), at);
      return { bytes, what: `${piece.length} bytes of a donor's ${from} over ${at}` };
    }
    case 6: {
      const donor = donors[random(donors.length)]!;
      const from = random(donor.length);
      const piece = donor.subarray(from, from + 1 + random(64));
      const spliced = join(join(valid.subarray(0, at), piece), valid.subarray(at));
      return { bytes: spliced, what: `${piece.length} bytes of a donor's ${from} put in at ${at}` };
    }
    default: {
      const donor = donors[random(donors.length)]!;
      const from = random(donor.length + 1);
      return { bytes: join(valid.subarray(0, at), donor.subarray(from)), what: `to ${at}, then a donor from ${from}` };
    }
  }
}

function join(a: Uint8Array, b: Uint8Array): Uint8Array {
  const both = new Uint8Array(a.length + b.length);
  both.set(a);
  both.set(b, a.length);
  return both;
}
