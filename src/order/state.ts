/**
 * State: what a training job must keep to go on exactly (design §4.4, end). JSON, the same on all ranks,
 * 64-bit integers as decimal strings. World size, batch size, accumulation, G and weights may differ at load; the seed may
 * not, and a view only if shards were appended.
 *
 * @example
 * const state = stateOf(plan, position);
 * const plan = planOrder(job, parseState(JSON.parse(text)));
 */
import * as z from "zod";
import { StateInvalid } from "./errors.ts";
import { MOST_LANES } from "./resolve.ts";
import { WEIGHT_SUM } from "./schedule.ts";
import { Timeline } from "./timeline.ts";
import type { OrderState, Segment, SourceEntry } from "./types.ts";

/** Far above any state of this version; keeps hostile input from being parsed at length. */
const MAX_CHARACTERS = 64 * 1024;

const u64 = z.string().regex(/^(0|[1-9][0-9]{0,19})$/, "must be a decimal string");
const count = z.number().int().min(0).max(Number.MAX_SAFE_INTEGER);
const positive = count.min(1);
const lanes = positive.max(MOST_LANES);
/** Phases and ramp of one job have at most 1024 each. */
const MOST_SEGMENTS = 4096;

const StateSchema = z.strictObject({
  version: z.literal(1),
  seed: u64,
  position: u64,
  sources: z
    .array(
      z.strictObject({
        name: z.string().max(4096),
        view: z.string().regex(/^[0-9a-f]{32}$/, "must be 32 hex digits"),
        samples: u64,
        L: lanes,
        window: positive,
        extent: count,
        shuffle: z.enum(["window", "global", "none"]),
      }),
    )
    .min(1)
    .max(1024),
  segments: z
    .array(
      z.strictObject({
        from: u64,
        sources: z.array(count).min(1),
        weights: z.array(positive.max(WEIGHT_SUM)).min(1),
        L: lanes,
        last: z.enum(["carry", "drop", "pad"]),
        G: positive,
      }),
    )
    .min(1)
    .max(MOST_SEGMENTS),
});

/** The state of a run at a position. */
export function stateOf(
  { seed, entries, segments }: { seed: bigint; entries: readonly SourceEntry[]; segments: readonly Segment[] },
  position: number,
): OrderState {
  return {
    version: 1,
    seed: String(seed),
    position: String(position),
    sources: entries.map(({ name, view, samples, lanes, window, extentBlocks, shuffle }) => ({
      name,
      view,
      samples: String(samples),
      L: lanes,
      window,
      extent: extentBlocks,
      shuffle,
    })),
    segments: segments.map(({ from, sources, weights, lanes, last, globalBatch }) => ({
      from: String(from),
      sources: [...sources],
      weights: [...weights],
      L: lanes,
      last,
      G: globalBatch,
    })),
  };
}

export function entriesOf(state: OrderState): SourceEntry[] {
  return state.sources.map(({ name, view, samples, L, window, extent, shuffle }) => ({
    name,
    view,
    samples: Number(samples),
    lanes: L,
    window,
    extentBlocks: extent,
    shuffle,
  }));
}

export function segmentsOf(state: OrderState): Segment[] {
  return state.segments.map(({ from, sources, weights, L, last, G }) => ({
    from: Number(from),
    sources: [...sources],
    weights: [...weights],
    lanes: L,
    last,
    globalBatch: G,
  }));
}

/** Where the state's positions lie. */
export function timelineOf(entries: readonly SourceEntry[], segments: readonly Segment[]): Timeline {
  return new Timeline(
    entries.map(({ name }) => name),
    entries,
    segments,
  );
}

