/**
 * Skip: moves a state forward over samples that shall not be trained on (loss-spike surgery), always to a border of an
 * optimizer batch, so that the batches behind it are those of the unbroken run. Only the position changes: the order
 * stays, and nothing is served in another place.
 *
 * Optimizer step n (from 1) is the n-th optimizer batch of the order: with `carry` and `drop` positions
 * [from + (n − 1)·G, from + n·G); with `pad` the last one of an epoch may be short.
 *
 * @example
 * skip(state, { batches: 20 }); // { state, from: 640, to: 960, firstStep: 41, lastStep: 60, extra: 0, … }
 */
import { Epochs, quotient } from "./epochs.ts";
import { OrderOption, StateMismatch } from "./errors.ts";
import type { OrderState } from "./types.ts";

/** One of three ways to say how much. Whole numbers from 1. */
export type SkipAmount = { batches: number } | { samples: number } | { fromStep: number; toStep: number };

export interface Skipped {
  state: OrderState;
  /** Positions [from, to) are left out. */
  from: number;
  to: number;
  /** Optimizer steps left out; the first one only in part where `from` lies inside it. */
  firstStep: number;
  lastStep: number;
  /** Samples beyond what was asked for, up to the border of an optimizer batch. */
  extra: number;
  /** Samples of optimizer step `firstStep` that lie before `from`. */
  into: number;
  /** Epochs in which the two positions lie. */
  epochs: [before: number, after: number];
}

/** Throws ATH_ORDER_OPTION for an amount that cannot be, ATH_ORDER_POSITION beyond 2^53. */
export function skip(state: OrderState, amount: SkipAmount): Skipped {
  const borders = new Borders(state);
  const from = Number(state.position);
  const done = borders.before(from);
  const into = from - borders.at(done);
  const { to, extra } = target(borders, from, amount);
  return {
    state: { ...state, position: String(to) },
    from,
    to,
    firstStep: done + 1,
    lastStep: borders.before(to),
    extra,
    into,
    epochs: [borders.epochs.epochOf(from), borders.epochs.epochOf(to)],
  };
}

/**
 * The state `consumed` samples behind `start`, at the next border of an optimizer batch; `extra`: samples up to there.
 * `consumed` may be 0.
 */
export function advance(start: OrderState, consumed: number): { state: OrderState; extra: number } {
  const borders = new Borders(start);
  const wanted = Number(start.position) + whole("consumed samples", consumed, 0);
  const to = borders.at(borders.after(wanted));
  return { state: { ...start, position: String(to) }, extra: to - wanted };
}

function target(borders: Borders, from: number, amount: SkipAmount): { to: number; extra: number } {
  if ("samples" in amount) {
    const wanted = from + whole("samples", amount.samples, 1);
    const to = borders.at(borders.after(wanted));
    return { to, extra: to - wanted };
  }
  if ("batches" in amount) {
    const batches = whole("batches", amount.batches, 1);
    // The rest of a batch that was begun is left out too, and is not counted: what was asked for are whole ones.
    const first = borders.after(from);
    return { to: borders.at(first + batches), extra: borders.at(first) - from };
  }
  const fromStep = whole("the first step", amount.fromStep, 1);
  const toStep = whole("the last step", amount.toStep, fromStep);
  const done = borders.before(from);
  if (fromStep > done + 1) {
    throw new OrderOption(
      `the state stands after optimizer step ${done}: leaving out ${fromStep} to ${toStep} would leave out ${done + 1} to ${fromStep - 1}, too`,
      {},
      `take the checkpoint of step ${fromStep - 1}, or begin at step ${done + 1}`,
    );
  }
  const to = borders.at(toStep);
  if (to <= from) {
    throw new OrderOption(
      `there is nothing to leave out: the state stands after optimizer step ${done}, found ${fromStep} to ${toStep}`,
      {},
      "take a checkpoint from before these steps",
    );
  }
  return { to, extra: 0 };
}

/** Borders of optimizer batches: border k lies behind the first k of them. */
class Borders {
  readonly epochs: Epochs;
  readonly #globalBatch: number;
  /** Optimizer batches of one epoch where epochs end with a short one; undefined: all are of one size. */
  readonly #perEpoch: number | undefined;

  constructor(state: OrderState) {
    if (state.segments.length > 1 || state.sources.length > 1) {
      throw new StateMismatch(
        `state has ${state.sources.length} sources and ${state.segments.length} segments; only a state with one of each can be moved`,
        {},
        "use the version of Athanor that wrote it",
      );
    }
    const { G, last, from } = state.segments[0]!;
    const options = { globalBatch: G, last, from: Number(from) };
    this.epochs = new Epochs(Number(state.sources[0]!.samples), options);
    this.#globalBatch = G;
    this.#perEpoch = last === "pad" ? this.epochs.steps(0, G) : undefined;
  }

  at(border: number): number {
    if (this.#perEpoch === undefined) return this.epochs.stepEnd(this.epochs.from, border * this.#globalBatch);
    const epoch = quotient(border, this.#perEpoch);
    return this.epochs.begin(epoch) + (border - epoch * this.#perEpoch) * this.#globalBatch;
  }

  /** The last border at or before a position. */
  before(position: number): number {
    // The first call of every way in: throws for a position before the segment.
    const epoch = this.epochs.epochOf(position);
    if (this.#perEpoch === undefined) return quotient(position - this.epochs.from, this.#globalBatch);
    return epoch * this.#perEpoch + quotient(position - this.epochs.begin(epoch), this.#globalBatch);
  }

  /** The first border at or after a position. */
  after(position: number): number {
    const before = this.before(position);
    return this.at(before) === position ? before : before + 1;
  }
}

function whole(name: string, value: number, least: number): number {
  if (Number.isSafeInteger(value) && value >= least) return value;
  throw new OrderOption(`${name} must be a whole number ≥ ${least}, found ${value}`);
}
