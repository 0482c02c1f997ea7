/**
 * Residency: how many rows and raw bytes a node holds to serve an order, and how large its reads are. One place for the
 * feed, which reserves it, and for `plan`, which says it beforehand.
 *
 *   a lane      its window, the rows of a step, and the largest block, so that the rows in need always have a place
 *   all lanes   together four reads more, so that reads can be large
 *
 * An evaluation (`pad`) makes do with one read more and the least of raw bytes: it runs beside training.
 *
 * @example
 * const rows = residentRows(order, view, 8, { sessions: 8, batch: 32, step: 256, random: false, evaluation: false });
 */
import type { SourceOrder } from "./source-order.ts";
import type { OrderView } from "./types.ts";

/** A read ends with the block that reaches this: direct on Lustre 2.17, and costs exactly what is asked. */
export const READ_BYTES = 8 * 1024 * 1024;
/** Blocks are 4 MiB give or take a record, so reads are 8 to 12 MiB. */
export const READ_BLOCKS = 3;
export const READ_MOST = READ_BLOCKS * 4 * 1024 * 1024;
/** Reads under way at a time that may go beyond the lanes' own room. */
const SHARED_READS = 4;
const EVALUATION_READS = 1;
/** `none` has no windows: rows are read ahead in runs of this many, or of a read where rows are large. */
const PLAIN_WINDOW = 4096;
/** Bytes that reads under way may hold: ten reads keep a Lustre client with several OSTs busy. */
const RAW_BYTES = 128 * 1024 * 1024;
/** A set of few bytes needs fewer. */
const LEAST_RAW_BYTES = 32 * 1024 * 1024;
/** Room for alignment, and for rows that are read singly. */
const SMALL_READS = 1024 * 1024;
/** Batches that a session's slots hold ahead of the trainer, unless they are very large. */
const SLOTS = 8;
const SEGMENT_BYTES = 256 * 1024 * 1024;

export interface WindowSizes {
  /** Rows that are loaded together. */
  window: number;
  /** Rows of a lane's own room: a batch is handed over when all its rows are there, and they end inside a window. */
  capacity: number;
  /** Rows of one read at most. */
  maxRows: number;
  /** Rows that lanes may borrow beyond their own room, together. */
  shared: number;
}

export function windowSizes(order: SourceOrder, view: OrderView, { step, evaluation }: Readers): WindowSizes {
  const block = Math.max(view.largestBlock, 1);
  const plain = Math.min(PLAIN_WINDOW, Math.floor(READ_BYTES / Math.max(view.rowBytes, 1)));
  const window = order.resolved.shuffle === "none" ? Math.max(block, plain) : order.resolved.window;
  const maxRows = READ_BLOCKS * block;
  const capacity = Math.min(window, order.laneRows(0)) + inStep(order, step) - 1 + order.apart + block;
  const reads = evaluation ? EVALUATION_READS : SHARED_READS;
  return { window, capacity, maxRows, shared: reads * maxRows };
}

/** Rows of a lane in a step, at most. Lanes can differ by a row in each pass that a step goes through. */
function inStep(order: SourceOrder, step: number): number {
  const rest = step % order.samples;
  const passes = (step - rest) / order.samples;
  if (passes === 0) return Math.ceil(step / order.lanes);
  return passes * order.laneRows(0) + Math.min(order.laneRows(0), Math.ceil(rest / order.lanes) + 1);
}

export interface Readers {
  /** Sessions of this node that read rows of their own (peers of a rank share theirs). */
  sessions: number;
  batch: number;
  /** Samples of a step over all ranks of all nodes. */
  step: number;
  /** Rows by request instead of an order. */
  random: boolean;
  /** Padded epochs, read beside training. */
  evaluation: boolean;
}

/** Rows fetched one by one: those of a batch while windows fill, all of them where nothing else is read. */
export function singleRows(order: SourceOrder, { sessions, batch, random }: Readers): number {
  const single = sessions * batch * (random ? 8 : 4) + 1024;
  const { shuffle, held } = order.resolved;
  return !random && shuffle === "global" && !held ? single + sessions * batch * 32 : single;
}

/** Rows a node holds. `lanes`: those that its ranks read from. */
export function residentRows(order: SourceOrder, view: OrderView, lanes: number, readers: Readers): number {
  const single = singleRows(order, readers);
  const { shuffle, held } = order.resolved;
  if (readers.random) return single;
  if (held) return single + order.samples;
  if (shuffle === "global") return single;
  const { capacity, shared } = windowSizes(order, view, readers);
  return single + lanes * capacity + shared;
}

/** Bytes of reads under way; two of the largest reads always fit. */
export function rawBytes(view: OrderView, { evaluation }: Pick<Readers, "evaluation">, largestBlock = 0): number {
  const enough = Math.min(
    evaluation ? LEAST_RAW_BYTES : RAW_BYTES,
    Math.max(LEAST_RAW_BYTES, Math.ceil(view.bytes / 8)),
  );
  const raw = Math.max(enough, 2 * (READ_BYTES + Math.ceil(1.1 * largestBlock)));
  // Several small validation sets: none of them can be read in more than all its bytes and a word for each record.
  const all = 2 * (view.bytes + 4 * view.samples) + SMALL_READS;
  return evaluation && view.streams !== true ? Math.min(raw, all) : raw;
}

/** Slots of a session. */
export function slotsOf(slotBytes: number): number {
  return Math.max(2, Math.min(SLOTS, Math.floor(SEGMENT_BYTES / slotBytes)));
}
