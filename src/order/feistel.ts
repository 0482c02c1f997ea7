/**
 * Feistel: the `global` order, a permutation of 0 … n − 1 that needs no memory (design §4.4.1).
 * Eight rounds on ⌈log₂ n⌉ bits, rounded up to even (at least 2); the round function is `mix` with the
 * fields (seed, purpose 3, source, epoch, lane 0, window = round, i = right half), cut to half the bits.
 * A value ≥ n is sent through again until it falls below n (at most 4 tries on average).
 *
 * @example
 * const sample = new Feistel(1234n, 0, epoch, samples).at(p);
 */
import { OrderPosition } from "./errors.ts";
import { Mixer, PURPOSE } from "./mix.ts";

const ROUNDS = 8;

export class Feistel {
  readonly #n: number;
  readonly #mask: number;
  readonly #scale: number;
  readonly #rounds: Mixer[] = [];
  readonly #one = new Mixer();

  constructor(seed: bigint, source: number, epoch: number, n: number) {
    let half = 1;
    while (4 ** half < n) half++;
    this.#n = n;
    this.#scale = 2 ** half;
    this.#mask = this.#scale - 1;
    const prefix = new Mixer().bigint(seed).number(PURPOSE.feistel).number(source).number(epoch).number(0);
    for (let round = 0; round < ROUNDS; round++) this.#rounds.push(prefix.copy().number(round));
  }

  /** Sample number served at place p of the epoch, 0 ≤ p < n: from any other place the walk might never end. */
  at(p: number): number {
    if (!(p >= 0 && p < this.#n)) throw new OrderPosition(`place ${p} is outside the ${this.#n} samples of the pass`);
    let value = p;
    do value = this.#pass(value);
    while (value >= this.#n);
    return value;
  }

  #pass(value: number): number {
    const one = this.#one;
    let left = Math.floor(value / this.#scale);
    let right = value % this.#scale;
    for (let round = 0; round < ROUNDS; round++) {
      const prefix = this.#rounds[round]!;
      one.hi = prefix.hi;
      one.lo = prefix.lo;
      one.absorb(0, right);
      const next = (left ^ (one.lo & this.#mask)) >>> 0;
      left = right;
      right = next;
    }
    return left * this.#scale + right;
  }
}
