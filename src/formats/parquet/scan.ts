/**
 * Scan: a Parquet shard as blocks. Every page is read and decoded once; blocks end where pages of the largest column do, about
 * every 4 MiB of stored bytes, whatever the size of a row group. Pages of other columns can lie on such a border: then they
 * belong to both blocks, and `meta.skips` says how many records of the first page belong to the block before.
 *
 * Contract: memory is a block of decoded pages, and the pages that lie on its borders.
 *
 * @example
 * for await (const block of scan(shard, { kernels })) console.log(block.records);
 */
import { AthanorError } from "../../base/errors.ts";
import {
  BLOCK_BYTES,
  type BlockColumns,
  type Column,
  type IndexOptions,
  type ScanEnd,
  type ScannedBlock,
  type ShardFiles,
} from "../types.ts";
import { sliceRows, toColumn } from "./block.ts";
import { withoutUnfit } from "../stats.ts";
import { Cursor } from "./cursor.ts";
import { type Footer, type Group, readFooter } from "./footer.ts";
import { type ParquetMeta, packSkip, skipsText } from "./meta.ts";
import { nestedColumn } from "./nested.ts";
import { recordsOf } from "./record.ts";
import { bytesOf } from "./values.ts";

/** How large blocks become. */
export interface BlockLimits {
  /** Stored bytes of all fields together. */
  storedBytes: number;
  /** Decoded bytes of the largest column: pages that compress 100 fold are not gathered up to 4 MiB. */
  decodedBytes: number;
  /** The largest block decides how large the shuffle window must be: columns of one small number pack millions in 4 MiB. */
  records: number;
  /** Text of all columns, repeated out of dictionaries. */
  textBytes: number;
}

export const LIMITS: BlockLimits = {
  storedBytes: BLOCK_BYTES,
  decodedBytes: 16 * 1024 * 1024,
  records: 65_536,
  textBytes: 64 * 1024 * 1024,
};

/** Of all columns' reads together. */
const READ_BYTES = 32 * 1024 * 1024;

export async function* scan(
  { object }: ShardFiles,
  options: IndexOptions,
  limits: BlockLimits = LIMITS,
): AsyncGenerator<ScannedBlock, ScanEnd> {
  const footer = await readFooter(object);
  const { fields, leaves, nested, left } = footer.schema;
  const skips: number[] = [];
  let firstRecord = 0;
  let read = 0;
  const progress = (bytes: number): void => options.progress?.((read += bytes));
  for (const [g, group] of footer.groups.entries()) {
    if (group.rows === 0) continue;
    const cursors = leaves.map(
      (leaf, i) =>
        new Cursor({
          object,
          leaf,
          chunk: group.chunks[i]!,
          rows: group.rows,
          firstRecord,
          column: `row group ${g}, column "${leaf.path}"`,
          limit: footer.end,
          readBytes: Math.min(4 * 1024 * 1024, Math.max(64 * 1024, Math.floor(READ_BYTES / leaves.length))),
          progress,
        }),
    );
    yield* scanGroup(footer, group, cursors, firstRecord, skips, limits);
    firstRecord += group.rows;
  }
  const meta: ParquetMeta = {
    fields: fields.map(({ name }) => name),
    columns: fields.map((field) => ({ ...field, leaf: leaves[field.leaf]! })),
    skips: skipsText(skips),
    ...(Object.keys(nested).length > 0 && { nested }),
  };
  return { encoding: "plain", crc32c: footer.crc32c, meta: { ...meta }, notColumns: left };
}

async function* scanGroup(
  { schema }: Footer,
  { rows, chunks }: Group,
  cursors: readonly Cursor[],
  firstRecord: number,
  skips: number[],
  limits: BlockLimits,
): AsyncGenerator<ScannedBlock> {
  const { fields } = schema;
  // Leaves that can be delivered; where there are none, all.
  const counted = fields.length > 0 ? fields.map(({ leaf }) => leaf) : chunks.map((_, i) => i);
  const size = (i: number): number => chunks[i]!.end - chunks[i]!.start;
  const total = counted.reduce((sum, i) => sum + size(i), 0);
  const lead = counted.reduce((best, i) => (size(i) > size(best) ? i : best), counted[0]!);
  const share = total > 0 ? size(lead) / total : 1;
  let row = 0;
  while (row < rows) {
    let stop = 0;
    let fault: unknown;
    try {
      stop = await nextBorder(cursors[lead]!, row, rows, share, limits);
      for (const cursor of cursors) await cursor.cover(stop);
    } catch (error) {
      if (!(error instanceof AthanorError)) throw error;
      fault = error;
      stop = await wholeBefore(cursors, stop === 0 ? cursors[lead]!.whole : stop);
    }
    // Behind a fault all that is left comes in one block.
    if (stop > row) {
      if (fault === undefined) stop = row + fitting(cursors, row, stop, limits.textBytes);
      yield cut(schema, chunks, cursors, row, stop - row, firstRecord + row, skips);
    }
    if (fault !== undefined) throw fault;
    for (const cursor of cursors) cursor.drop(stop);
    row = stop;
  }
}

