/**
 * Epochs: arithmetic of positions, epochs and steps under `carry`, `drop` and `pad` (design §4.4.5–6).
 *
 * Two notions of epoch: the *pass* in which a sample lies, ⌊(P − from)/E⌋, and the *epoch* of the loader,
 * which consists of whole optimizer batches and so may begin a little later than its pass (`carry`).
 *
 *   carry  E = N           B(e) = from + ⌈e·N/G⌉·G
 *   drop   E = ⌊N/G⌋·G     B(e) = from + e·E
 *   pad    E = N           B(e) = from + e·N; a step ends with the epoch, so the last one may be short
 *
 * @example
 * const epochs = new Epochs(100_000, resolved);
 * epochs.begin(3);  epochs.steps(3, 64);
 */
import { OrderOption, OrderPosition } from "./errors.ts";
import type { LastRule, ResolvedOrder } from "./types.ts";

/** ⌊a / b⌋ of whole numbers, exact below 2^53. */
export function quotient(a: number, b: number): number {
  return (a - (a % b)) / b;
}

export class Epochs {
  readonly samples: number;
  /** E: positions of one pass. */
  readonly length: number;
  readonly globalBatch: number;
  readonly from: number;
  readonly last: LastRule;

  constructor(samples: number, resolved: Pick<ResolvedOrder, "globalBatch" | "from" | "last">) {
    const { globalBatch, from, last } = resolved;
    this.samples = samples;
    this.globalBatch = globalBatch;
    this.from = from;
    this.last = last;
    this.length = last === "drop" ? quotient(samples, globalBatch) * globalBatch : samples;
    if (this.length < 1) {
      throw new OrderOption(
        samples < 1
          ? "the data set has no samples"
          : `last="drop" drops everything: found ${samples} samples, expected at least one optimizer batch of ${globalBatch}`,
        {},
        samples < 1 ? "check the path and the columns" : 'use last="carry", a smaller global batch, or more data',
      );
    }
  }

  /** B(e): first position of the loader's epoch e. */
  begin(epoch: number): number {
    const g = this.globalBatch;
    const offset =
      this.last === "carry" ? quotient(this.#checked(epoch * this.length) + g - 1, g) * g : epoch * this.length;
    return this.#checked(this.from + offset);
  }

  /** The loader's epoch that holds the position: the greatest e with B(e) ≤ position. */
  epochOf(position: number): number {
    const x = this.#checked(position) - this.from;
    if (x < 0) this.#refuse(position);
    if (this.last !== "carry") return quotient(x, this.length);
    const g = this.globalBatch;
    return quotient(x - (x % g), this.length);
  }

  /** Steps of S positions in [B(e), B(e + 1)); S divides G (save with `pad`, where the last step may be short). */
  steps(epoch: number, step: number): number {
    if (this.last === "pad") return quotient(this.length + step - 1, step);
    return quotient(this.begin(epoch + 1) - this.begin(epoch), step);
  }

  /** End of the step that begins at a position: + S, or the epoch's end with `pad`. */
  stepEnd(start: number, step: number): number {
    const end = this.#checked(start + step);
    return this.last === "pad" ? Math.min(end, this.begin(this.epochOf(start) + 1)) : end;
  }

  /** Pass and place in the pass of a position. */
  split(position: number): { pass: number; place: number } {
    const x = position - this.from;
    if (!(x >= 0) || !Number.isSafeInteger(position)) this.#refuse(position);
    const place = x % this.length;
    return { pass: (x - place) / this.length, place };
  }

  #checked(value: number): number {
    if (!Number.isSafeInteger(value)) this.#refuse(value);
    return value;
  }

  #refuse(value: number): never {
    throw new OrderPosition(
      `position is outside the order: found ${value}, expected a whole number from ${this.from} to 2^53 − 1`,
    );
  }
}
