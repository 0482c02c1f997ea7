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
import { quotient, type Epochs } from "./epochs.ts";
import { OrderOption } from "./errors.ts";
import { entriesOf, segmentsOf, timelineOf } from "./state.ts";
import type { OrderState } from "./types.ts";

/** One of three ways to say how much. Whole numbers from 1. */
export type SkipAmount = { batches: number } | { samples: number } | { fromStep: number; toStep: number };

export interface Skipped {
  state: OrderState;
  /** Positions [from, to) are left out. */
  from: number;
  to: number;
  /** False: how many optimizer steps came before is not known any more, and the numbers of steps are too small or too large. */
  counted: boolean;
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
    counted: borders.counted,
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
  if (!borders.counted) {
    throw new OrderOption(
      "the state does not know how many optimizer steps there were: the global batch changed in an earlier epoch, and of several changes it keeps the last",
      {},
      "say how much to leave out by batches or samples",
    );
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
  readonly counted: boolean;
  /** Segments with the number of their first border. */
  readonly #spans: { from: number; size: number; first: number }[] = [];
  /** Optimizer batches of one epoch where epochs end with a short one; undefined: only segments end. */
  readonly #perEpoch: number | undefined;

  constructor(state: OrderState) {
    const segments = segmentsOf(state);
    this.epochs = timelineOf(entriesOf(state), segments).epochs;
    let first = 0;
    for (const [s, { from, globalBatch }] of segments.entries()) {
      const before = this.#spans[s - 1];
      if (before !== undefined) first += quotient(from - before.from, before.size);
      this.#spans.push({ from, size: globalBatch, first });
    }
    this.counted = !mayHaveForgotten(state, this.epochs);
    this.#perEpoch = this.epochs.last === "pad" ? this.epochs.steps(0, segments[0]!.globalBatch) : undefined;
  }

  at(border: number): number {
    const { from, size, first } = this.#spans.findLast((span) => span.first <= border)!;
    if (this.#perEpoch === undefined) return this.epochs.checked(from + (border - first) * size);
    const epoch = quotient(border, this.#perEpoch);
    return this.epochs.begin(epoch) + (border - epoch * this.#perEpoch) * size;
  }

  /** The last border at or before a position. */
  before(position: number): number {
    // The first call of every way in: throws for a position before the segment.
    const epoch = this.epochs.epochOf(position);
    const { from, size, first } = this.#spans.findLast((span) => span.from <= position)!;
    if (this.#perEpoch === undefined) return first + quotient(position - from, size);
    return epoch * this.#perEpoch + quotient(position - this.epochs.begin(epoch), size);
  }

  /** The first border at or after a position. */
  after(position: number): number {
    const before = this.before(position);
    return this.at(before) === position ? before : before + 1;
  }
}

/** Of segments that differ in G only a state keeps those of its epoch, and before them the first and the last (`Plan`). */
function mayHaveForgotten(state: OrderState, epochs: Epochs): boolean {
  const begin = epochs.begin(epochs.epochOf(Math.max(Number(state.position), epochs.from)));
  return state.segments.some((segment, s, all) => {
    const before = all[s - 1];
    return (
      before?.last === "carry" &&
      before.G !== segment.G &&
      before.sources.join() === segment.sources.join() &&
      before.weights.join() === segment.weights.join() &&
      Number(segment.from) < begin
    );
  });
}

function whole(name: string, value: number, least: number): number {
  if (Number.isSafeInteger(value) && value >= least) return value;
  throw new OrderOption(`${name} must be a whole number ≥ ${least}, found ${value}`);
}
