/**
 * State: what a training job must keep to go on exactly (design §4.4, end). JSON, the same on all ranks,
 * 64-bit integers as decimal strings; under 1 KiB plus 150 bytes a source. World size, batch size and
 * accumulation may differ at load; the view, the seed and the global batch may not.
 *
 * @example
 * const state = stateOf(resolved, position, { name: "data", view: fp, samples: 100_000 });
 * const { resolved, position } = checkState(parseState(JSON.parse(text)), view, options);
 */
import * as z from "zod";
import { Epochs, quotient } from "./epochs.ts";
import { StateInvalid, StateMismatch } from "./errors.ts";
import { isHeld, refuseStreams, resolveOrder } from "./resolve.ts";
import type { OrderOptions, OrderState, OrderView, ResolvedOrder } from "./types.ts";

const WEIGHT_SUM = 65536;
/** Far above any state of this version; keeps hostile input from being parsed at length. */
const MAX_CHARACTERS = 64 * 1024;

const u64 = z.string().regex(/^(0|[1-9][0-9]{0,19})$/, "must be a decimal string");
const count = z.number().int().min(0).max(Number.MAX_SAFE_INTEGER);
const positive = count.min(1);

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
      }),
    )
    .min(1)
    .max(1024),
  segments: z
    .array(
      z.strictObject({
        from: u64,
        sources: z.array(z.strictObject({ view: count, weight: count.max(WEIGHT_SUM), offset: z.array(count) })).min(1),
        L: positive,
        window: positive,
        extent: count,
        shuffle: z.enum(["window", "global", "none"]),
        last: z.enum(["carry", "drop", "pad"]),
        G: positive,
      }),
    )
    .min(1),
});

/** What a state says of its source. */
export interface SourceIdentity {
  name: string;
  /** View fingerprint. */
  view: string;
  samples: number;
}

/** The state of one source in one segment at a position. */
export function stateOf(resolved: ResolvedOrder, position: number, source: SourceIdentity): OrderState {
  return {
    version: 1,
    seed: String(resolved.seed),
    position: String(position),
    sources: [{ name: source.name, view: source.view, samples: String(source.samples) }],
    segments: [
      {
        from: String(resolved.from),
        // No earlier segment: every lane had delivered nothing of the source.
        sources: [{ view: 0, weight: WEIGHT_SUM, offset: [] }],
        L: resolved.lanes,
        window: resolved.window,
        extent: resolved.extentBlocks,
        shuffle: resolved.shuffle,
        last: resolved.last,
        G: resolved.globalBatch,
      },
    ],
  };
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
  for (const [s, segment] of state.segments.entries()) {
    for (const { view } of segment.sources) {
      if (view >= state.sources.length) {
        throw new StateInvalid(
          `state segment ${s} names source ${view}, but there are ${state.sources.length}`,
          where,
          remedy,
        );
      }
    }
  }
  return state;
}

function* numbers(state: OrderState): Generator<[string, string]> {
  yield ["seed", state.seed];
  yield ["position", state.position];
  for (const [i, { samples }] of state.sources.entries()) yield [`sources.${i}.samples`, samples];
  for (const [i, { from }] of state.segments.entries()) yield [`segments.${i}.from`, from];
}

/**
 * The order to go on with: what the state's segment holds wins over the options. Throws ATH_STATE_MISMATCH if
 * view, seed or global batch differ; with `override` a new segment begins at the next optimizer-batch border
 * of the state instead, with the options as they are.
 */
export function checkState(
  state: OrderState,
  view: OrderView,
  options: OrderOptions,
  override = false,
): { resolved: ResolvedOrder; position: number } {
  const source = state.sources[0]!;
  const segment = state.segments[0]!;
  const position = Number(state.position);
  const from = Number(segment.from);
  if (state.segments.length > 1 || state.sources.length > 1) {
    throw new StateMismatch(
      `state has ${state.sources.length} sources and ${state.segments.length} segments; this version reads one of each`,
      {},
      "use the version of Athanor that wrote it",
    );
  }
  if (position < from)
    throw new StateInvalid(`state position ${position} lies before its segment, which begins at ${from}`);
  const differs: string[] = [];
  const compare = (what: string, found: string, expected: string) => {
    if (found !== expected) differs.push(`${what}: state has ${found}, this job has ${expected}`);
  };
  compare("view fingerprint (data, columns, max_length or tokenizer)", source.view, view.fingerprint);
  compare("samples", source.samples, String(view.samples));
  compare("seed", state.seed, String(options.seed));
  compare("samples of one optimizer batch", String(segment.G), String(options.globalBatch));
  if (differs.length > 0) {
    if (!override) {
      throw new StateMismatch(
        `the state belongs to another order (${differs.join("; ")})`,
        {},
        "use the data, seed and global batch of the run that wrote it, or override=True to begin a new order here",
      );
    }
    const begin = from + Math.ceil((position - from) / segment.G) * segment.G;
    return { resolved: resolveOrder(view, { ...options, from: begin }), position: begin };
  }
  const held = segment.shuffle === "global" && isHeld(view, options.shuffleMemory);
  refuseStreams(view, segment.shuffle, held);
  const resolved: ResolvedOrder = {
    seed: options.seed,
    shuffle: segment.shuffle,
    held,
    lanes: segment.L,
    window: segment.window,
    extentBlocks: segment.extent,
    last: segment.last,
    globalBatch: segment.G,
    from,
  };
  return { resolved, position };
}

/** Where the state stands in its epoch, in optimizer batches. `into`: samples of the batch in progress. */
export function progressOf(state: OrderState): { epoch: number; done: number; epochSteps: number; into: number } {
  const segment = state.segments.at(-1)!;
  const { G, last } = segment;
  const epochs = new Epochs(Number(state.sources[0]!.samples), { globalBatch: G, last, from: Number(segment.from) });
  const position = Number(state.position);
  const epoch = epochs.epochOf(position);
  const offset = position - epochs.begin(epoch);
  return { epoch, done: quotient(offset, G), epochSteps: epochs.steps(epoch, G), into: offset % G };
}
