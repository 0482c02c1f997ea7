/**
 * Epochs: arithmetic of positions, epochs and steps under `carry`, `drop` and `pad` (design §4.4.5–6).
 *
 * Two notions of epoch: the *pass* in which a sample lies, and the *epoch* of the loader, which consists of whole
 * optimizer batches and so may begin a little later than its pass (`carry`). For one source and one G:
 *
 *   carry  E = N           B(e) = from + ⌈e·N/G⌉·G
 *   drop   E = ⌊N/G⌋·G     B(e) = from + e·E
 *   pad    E = N           B(e) = from + e·N; a step ends with the epoch, so the last one may be short
 *
 * In general A(e), where E samples of epoch e − 1 are done, lies in a span of epochs of one length, and B(e) is the first
 * border at or after A(e) of optimizer batches of one size.
 *
 * @example
 * const epochs = new Epochs([{ from: 0, epoch: 0, into: 0, length: 100_000 }], [{ from: 0, size: 256 }], "carry");
 * epochs.begin(3);  epochs.steps(3, 64);
 */
import { OrderPosition } from "./errors.ts";
import type { LastRule } from "./types.ts";

/** ⌊a / b⌋ of whole numbers, exact below 2^53. */
export function quotient(a: number, b: number): number {
  return (a - (a % b)) / b;
}

/** From `from` on epochs have one length; `into` samples of `epoch` are done there. */
export interface EpochSpan {
  from: number;
  epoch: number;
  into: number;
  length: number;
}

/** From `from` on optimizer batches have one size. */
export interface BatchSpan {
  from: number;
  size: number;
}

export class Epochs {
  readonly spans: readonly EpochSpan[];
  readonly batches: readonly BatchSpan[];
  readonly last: LastRule;
  readonly from: number;

  /** Spans by position, the first of both at the same one. */
  constructor(spans: readonly EpochSpan[], batches: readonly BatchSpan[], last: LastRule) {
    this.spans = spans;
    this.batches = batches;
    this.last = last;
    this.from = spans[0]!.from;
  }

  /** B(e): first position of the loader's epoch e. */
  begin(epoch: number): number {
    const at = this.checked(this.#ends(epoch));
    if (this.last === "pad") return at;
    const { from, size } = spanOf(this.batches, at);
    return this.checked(from + quotient(at - from + size - 1, size) * size);
  }

  /** The loader's epoch that holds the position: the greatest e with B(e) ≤ position. */
  epochOf(position: number): number {
    this.checked(position);
    let at = position;
    if (this.last !== "pad") {
      const { from, size } = spanOf(this.batches, position);
      at -= (position - from) % size;
    }
    const { from, epoch, into, length } = spanOf(this.spans, at);
    return epoch + quotient(into + at - from, length);
  }

  /** Steps of S positions in [B(e), B(e + 1)); S divides G (save with `pad`, where the last step may be short). */
  steps(epoch: number, step: number): number {
    const positions = this.begin(epoch + 1) - this.begin(epoch);
    return quotient(this.last === "pad" ? positions + step - 1 : positions, step);
  }

  /** End of the step that begins at a position: + S, or the epoch's end with `pad`. */
  stepEnd(start: number, step: number): number {
    const end = this.checked(start + step);
    return this.last === "pad" ? Math.min(end, this.begin(this.epochOf(start) + 1)) : end;
  }

  /** Optimizer batches that begin in positions [from, to), the first of them at `from`. */
  batchesIn(from: number, to: number): number {
    let count = 0;
    for (const [s, span] of this.batches.entries()) {
      const begin = Math.max(from, span.from);
      const end = Math.min(to, this.batches[s + 1]?.from ?? Infinity);
      if (end > begin) count += quotient(end - begin + span.size - 1, span.size);
    }
    return count;
  }

  /** Samples of the optimizer batch that holds a position. */
  batchAt(position: number): number {
    return spanOf(this.batches, position).size;
  }

  /** Throws ATH_ORDER_POSITION for what is no position of this order. */
  checked(value: number): number {
    if (Number.isSafeInteger(value) && value >= this.from) return value;
    throw new OrderPosition(
      `position is outside the order: found ${value}, expected a whole number from ${this.from} to 2^53 − 1`,
    );
  }

  /** A(e): where the samples of the epochs before e are done. */
  #ends(epoch: number): number {
    for (const [s, { from, epoch: present, into, length }] of this.spans.entries()) {
      const at = from + (epoch - present) * length - into;
      const next = this.spans[s + 1];
      // The epoch in progress at the very first position began there.
      if (next === undefined || at < next.from) return Math.max(at, this.from);
    }
    return this.from;
  }
}

/** The last span that begins at or before a position. */
function spanOf<T extends { from: number }>(spans: readonly T[], position: number): T {
  let at = spans.length - 1;
  while (at > 0 && spans[at]!.from > position) at--;
  return spans[at]!;
}
