/**
 * Piece rows: columns of rows out of the columns of a block's records, piece by piece.
 *
 * Contract: a record whose lists are not as long as its count is a fault of every row with a piece of it: its tokens would be
 * others than those that were counted. Rows that are not wanted are empty.
 *
 * @example
 * const records = await blockColumns(format, raw, features, pieces.restarts);
 * const { fields, faults } = rowsOfPieces(records, pieces, columns, (row) => rows[row] !== 0, file);
 */
import type { AthanorError } from "../base/errors.ts";
import { startOf } from "../formats/dense.ts";
import { RecordMalformed } from "../formats/errors.ts";
import type { BlockColumns, BlockPieces, Column, StoredColumn } from "../formats/types.ts";
import { DOCUMENTS_FEATURE } from "./piece-columns.ts";

/** Which records have pieces in the wanted rows. */
export function wantedRecords({ counts, start, record }: BlockPieces, wanted: (row: number) => boolean): Uint8Array {
  const records = new Uint8Array(counts.length);
  for (let row = 0; row + 1 < start.length; row++) {
    if (wanted(row)) for (let piece = start[row]!; piece < start[row + 1]!; piece++) records[record[piece]!] = 1;
  }
  return records;
}

export function rowsOfPieces(
  block: BlockColumns,
  pieces: BlockPieces,
  columns: readonly StoredColumn[],
  wanted: (row: number) => boolean,
  file: string,
): BlockColumns {
  const faults = new Map<number, AthanorError>();
  const { start, record } = pieces;
  const rows = start.length - 1;
  const features = new Set(columns.filter(({ required }) => !required).map(({ feature }) => feature));
  const scalars = columns.filter(({ required }) => required).map(({ feature }) => feature);
  const bad = badRecords(block, pieces, features, wantedRecords(pieces, wanted), file);
  for (let row = 0; row < rows; row++) {
    for (let piece = start[row]!; piece < start[row + 1]! && wanted(row); piece++) {
      const fault = bad.get(record[piece]!);
      if (fault !== undefined) faults.set(row, faults.get(row) ?? fault);
    }
  }
  const isTaken = (row: number): boolean => wanted(row) && !faults.has(row);
  const fields = new Map<string, Column>();
  for (const feature of features) {
    const column = feature === DOCUMENTS_FEATURE ? undefined : block.fields.get(feature);
    if (column !== undefined) fields.set(feature, gathered(column, pieces, isTaken));
  }
  for (const feature of scalars) {
    const column = block.fields.get(feature);
    if (column !== undefined) fields.set(feature, repeated(column, pieces, isTaken));
  }
  if (features.has(DOCUMENTS_FEATURE)) fields.set(DOCUMENTS_FEATURE, documents(pieces, isTaken));
  return { fields, faults };
}

/** Faults of the wanted records: their own, and lists of another length than was counted. */
function badRecords(
  { fields, faults }: BlockColumns,
  { counts, firstRecord }: BlockPieces,
  features: ReadonlySet<string>,
  wanted: Uint8Array,
  file: string,
): Map<number, AthanorError> {
  const bad = new Map<number, AthanorError>();
  for (let i = 0; i < counts.length; i++) {
    if (wanted[i] === 0) continue;
    const fault = faults.get(i);
    if (fault !== undefined) bad.set(i, fault);
    for (const feature of features) {
      if (feature === DOCUMENTS_FEATURE || bad.has(i)) continue;
      const found = lengthOf(fields.get(feature), i);
      if (found !== counts[i]) bad.set(i, otherLength(feature, found, counts[i]!, file, firstRecord + i));
    }
  }
  return bad;
}

function lengthOf(column: Column | undefined, i: number): number {
  if (column === undefined) return 0;
  return column.ends[i]! - startOf(column, i);
}

function otherLength(feature: string, found: number, counted: number, file: string, record: number): AthanorError {
  return new RecordMalformed(
    `${JSON.stringify(feature)} has ${found} values, and ${counted} tokens were counted in this record`,
    { file, record },
    "lists that are split or packed together are of one length; if the shard has changed, run `athanor index --view --rebuild`",
  );
}

function gathered(column: Column, pieces: BlockPieces, isTaken: (row: number) => boolean): Column {
  const { start, record, token, length } = pieces;
  const rows = start.length - 1;
  const ends = new Uint32Array(rows);
  let total = 0;
  for (let row = 0; row < rows; row++) {
    if (isTaken(row)) for (let piece = start[row]!; piece < start[row + 1]!; piece++) total += length[piece]!;
    ends[row] = total;
  }
  const from = column.values;
  const values = new (from.constructor as new (length: number) => typeof from)(total);
  let at = 0;
  for (let row = 0; row < rows; row++) {
    for (let piece = start[row]!; piece < start[row + 1]! && isTaken(row); piece++) {
      const i = record[piece]!;
      const begin = startOf(column, i) + token[piece]!;
      (values as Uint8Array).set(from.subarray(begin, begin + length[piece]!) as Uint8Array, at);
      at += length[piece]!;
    }
  }
  return { kind: column.kind, values, ends, ...(column.loose === true && { loose: true }) };
}

/** The value of a row's record. */
function repeated(column: Column, pieces: BlockPieces, isTaken: (row: number) => boolean): Column {
  const own = { ...pieces, token: new Uint32Array(pieces.token.length), length: pieces.length.map(() => 0) };
  for (let row = 0; row + 1 < own.start.length; row++) {
    const piece = own.start[row]!;
    own.length[piece] = lengthOf(column, own.record[piece]!);
  }
  return gathered(column, own, isTaken);
}

function documents({ start, length }: BlockPieces, isTaken: (row: number) => boolean): Column {
  const rows = start.length - 1;
  const ends = new Uint32Array(rows);
  const values = new Int32Array(length.length);
  let at = 0;
  for (let row = 0; row < rows; row++) {
    for (let piece = start[row]!; piece < start[row + 1]! && isTaken(row); piece++) values[at++] = length[piece]!;
    ends[row] = at;
  }
  return { kind: "int64", values, ends };
}
