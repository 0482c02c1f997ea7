/**
 * Layout: the extents of one pass, permuted and laid end to end (design §4.4.2–3).
 *
 *   laid      0 ────────┬──────────┬───── … ─┤ N
 *   extent    perm[0]   perm[1]    perm[2]
 *   lanes     ├── lane 0 ──┼── lane 1 ──┼── …      stretches of ⌈N/L⌉ or ⌊N/L⌋ laid samples
 */
import { lastAtMost } from "../base/search.ts";
import type { Mixer } from "./mix.ts";
import { permutation } from "./mix.ts";
import type { ExtentTable } from "./types.ts";

/** Contiguous samples of one extent. */
export interface Piece {
  extent: number;
  /** First sample, counted in the extent. */
  first: number;
  count: number;
}

export class Layout {
  /** Rank in the layout → extent. Undefined: file order. */
  readonly #perm: Uint32Array | undefined;
  /** First laid sample of each rank; one more entry than extents. */
  readonly #start: Float64Array;

  /** `chance` undefined: file order (`none`, `global`). */
  constructor(extents: ExtentTable, chance: Mixer | undefined) {
    const { count, sampleStart } = extents;
    if (chance === undefined) {
      this.#perm = undefined;
      this.#start = sampleStart;
      return;
    }
    const perm = permutation(chance, count);
    const start = new Float64Array(count + 1);
    let at = 0;
    for (let r = 0; r < count; r++) {
      const x = perm[r]!;
      start[r] = at;
      at += sampleStart[x + 1]! - sampleStart[x]!;
    }
    start[count] = at;
    this.#perm = perm;
    this.#start = start;
  }

  extentAt(rank: number): number {
    return this.#perm === undefined ? rank : this.#perm[rank]!;
  }

  start(rank: number): number {
    return this.#start[rank]!;
  }

  /** The rank whose extent holds a laid sample. */
  rankOf(laid: number): number {
    return lastAtMost(this.#start, this.#start.length - 1, laid);
  }

  /** Laid samples [from, to) as pieces of extents, in reading order. */
  pieces(from: number, to: number): Piece[] {
    const result: Piece[] = [];
    if (from >= to) return result;
    for (let rank = this.rankOf(from), at = from; at < to; rank++) {
      const start = this.start(rank);
      const stop = Math.min(this.start(rank + 1), to);
      if (stop > at) result.push({ extent: this.extentAt(rank), first: at - start, count: stop - at });
      at = Math.max(at, stop);
    }
    return result;
  }
}
