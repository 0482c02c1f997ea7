/**
 * Job: what a training job wants at which position, and the segments that make it so, behind those that a state tells of
 * (docs/reference/order.md, "Plan"). The past is the state's, what lies ahead is the job's.
 *
 * @example
 * const plan = planOrder({ sources, phases, ramp, options }, parseState(text));
 * plan.segments; plan.entries; plan.position;
 */
import { Epochs } from "./epochs.ts";
import { OrderOption, StateInvalid, StateMismatch } from "./errors.ts";
import { plainPieces } from "./plain.ts";
import { defaultLanes, isHeld, refuseStreams, resolveShare, resolveSource, share } from "./resolve.ts";
import { WEIGHT_SUM, wholeWeights } from "./schedule.ts";
import { entriesOf, segmentsOf, timelineOf } from "./state.ts";
import type {
  LastRule,
  OrderOptions,
  OrderState,
  OrderView,
  ResolvedSource,
  Segment,
  SourceEntry,
  SourceOptions,
} from "./types.ts";

export interface JobSource {
  name: string;
  view: OrderView;
  /** Views of the same data before shards were appended. @default none */
  past?: OrderView[];
}

/** From a position on. */
export interface Phase {
  from: number;
  /** One a source of the job, in samples; 0: the source rests. */
  weights: number[];
}

export interface Job {
  sources: JobSource[];
  /** Ascending, the first from 0. */
  phases: Phase[];
  /** G from a sample count on: ascending, the first from 0. */
  ramp: { from: number; size: number }[];
  options: SourceOptions & { last?: LastRule };
}

export interface PlannedOrder {
  seed: bigint;
  position: number;
  entries: SourceEntry[];
  segments: Segment[];
}

/**
 * Throws ATH_STATE_MISMATCH for a state of another seed or of other data; with `override` a new order begins at the
 * next optimizer-batch border of that state instead. ATH_ORDER_OPTION for what cannot be combined.
 */
export function planOrder(job: Job, state?: OrderState, override = false): PlannedOrder {
  refuseCombinations(job);
  const plan = new Plan(job);
  if (state === undefined) {
    plan.settle(0, 0);
    return plan.result(0);
  }
  const position = Number(state.position);
  plan.takeOver(state);
  const border = plan.border(position);
  const differs = differences(job, state, plan.entries);
  if (differs.length > 0) {
    if (!override) {
      throw new StateMismatch(
        `the state belongs to another order (${differs.join("; ")})`,
        {},
        "use the data and seed of the run that wrote it, or override=True to begin a new order here",
      );
    }
    const fresh = new Plan(job);
    fresh.settle(border, border);
    return fresh.result(border);
  }
  plan.settle(border, position);
  return plan.result(position);
}

/** The plan of a run of one source. */
export function planSingle(name: string, view: OrderView, options: OrderOptions, state?: OrderState): PlannedOrder {
  const { globalBatch, from: _, ...others } = options;
  const ramp = [{ from: 0, size: globalBatch }];
  return planOrder({ sources: [{ name, view }], phases: [{ from: 0, weights: [1] }], ramp, options: others }, state);
}

/** How a source of the plan is resolved for this job: as its entry says, and held where it fits the memory. */
export function resolvedEntry(
  plan: PlannedOrder,
  number: number,
  view: OrderView,
  options: SourceOptions,
): ResolvedSource {
  const { lanes, window, extentBlocks, shuffle } = plan.entries[number]!;
  const first = plan.segments.find(({ sources }) => sources.includes(number));
  const weight = first?.weights[first.sources.indexOf(number)] ?? WEIGHT_SUM;
  const held = shuffle === "global" && isHeld(view, share(options.shuffleMemory, weight));
  refuseStreams(view, shuffle, held);
  return { seed: plan.seed, shuffle, held, lanes, window, extentBlocks };
}

class Plan {
  entries: SourceEntry[] = [];
  segments: Segment[] = [];
  readonly #job: Job;

  constructor(job: Job) {
    this.#job = job;
  }

  /** What a state says of the past. */
  takeOver(state: OrderState): void {
    const position = Number(state.position);
    const all = segmentsOf(state);
    if (position < all[0]!.from) {
      throw new StateInvalid(`state position ${position} lies before its segment, which begins at ${all[0]!.from}`);
    }
    this.segments = all.filter(({ from }, s) => s === 0 || from < position);
    const known = Math.max(...this.segments.flatMap(({ sources }) => sources)) + 1;
    this.entries = entriesOf(state).slice(0, known);
  }

