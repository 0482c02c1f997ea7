/**
 * Resolve: from what a user may set to what the state holds (design §4.4.2–4 and 8). Needs the view's totals
 * only, and nothing of a node: no memory limit, no rank, no time.
 *
 *   lanes   the largest power of two ≤ min(64, ⌊blocks/4⌋), at least 1; `lanes` overrides it
 *   extent  clamp(bytes / (16·L), one block, 256 MiB) in blocks of mean size; from 64 blocks on, whole runs of 64
 *   window  max(⌊shuffleMemory / (L · rowBytes)⌋, the largest sample count of a block); `window` overrides it
 *   held    the whole view fits `shuffleMemory`: `global`, decoded once and kept in memory
 *
 * @example
 * resolveOrder(view, { seed: 1234n, globalBatch: 256 }); // { shuffle: "window", lanes: 64, window: 4096, … }
 */
import { OrderOption, OrderStream } from "./errors.ts";
import { WEIGHT_SUM } from "./schedule.ts";
import type { OrderOptions, OrderView, ResolvedOrder, ResolvedSource, SourceOptions } from "./types.ts";

export const DEFAULT_SHUFFLE_MEMORY = 1024 ** 3;
const MAX_LANES = 64;
/** Of `lanes`: each takes some hundred bytes in every agent, used or not. */
export const MOST_LANES = 65536;
const MAX_EXTENT_BYTES = 256 * 1024 ** 2;
/** Blocks of one run of `shards.bin`: extents this large need no block tables. */
export const RUN_BLOCKS = 64;

/** Whether all rows of the view fit the shuffle memory. */
export function isHeld(view: OrderView, shuffleMemory = DEFAULT_SHUFFLE_MEMORY): boolean {
  return view.samples * view.rowBytes <= shuffleMemory;
}

export function defaultLanes(view: OrderView): number {
  const most = Math.min(MAX_LANES, Math.floor(view.blocks / 4));
  let lanes = 1;
  while (lanes * 2 <= most) lanes *= 2;
  return lanes;
}

function extentBlocks(view: OrderView, lanes: number): number {
  // Of the mean block, rounded: shards of 1 GiB less a few bytes must still give runs of 64 blocks.
  const mean = Math.max(view.bytes / Math.max(view.blocks, 1), 1);
  const blocks = Math.round(Math.min(view.bytes / (16 * lanes), MAX_EXTENT_BYTES) / mean);
  return blocks >= RUN_BLOCKS ? blocks - (blocks % RUN_BLOCKS) : Math.max(blocks, 1);
}

function whole(name: string, value: number, least: number, most = Number.MAX_SAFE_INTEGER): number {
  if (Number.isSafeInteger(value) && value >= least && value <= most) return value;
  const range = most === Number.MAX_SAFE_INTEGER ? `≥ ${least}` : `from ${least} to ${most}`;
  throw new OrderOption(`${name} must be a whole number ${range}, found ${value}`);
}

/** Throws ATH_ORDER_OPTION for numbers that cannot be, ATH_ORDER_STREAM for `global` over a stream too large to hold. */
export function resolveOrder(view: OrderView, options: OrderOptions): ResolvedOrder {
  const globalBatch = whole("globalBatch", options.globalBatch, 1);
  const from = whole("from", options.from ?? 0, 0);
  return { ...resolveSource(view, options), last: options.last ?? "carry", globalBatch, from };
}

/** The part of it that belongs to the source alone. */
export function resolveSource(view: OrderView, options: SourceOptions): ResolvedSource {
  const { seed, unit = "extent" } = options;
  const shuffleMemory = whole("shuffleMemory", options.shuffleMemory ?? DEFAULT_SHUFFLE_MEMORY, 0);
  whole("view.samples", view.samples, 1);
  if (seed < 0n || seed >= 1n << 64n) throw new OrderOption(`seed must be from 0 to 2^64 − 1, found ${seed}`);

  let shuffle = options.shuffle ?? "window";
  const free = options.lanes === undefined && options.window === undefined;
  const held = isHeld(view, shuffleMemory) && (shuffle === "global" || (shuffle === "window" && free));
  if (held) shuffle = "global";
  refuseStreams(view, shuffle, held);

  if (shuffle !== "window" && !free) {
    throw new OrderOption(`lanes and window belong to shuffle="window", found shuffle="${shuffle}"`);
  }
  const lanes = shuffle === "window" ? whole("lanes", options.lanes ?? defaultLanes(view), 1, MOST_LANES) : 1;
  let window = 1;
  if (shuffle === "global") window = view.samples;
  else if (shuffle === "window") {
    const fits = Math.floor(shuffleMemory / (lanes * Math.max(view.rowBytes, 1)));
    window = whole("window", options.window ?? Math.max(fits, view.largestBlock, 1), 1);
  }
  return { seed, shuffle, held, lanes, window, extentBlocks: unit === "shard" ? 0 : extentBlocks(view, lanes) };
}

/**
 * A source of a mixture of `lanes` lanes: by its share of the shuffle memory, in the largest divisor of `lanes` that is
 * at most what it would have by itself.
 */
export function resolveShare(view: OrderView, options: SourceOptions, weight: number, lanes: number): ResolvedSource {
  const { lanes: _, ...others } = options;
  const own = { ...others, shuffleMemory: share(options.shuffleMemory, weight) };
  const alone = resolveSource(view, own);
  if (alone.shuffle !== "window") return alone;
  let fits = Math.min(alone.lanes, view.samples, lanes);
  while (lanes % fits !== 0) fits--;
  return fits === alone.lanes ? alone : resolveSource(view, { ...own, lanes: fits });
}

/** Bytes of the shuffle memory for a source of this weight (of 65536). */
export function share(shuffleMemory: number | undefined, weight: number): number {
  return Math.floor(((shuffleMemory ?? DEFAULT_SHUFFLE_MEMORY) * weight) / WEIGHT_SUM);
}

/** Random reads of a stream would decode it from its beginning for each sample. */
export function refuseStreams(view: OrderView, shuffle: string, held: boolean): void {
  if (shuffle !== "global" || held || view.streams !== true) return;
  throw new OrderStream(
    `shuffle="global" cannot read gzip or zlib shards at random, and the view does not fit shuffle_memory: ` +
      `${view.samples} samples × ${view.rowBytes} bytes`,
    {},
    'use shuffle="window", more shuffle_memory, or uncompressed shards',
  );
}