/** Validates a state of unknown origin: an object, or its JSON text. Throws ATH_STATE_INVALID with the field. */
export function parseState(input: unknown, file?: string): OrderState {
  const where = file === undefined ? {} : { file };
  const remedy = "give what `state_dict()` returned, unchanged";
  let value = input;
  if (typeof input === "string") {
    if (input.length > MAX_CHARACTERS) {
      throw new StateInvalid(
        `state is too long: found ${input.length} characters, expected at most ${MAX_CHARACTERS}`,
        where,
        remedy,
      );
    }
    try {
      value = JSON.parse(input);
    } catch (error) {
      throw new StateInvalid("state is not JSON", where, remedy, error);
    }
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new StateInvalid("state is not a JSON object", where, remedy);
  }
  const version: unknown = "version" in value ? value.version : undefined;
  if (version !== 1) {
    const newer = typeof version === "number" && version > 1;
    throw new StateInvalid(
      `state has an unknown version: found ${JSON.stringify(version) ?? "none"}, expected 1`,
      where,
      newer ? "use the version of Athanor that wrote it, or a newer one" : remedy,
    );
  }
  const parsed = StateSchema.safeParse(value);
  if (!parsed.success) {
    const issue = parsed.error.issues[0]!;
    throw new StateInvalid(`state field ${issue.path.join(".") || "(top)"}: ${issue.message}`, where, remedy);
  }
  const state: OrderState = parsed.data;
  for (const [name, text] of numbers(state)) {
    if (name === "seed" ? BigInt(text) >= 1n << 64n : !Number.isSafeInteger(Number(text))) {
      throw new StateInvalid(`state field ${name} is out of range: found ${text}`, where, remedy);
    }
  }
  checkSegments(state, where, remedy);
  return state;
}

/** What the arithmetic of a timeline relies on. */
function checkSegments({ sources, segments }: OrderState, where: { file?: string }, remedy: string): void {
  let end = -1;
  for (const [s, { from, sources: numbers, weights, L, last }] of segments.entries()) {
    const refuse = (what: string): never => {
      throw new StateInvalid(`state segment ${s} ${what}`, where, remedy);
    };
    const missing = numbers.find((number) => number >= sources.length);
    if (missing !== undefined) refuse(`names source ${missing}, but there are ${sources.length}`);
    if (new Set(numbers).size !== numbers.length) refuse("names a source twice");
    const sum = weights.reduce((a, b) => a + b, 0);
    if (weights.length !== numbers.length || sum !== WEIGHT_SUM) {
      refuse(`must have one weight a source, of sum ${WEIGHT_SUM}: found ${weights.join(", ")}`);
    }
    if (Number(from) <= end) refuse(`begins at ${from}, not behind the one before it`);
    end = Number(from);
    if (last !== segments[0]!.last) refuse(`has last="${last}", the one before it "${segments[0]!.last}"`);
    if (last === "pad" && (segments.length > 1 || numbers.length > 1)) refuse('has last="pad" and is not all there is');
    const uneven = numbers.find((number) => L % sources[number]!.L !== 0);
    if (numbers.length > 1 && uneven !== undefined)
      refuse(`has ${L} lanes, which those of source ${uneven} do not divide`);
  }
}

function* numbers(state: OrderState): Generator<[string, string]> {
  yield ["seed", state.seed];
  yield ["position", state.position];
  for (const [i, { samples }] of state.sources.entries()) yield [`sources.${i}.samples`, samples];
  for (const [i, { from }] of state.segments.entries()) yield [`segments.${i}.from`, from];
}

/** Where the state stands in its epoch, in optimizer batches. `into`: samples of the batch in progress. */
export function progressOf(state: OrderState): { epoch: number; done: number; epochSteps: number; into: number } {
  const segments = segmentsOf(state);
  const { epochs } = timelineOf(entriesOf(state), segments);
  const position = Number(state.position);
  const epoch = epochs.epochOf(position);
  const begin = epochs.begin(epoch);
  const { from, globalBatch } = segments.findLast((segment) => segment.from <= position) ?? segments[0]!;
  const into = (position - Math.max(begin, from)) % globalBatch;
  return {
    epoch,
    done: epochs.batchesIn(begin, position - into),
    epochSteps: epochs.batchesIn(begin, epochs.begin(epoch + 1)),
    into,
  };
}