  /** First border of an optimizer batch at or after a position. */
  border(position: number): number {
    const last = this.segments.at(-1);
    if (last === undefined || position <= last.from) return last?.from ?? position;
    if (last.last === "pad") return this.#padBorder(last, position);
    return last.from + Math.ceil((position - last.from) / last.globalBatch) * last.globalBatch;
  }

  /** Adds the segments that the job wants from the border on. `position`: where the run stands. */
  settle(border: number, position: number): void {
    this.#want(border);
    const { phases, ramp } = this.#job;
    const events = [...phases, ...ramp].map(({ from }) => from).filter((from) => from > border);
    for (const event of [...new Set(events)].sort((a, b) => a - b)) {
      const at = this.border(event);
      // "Never", said with a number: positions end before it.
      if (Number.isSafeInteger(at)) this.#want(at);
    }
    this.#forget(position);
  }

  result(position: number): PlannedOrder {
    return { seed: this.#job.options.seed, position, entries: this.entries, segments: this.segments };
  }

  /** A segment at `at`, if what the job wants there is not in force already. */
  #want(at: number): void {
    const { options, ramp } = this.#job;
    const last = options.last ?? "carry";
    const globalBatch = lastFrom(ramp, at).size;
    const before = this.segments.at(-1);
    const replaced = before !== undefined && before.from === at;
    const earlier = replaced ? this.segments.at(-2) : before;
    const { wanted, weights } = this.#mixAt(at);
    const names = wanted.map(({ name }) => name);
    const mixed = earlier !== undefined && (this.#isMixed(earlier) || names[0] !== this.#nameOf(earlier));
    if (before !== undefined && this.#serves(before, wanted, weights)) {
      // With `pad` G is no part of the order; else what changes is G alone.
      if (before.globalBatch === globalBatch) return;
      if (replaced || before.last === "pad") before.globalBatch = globalBatch;
      else this.segments.push({ ...before, from: at, globalBatch });
      return;
    }
    if (replaced) {
      this.segments.pop();
      if (earlier === undefined) this.entries = [];
    }
    const lanes = names.length > 1 || mixed ? this.#lanes(earlier, at) : undefined;
    const sources = wanted.map((source, i) => this.#number(source, weights[i]!, lanes));
    this.segments.push({
      from: at,
      sources,
      weights,
      lanes: lanes ?? this.entries[sources[0]!]!.lanes,
      last: this.segments[0]?.last ?? last,
      globalBatch,
    });
  }

  #mixAt(at: number): { wanted: JobSource[]; weights: number[] } {
    const { phases, sources } = this.#job;
    const whole = wholeWeights(lastFrom(phases, at).weights);
    return { wanted: sources.filter((_, i) => whole[i]! > 0), weights: whole.filter((weight) => weight > 0) };
  }

  #serves(segment: Segment, wanted: readonly JobSource[], weights: readonly number[]): boolean {
    return (
      segment.sources.length === wanted.length &&
      segment.sources.every((number, i) => {
        const { name, view } = this.entries[number]!;
        return name === wanted[i]!.name && view === wanted[i]!.view.fingerprint && segment.weights[i] === weights[i];
      })
    );
  }

  #isMixed(segment: Segment): boolean {
    const first = this.#nameOf(this.segments[0]!);
    const upTo = this.segments.slice(0, this.segments.indexOf(segment) + 1);
    return upTo.some((s) => s.sources.length > 1 || this.#nameOf(s) !== first);
  }

