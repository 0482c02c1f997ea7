/** Placed runs: adjacent blocks of one shard laid out in the memory that their reads fill. */
import type { BlockTable } from "../formats/types.ts";
import { align } from "./memory.ts";
import type { RecordRun } from "./source.ts";
import type { Span } from "./spans.ts";
import { spanOf } from "./spans.ts";

/** Bytes behind the raw bytes that a kernel may load (never use) beyond their end. */
export const SLACK = 32;

/** A run with its span, and where in the reserved bytes each piece of that lies. */
export interface PlacedRun {
  run: RecordRun;
  span: Span;
  places: number[];
}

/** Bytes that are read at once, to `place` in the reserved bytes. */
export interface PlacedRead {
  file: number;
  offset: number;
  length: number;
  place: number;
}

export interface PlacedRuns {
  shard: number;
  runs: PlacedRun[];
  reads: PlacedRead[];
  /** Where the tables of rows begin, one behind the other, 64-byte aligned. */
  rowsAt: number;
  /** Bytes to reserve for all. */
  need: number;
}

/** Lays out adjacent blocks of one shard in memory: pieces that lie side by side in a file are one read. */
export function placeRuns(
  table: BlockTable,
  runs: readonly RecordRun[],
  wants: ((field: number) => boolean) | undefined,
): PlacedRuns {
  const placed: PlacedRun[] = [];
  const reads: PlacedRead[] = [];
  let end = 0;
  let rows = 0;
  let largest = 0;
  for (const run of runs) {
    const span = spanOf(table, run.block, run.from, run.to, wants);
    const places = span.pieces.map(({ file, offset, length }) => {
      const last = reads.at(-1);
      if (last !== undefined && last.file === file && last.offset + last.length === offset) {
        last.length += length;
      } else {
        end = align(end, 64);
        reads.push({ file, offset, length, place: end });
      }
      end += length;
      return end - length;
    });
    placed.push({ run, span, places });
    const tableBytes = align(span.records * 4, 64);
    rows += tableBytes;
    largest = Math.max(largest, align(span.length + SLACK, 64) + tableBytes);
  }
  const rowsAt = align(end + SLACK, 64);
  return {
    shard: (runs[0] as RecordRun).shard,
    runs: placed,
    reads,
    rowsAt,
    // A stream gives one block after the other, all into the same place.
    need: table.stream ? largest : rowsAt + rows,
  };
}
