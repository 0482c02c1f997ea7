/**
 * Schedule: which source the rows of a mixture come from: Tijdeman's chairman assignment over integer weights of sum
 * 65536, repeated (R. Tijdeman, "The chairman assignment problem", Discrete Mathematics 32, 1980). In every prefix
 * the count of a source is within 1 of its share, and so within 2 in every stretch of rows.
 *
 * @example
 * const schedule = new Schedule([45875, 13107, 6554]);
 * schedule.at(0);            // the source of row 0, by its place in the list
 * schedule.count(1, 1000);   // rows of source 1 among rows 0 … 999
 * schedule.nth(1, 7);        // the row that is its eighth
 */
import { lastAtMost } from "../base/search.ts";
import { OrderOption } from "./errors.ts";

/** Weights are whole numbers of this sum: the period of the schedule. */
export const WEIGHT_SUM = 65536;

export class Schedule {
  readonly weights: readonly number[];
  /** Source of each row of the period. */
  readonly #sources: Uint16Array;
  /** Rows of each source in the period, ascending. */
  readonly #rows: Uint16Array[];
  /** Earlier rows of the same source in the period, by row. */
  readonly #ranks = new Uint16Array(WEIGHT_SUM);

  /** `weights`: whole numbers from 1, sum 65536. */
  constructor(weights: readonly number[]) {
    const sum = weights.reduce((a, b) => a + b, 0);
    if (sum !== WEIGHT_SUM || weights.some((w) => !Number.isInteger(w) || w < 1)) {
      throw new OrderOption(`weights must be whole numbers ≥ 1 of sum ${WEIGHT_SUM}, found ${weights.join(", ")}`);
    }
    this.weights = weights;
    this.#sources = assign(weights);
    this.#rows = weights.map((weight) => new Uint16Array(weight));
    const filled = new Uint32Array(weights.length);
    this.#sources.forEach((source, row) => {
      this.#ranks[row] = filled[source]!;
      this.#rows[source]![filled[source]!++] = row;
    });
  }

  /** Source of a row. */
  at(row: number): number {
    return this.#sources[row % WEIGHT_SUM]!;
  }

  /** Earlier rows of the row's own source: `count(at(row), row)` without a search. */
  rank(row: number): number {
    const rest = row % WEIGHT_SUM;
    return ((row - rest) / WEIGHT_SUM) * this.weights[this.#sources[rest]!]! + this.#ranks[rest]!;
  }

  /** Rows of a source among rows [0, end). */
  count(source: number, end: number): number {
    const rest = end % WEIGHT_SUM;
    const weight = this.weights[source]!;
    const rows = this.#rows[source]!;
    const inside = rest === 0 || rows[0]! >= rest ? 0 : lastAtMost(rows, weight, rest - 1) + 1;
    return ((end - rest) / WEIGHT_SUM) * weight + inside;
  }

  /** The row that is the source's n-th, from 0. */
  nth(source: number, n: number): number {
    const weight = this.weights[source]!;
    const rest = n % weight;
    return ((n - rest) / weight) * WEIGHT_SUM + this.#rows[source]![rest]!;
  }
}

function assign(weights: readonly number[]): Uint16Array {
  const n = weights.length;
  const result = new Uint16Array(WEIGHT_SUM);
  if (n === 1) return result;
  // All terms times 65536 · (2n − 2): whole numbers below 2^45 for up to 1024 sources, so the comparison is exact.
  const due = new Float64Array(n);
  for (let row = 0; row < WEIGHT_SUM; row++) {
    let chosen = -1;
    let best = 0;
    for (let i = 0; i < n; i++) {
      const weight = weights[i]!;
      due[i]! += (2 * n - 2) * weight;
      if (due[i]! < WEIGHT_SUM) continue;
      const left = (2 * n - 3) * WEIGHT_SUM - due[i]!;
      if (chosen < 0 || left * weights[chosen]! < best * weight) {
        chosen = i;
        best = left;
      }
    }
    result[row] = chosen;
    due[chosen]! -= (2 * n - 2) * WEIGHT_SUM;
  }
  return result;
}

/**
 * Whole weights of sum 65536 by largest remainder (equal ones: the first). Weights of 0 stay 0; throws
 * ATH_ORDER_OPTION for a weight that is no number from 0, for a sum of 0, and for one too small to count.
 */
export function wholeWeights(weights: readonly number[]): number[] {
  const sum = weights.reduce((a, b) => a + b, 0);
  if (weights.some((w) => !Number.isFinite(w) || w < 0) || !(sum > 0) || !Number.isFinite(sum)) {
    throw new OrderOption(`weights must be numbers ≥ 0 that are not all 0, found ${weights.join(", ")}`);
  }
  const exact = weights.map((w) => (w * WEIGHT_SUM) / sum);
  const whole = exact.map(Math.floor);
  const rest = WEIGHT_SUM - whole.reduce((a, b) => a + b, 0);
  const byFraction = exact
    .map((x, i) => ({ i, fraction: x - whole[i]! }))
    .sort((a, b) => b.fraction - a.fraction || a.i - b.i);
  for (const { i } of byFraction.slice(0, rest)) whole[i]!++;
  const lost = weights.findIndex((w, i) => w > 0 && whole[i] === 0);
  if (lost >= 0) {
    throw new OrderOption(
      `weight ${weights[lost]} of ${sum} is below 1/${WEIGHT_SUM}`,
      {},
      "raise it, or leave the source out",
    );
  }
  return whole;
}