  #nameOf(segment: Segment): string {
    return this.entries[segment.sources[0]!]!.name;
  }

  /** L: that of the mixed segments before, or enough for every source of the job. */
  #lanes(earlier: Segment | undefined, at: number): number {
    if (earlier !== undefined && this.#isMixed(earlier)) return earlier.lanes;
    const { sources, options, phases } = this.#job;
    const used = sources.filter((_, i) => phases.some(({ weights }) => weights[i]! > 0));
    const isWindow = (options.shuffle ?? "window") === "window";
    const most = isWindow ? Math.max(...used.map(({ view }) => Math.min(defaultLanes(view), view.samples))) : 1;
    let lanes = 1;
    if (earlier === undefined) {
      if (options.lanes !== undefined) return options.lanes;
    } else {
      const { standing } = plainPieces(this.entries, this.segments, at);
      lanes = leastCommonMultiple(this.entries[standing.view]!.lanes, this.entries[standing.next]!.lanes);
    }
    while (lanes < most) lanes *= 2;
    return lanes;
  }

  /** The number of a source, which joins if it is new. `lanes`: of a mixture. */
  #number({ name, view }: JobSource, weight: number, lanes: number | undefined): number {
    const found = this.entries.findLastIndex((entry) => entry.name === name && entry.view === view.fingerprint);
    if (found >= 0) return found;
    const { options } = this.#job;
    const resolved = lanes === undefined ? resolveSource(view, options) : resolveShare(view, options, weight, lanes);
    this.entries.push({
      name,
      view: view.fingerprint,
      samples: view.samples,
      lanes: resolved.lanes,
      window: resolved.window,
      extentBlocks: resolved.extentBlocks,
      shuffle: resolved.shuffle,
    });
    return this.entries.length - 1;
  }

  /** Segments between others that differ from them in G only, and end before the epoch begins, are no part of any formula. */
  #forget(position: number): void {
    if (this.segments.length < 3) return;
    const { epochs } = timelineOf(this.entries, this.segments);
    const begin = epochs.begin(epochs.epochOf(position));
    const same = (a: Segment, b: Segment): boolean =>
      a.last === "carry" && a.sources.join() === b.sources.join() && a.weights.join() === b.weights.join();
    this.segments = this.segments.filter((segment, s, all) => {
      const [before, after] = [all[s - 1], all[s + 1]];
      if (before === undefined || after === undefined || after.from >= begin) return true;
      return !(same(before, segment) && same(segment, after));
    });
  }

  #padBorder(segment: Segment, position: number): number {
    const { samples } = this.entries[segment.sources[0]!]!;
    const span = { from: segment.from, epoch: 0, into: 0, length: samples };
    const epochs = new Epochs([span], [{ from: segment.from, size: segment.globalBatch }], "pad");
    const begin = epochs.begin(epochs.epochOf(position));
    const end = begin + Math.ceil((position - begin) / segment.globalBatch) * segment.globalBatch;
    return Math.min(end, begin + samples);
  }
}

function refuseCombinations({ sources, phases, ramp, options }: Job): void {
  const { last = "carry" } = options;
  if (ramp.some(({ size }) => !Number.isSafeInteger(size) || size < 1)) {
    throw new OrderOption(
      `samples of an optimizer batch must be whole numbers ≥ 1, found ${ramp.map(({ size }) => size).join(", ")}`,
    );
  }
  for (const [what, list] of [["phases", phases] as const, ["ramp", ramp] as const]) {
    const ascends = list.every(
      ({ from }, i) => Number.isSafeInteger(from) && (i === 0 ? from === 0 : from > list[i - 1]!.from),
    );
    if (!ascends || list.length === 0) {
      throw new OrderOption(`${what} must begin at 0 and ascend, found ${list.map(({ from }) => from).join(", ")}`);
    }
  }
  if (last !== "carry" && ramp.length > 1) {
    throw new OrderOption(`a batch ramp needs last="carry", found last="${last}"`);
  }
  if (last === "pad" && (sources.length > 1 || phases.length > 1)) {
    throw new OrderOption('last="pad" needs one source: a mixture has no end', {}, "evaluate each source by itself");
  }
}

/** What is not the order's past: another seed, or other data under the same name. */
function differences({ sources, options }: Job, state: OrderState, entries: readonly SourceEntry[]): string[] {
  const differs: string[] = [];
  const compare = (what: string, found: string, expected: string): void => {
    if (found !== expected) differs.push(`${what}: state has ${found}, this job has ${expected}`);
  };
  compare("seed", state.seed, String(options.seed));
  // `pad` has one segment: it goes through one set, as it is.
  const padded = state.segments[0]!.last === "pad";
  for (const { name, view, past = [] } of sources) {
    const entry = entries.findLast((candidate) => candidate.name === name);
    if (entry === undefined) continue;
    if (!padded && past.some(({ fingerprint }) => fingerprint === entry.view)) continue;
    const of = sources.length > 1 ? ` of source ${name}` : "";
    compare(`view fingerprint${of} (data, columns, max_length or tokenizer)`, entry.view, view.fingerprint);
    if (entry.view === view.fingerprint) compare(`samples${of}`, String(entry.samples), String(view.samples));
  }
  if ((padded && sources.length > 1) || !sources.some(({ name }) => entries.some((entry) => entry.name === name))) {
    compare("sources", entries.map(({ name }) => name).join(", "), sources.map(({ name }) => name).join(", "));
  }
  return differs;
}

function lastFrom<T extends { from: number }>(list: readonly T[], position: number): T {
  return list.findLast(({ from }) => from <= position) ?? list[0]!;
}

function leastCommonMultiple(a: number, b: number): number {
  let [x, y] = [a, b];
  while (y > 0) [x, y] = [y, x % y];
  return (a / x) * b;
}