/** Behind a fault: records, `most` at most, that are whole in all columns. */
async function wholeBefore(cursors: readonly Cursor[], most: number): Promise<number> {
  let stop = most;
  for (const cursor of cursors) {
    try {
      await cursor.cover(stop);
    } catch (error) {
      if (!(error instanceof AthanorError)) throw error;
      stop = Math.min(stop, cursor.whole);
    }
  }
  return stop;
}

/** Where the block that begins at `row` ends: behind the page that fills it. */
async function nextBorder(
  cursor: Cursor,
  row: number,
  rows: number,
  share: number,
  limits: BlockLimits,
): Promise<number> {
  let stored = 0;
  let decoded = 0;
  for (let i = 0; ; i++) {
    if (i === cursor.pages.length && !(await cursor.next())) return rows;
    const page = cursor.pages[i]!;
    const stop = page.firstRow + page.rows;
    stored += page.length;
    decoded += page.entries * 4;
    if (stop - row >= limits.records) return row + limits.records;
    if (stop > row && (stored >= limits.storedBytes * share || decoded >= limits.decodedBytes)) return stop;
  }
}

/** The column as if those records did not have the field: the schema is made of the others. */
function leaveOut(column: Column, faults: ReadonlyMap<number, AthanorError>): void {
  const range = [...faults].filter(([, { code }]) => code === "ATH_VALUE_RANGE").sort(([a], [b]) => a - b);
  if (range.length > 0)
    withoutUnfit(
      column,
      range.map(([row]) => row),
      range[0]![1],
    );
  column.present = column.present?.slice() ?? new Uint8Array(column.ends.length).fill(1);
  for (const row of faults.keys()) column.present[row] = 0;
}

/** How many records of [row, stop) make no more text than a block may hold; 1 at least. */
function fitting(cursors: readonly Cursor[], row: number, stop: number, most: number): number {
  let text = 0;
  for (const cursor of cursors) {
    for (const { values, entries, rows, firstRow, def } of cursor.touching(stop)) {
      if (!("indices" in values)) continue;
      const share = Math.min(1, (stop - Math.max(row, firstRow)) / Math.max(1, rows));
      text += bytesOf(values, 0, def === undefined ? entries : values.indices.length) * share;
    }
  }
  const records = stop - row;
  return text <= most ? records : Math.max(1, Math.floor((records * most) / text));
}

function cut(
  schema: Footer["schema"],
  chunks: Group["chunks"],
  cursors: readonly Cursor[],
  row: number,
  records: number,
  firstRecord: number,
  skips: number[],
): ScannedBlock {
  const pages = cursors.map((cursor) => cursor.touching(row + records));
  const slices = cursors.map((cursor, i) => {
    const place = { ...cursor.place(), record: firstRecord, byteOffset: pages[i]![0]?.offset ?? 0 };
    const rows = sliceRows(schema.leaves[i]!, pages[i]!, row - (pages[i]![0]?.firstRow ?? 0), records, place);
    return { rows, place };
  });
  const columns: BlockColumns = { fields: new Map(), faults: new Map() };
  const segments: ScannedBlock["segments"][number][] = [];
  for (const [f, field] of schema.fields.entries()) {
    const own = pages[field.leaf]!;
    const { rows, place } = slices[field.leaf]!;
    if (field.json !== true) {
      const { column, faults } = toColumn(field, schema.leaves[field.leaf]!, rows, place);
      // A value that no column can hold is a fault of its record only where the field is asked for: `columns` tells of it.
      if (faults.size > 0) leaveOut(column, faults);
      columns.fields.set(field.name, column);
    }
    const { dictionary } = cursors[field.leaf]!;
    if (dictionary !== undefined && own.some(({ coded }) => coded)) segments.push({ ...dictionary, field: f + 1 });
    const first = own[0]!;
    const last = own.at(-1)!;
    segments.push({ file: 0, offset: first.offset, length: last.offset + last.length - first.offset, field: f + 1 });
    skips.push(packSkip(row - first.firstRow, chunks[field.leaf]!.codec));
  }
  for (const [name, node] of Object.entries(schema.nested)) {
    const own = schema.fields.filter((field) => field.name === name).map(({ leaf }) => leaf);
    const leaves = own.map((leaf) => schema.leaves[leaf]!);
    const rows = own.map((leaf) => slices[leaf]!.rows);
    columns.fields.set(name, nestedColumn(node, leaves, rows, records));
  }
  const record = recordsOf(
    schema,
    slices.map(({ rows }) => rows),
  );
  return { records, segments, restarts: [], columns, record };
}
