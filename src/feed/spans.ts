/** Spans: which bytes hold some of the records of a block: by restart offsets where it has some, else all wanted segments. */
import { lastAtMost } from "../base/search.ts";
import type { BlockTable } from "../formats/types.ts";
import { RESTART_EVERY } from "../formats/types.ts";

/** Contiguous bytes of one file of a shard (of its decompressed stream). */
export interface Piece {
  file: number;
  offset: number;
  length: number;
  field: number;
}

/** The bytes that hold some records of a block, and the records that they hold. */
export interface Span {
  pieces: Piece[];
  /** Of all pieces. */
  length: number;
  firstRecord: number;
  records: number;
  /** The pieces are packed: see `BlockTable`. */
  origin?: number | undefined;
}

/** Can the block only be read whole? */
export function isReadWhole(table: BlockTable, block: number): boolean {
  return table.origin !== undefined || table.restartStart[block] === table.restartStart[block + 1];
}

/**
 * Offsets, from the first byte of a span, of its records 0, 64, 128 …; none where blocks can only be read whole. Packed: those of
 * the block, as they are in the table.
 */
export function restartsOf(table: BlockTable, block: number, { firstRecord, records }: Span): Uint32Array {
  const from = table.restartStart[block] as number;
  if (table.origin !== undefined) return table.restarts.slice(from, table.restartStart[block + 1]);
  if (from === table.restartStart[block + 1]) return new Uint32Array(0);
  const first = from + (firstRecord - (table.firstRecord[block] as number)) / RESTART_EVERY;
  const restarts = table.restarts.slice(first, first + Math.ceil(records / RESTART_EVERY));
  const begin = restarts[0] as number;
  return restarts.map((restart) => restart - begin);
}

/** Block that holds record `record` of the shard. */
export function blockOf(table: BlockTable, record: number): number {
  return lastAtMost(table.firstRecord, table.blocks, record);
}

/**
 * The smallest span of block `block` that holds records [from, to) of the shard. With restarts it may begin up to 63 records
 * earlier and end up to 63 later, without it is the whole block: what is not wanted is skipped by the decoder. `wants`:
 * fields of the shard that are delivered, undefined: all.
 */
export function spanOf(
  table: BlockTable,
  block: number,
  from: number,
  to: number,
  wants?: (field: number) => boolean,
): Span {
  const first = table.firstRecord[block] as number;
  const last = table.firstRecord[block + 1] as number;
  const restart = table.restartStart[block] as number;
  const restarts = (table.restartStart[block + 1] as number) - restart;
  const pieces: Piece[] = [];
  for (let s = table.segmentStart[block] as number; s < (table.segmentStart[block + 1] as number); s++) {
    const field = table.segmentField[s] as number;
    if (field > 0 && wants !== undefined && !wants(field)) continue;
    pieces.push({
      file: table.segmentFile[s] as number,
      offset: table.segmentOffset[s] as number,
      length: table.segmentLength[s] as number,
      field,
    });
  }
  if (isReadWhole(table, block)) {
    const length = pieces.reduce((sum, piece) => sum + piece.length, 0);
    return { pieces, length, firstRecord: first, records: last - first, origin: table.origin?.[block] };
  }
  const piece = pieces[0] as Piece;
  const head = Math.floor((from - first) / RESTART_EVERY);
  const tail = Math.ceil((to - first) / RESTART_EVERY);
  const start = table.restarts[restart + head] as number;
  const end = tail < restarts ? (table.restarts[restart + tail] as number) : piece.length;
  const firstRecord = first + head * RESTART_EVERY;
  const records = Math.min(last, first + tail * RESTART_EVERY) - firstRecord;
  return {
    pieces: [{ ...piece, offset: piece.offset + start, length: end - start }],
    length: end - start,
    firstRecord,
    records,
  };
}
