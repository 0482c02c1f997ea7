/** Spans: which bytes of a block hold some of its records, through the restart offsets of the index. */
import { lastAtMost } from "../base/search.ts";
import type { BlockTable } from "../formats/types.ts";
import { RESTART_EVERY } from "../formats/types.ts";

/** Contiguous bytes of a shard (of its decompressed stream), and the records that begin in them. */
export interface Span {
  offset: number;
  length: number;
  firstRecord: number;
  records: number;
}

/** Block that holds record `record` of the shard. */
export function blockOf(table: BlockTable, record: number): number {
  return lastAtMost(table.firstRecord, table.blocks, record);
}

/**
 * The smallest span of block `block` that holds records [from, to) of the shard. It may begin up to 63 records
 * earlier and end up to 63 later: those are skipped by the decoder.
 */
export function spanOf(table: BlockTable, block: number, from: number, to: number): Span {
  const first = table.firstRecord[block] as number;
  const last = table.firstRecord[block + 1] as number;
  const segment = table.segmentStart[block] as number;
  const base = table.segmentOffset[segment] as number;
  const bytes = table.segmentLength[segment] as number;
  const restart = table.restartStart[block] as number;
  const restarts = (table.restartStart[block + 1] as number) - restart;
  const head = Math.floor((from - first) / RESTART_EVERY);
  const tail = Math.ceil((to - first) / RESTART_EVERY);
  const start = table.restarts[restart + head] as number;
  const end = tail < restarts ? (table.restarts[restart + tail] as number) : bytes;
  const firstRecord = first + head * RESTART_EVERY;
  return {
    offset: base + start,
    length: end - start,
    firstRecord,
    records: Math.min(last, first + tail * RESTART_EVERY) - firstRecord,
  };
}
