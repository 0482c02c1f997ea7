/**
 * Block: records [from, from + records) of runs of decoded pages, as typed columns. Both ways to a block, the scan of a
 * shard and the feed, end here, so that they cannot differ.
 *
 * @example
 * const rows = sliceRows(leaf, pages, 3, 1000, place);
 * const { column, faults } = toColumn(field, leaf, rows, place);
 */
import { AthanorError } from "../../base/errors.ts";
import { RecordMalformed, ValueRange } from "../errors.ts";
import type { Column } from "../types.ts";
import { countLevel, malformed, type Page, type Place } from "./page.ts";
import type { ColumnField, Leaf } from "./schema.ts";
import { type Dense, type Values, join } from "./values.ts";

/** Entries of some records of one leaf. */
export interface LeafRows {
  records: number;
  entries: number;
  def: Uint8Array | undefined;
  /** Repetition levels, one behind the other, where lists lie in lists. */
  reps: Uint8Array[] | undefined;
  /** Entries behind the last of each record; absent where each entry is a record. */
  ends: Uint32Array | undefined;
  values: Dense;
}

/** `skip`: records that begin in the first page before the first that is wanted. */
export function sliceRows(leaf: Leaf, pages: readonly Page[], skip: number, records: number, place: Place): LeafRows {
  const parts: { values: Values; from: number; to: number }[] = [];
  const defs: (Uint8Array | number)[] = [];
  const reps: Uint8Array[] = [];
  const ends = leaf.maxRep === 0 ? undefined : new Uint32Array(records);
  // A record ends where the next one begins.
  let ended = -1;
  let entries = 0;
  let before = 0;
  let nulls = false;
  for (const page of pages) {
    // Entries of the records wanted that lie in this page; those of a record that began before are its first.
    const begin = entryOf(page, skip - before);
    const end = entryOf(page, skip + records - before);
    before += page.rows;
    if (end <= begin) continue;
    const { def, rep } = page;
    const from = def === undefined ? begin : countLevel(def, 0, begin, leaf.maxDef);
    const to = def === undefined ? end : from + countLevel(def, begin, end, leaf.maxDef);
    parts.push({ values: page.values, from, to });
    defs.push(def === undefined ? end - begin : def.subarray(begin, end));
    if (rep !== undefined) reps.push(rep.subarray(begin, end));
    if (ends !== undefined) {
      const starts = page.starts!;
      for (let i = 0; i < starts.length; i++) {
        const start = starts[i]!;
        if (start < begin || start >= end) continue;
        if (ended >= 0) ends[ended] = entries + start - begin;
        ended++;
      }
    }
    nulls ||= def !== undefined;
    entries += end - begin;
  }
  if (before - skip < records) throw malformed(`pages of ${before - skip} records, expected ${records}`, place);
  if (ends !== undefined && ended >= 0) ends[ended] = entries;
  try {
    return {
      records,
      entries,
      def: nulls ? joinLevels(defs, entries, leaf.maxDef) : undefined,
      reps: leaf.maxRep > 1 ? reps : undefined,
      ends,
      values: join(leaf, parts),
    };
  } catch (error) {
    throw malformed((error as Error).message, place, error);
  }
}

/** The first entry of a page's record `row`; 0 below its first record, behind its last entry beyond its last. */
function entryOf({ starts, entries }: Page, row: number): number {
  if (row < 0) return 0;
  // A record that begins in a page before this one may go on here: its entries are part of it.
  return starts === undefined ? Math.min(row, entries) : (starts[row] ?? entries);
}

export function joinLevels(parts: readonly (Uint8Array | number)[], entries: number, level: number): Uint8Array {
  const [first] = parts;
  if (parts.length === 1 && first instanceof Uint8Array) return first;
  const out = new Uint8Array(entries);
  let at = 0;
  for (const part of parts) {
    if (typeof part === "number") out.fill(level, at, at + part);
    else out.set(part, at);
    at += typeof part === "number" ? part : part.length;
  }
  return out;
}

export interface FieldColumn {
  column: Column;
  /** Records whose value cannot stand in a column, by number in the block. */
  faults: Map<number, AthanorError>;
}

export function toColumn(field: ColumnField, leaf: Leaf, rows: LeafRows, place: Place): FieldColumn {
  const faults = new Map<number, AthanorError>();
  const column = field.list ? listColumn(field, leaf, rows, faults, place) : scalarColumn(field, leaf, rows);
  if (field.list) column.list = true;
  const { values } = column;
  if (values instanceof BigInt64Array) {
    if (leaf.unsigned === 64) rangeFaults(field, column, values, faults, place);
    const narrow = narrowed(values);
    if (narrow !== undefined) column.values = narrow;
  }
  return { column, faults };
}

function scalarColumn({ kind }: ColumnField, leaf: Leaf, { records, def, values }: LeafRows): Column {
  const list = "ends" in values ? values : undefined;
  const array = "ends" in values ? values.bytes : values;
  const ends = new Uint32Array(records);
  if (def === undefined) {
    if (list !== undefined) ends.set(list.ends);
    else for (let i = 0; i < records; i++) ends[i] = i + 1;
    return { values: array, kind, ends };
  }
  const present = new Uint8Array(records);
  let value = 0;
  for (let i = 0; i < records; i++) {
    if (def[i] === leaf.maxDef) {
      present[i] = 1;
      value++;
    }
    ends[i] = list === undefined ? value : value === 0 ? 0 : list.ends[value - 1]!;
  }
  return { values: array, kind, ends, present };
}

function listColumn(
  { kind, name, nullBelow, itemFrom }: ColumnField,
  leaf: Leaf,
  { records, entries, def, ends: entryEnds, values }: LeafRows,
  faults: Map<number, AthanorError>,
  place: Place,
): Column {
  const array = values as Exclude<Dense, { ends: Uint32Array }>;
  if (def === undefined) return { values: array, kind, ends: entryEnds! };
  const ends = new Uint32Array(records);
  let present: Uint8Array | undefined;
  let row = 0;
  let value = 0;
  for (let i = 0; i < entries; i++) {
    if (i === entryEnds![row]) ends[row++] = value;
    const level = def[i]!;
    if (level === leaf.maxDef) value++;
    else if (level < nullBelow) (present ??= new Uint8Array(records).fill(1))[row] = 0;
    else if (level >= itemFrom && !faults.has(row)) {
      const fault = new RecordMalformed(
        `field ${JSON.stringify(name)} has a null inside its list, which a batch cannot hold`,
        { file: place.file, record: (place.record ?? 0) + row, byteOffset: place.byteOffset },
        "write the list without it, leave the field out of columns=, or pass over such records with on_corrupt",
      );
      faults.set(row, fault);
    }
  }
  ends[row] = value;
  return present === undefined ? { values: array, kind, ends } : { values: array, kind, ends, present };
}

/** Unsigned 64-bit integers from 2^63 on do not fit int64. */
function rangeFaults(
  { name }: ColumnField,
  { ends }: Column,
  values: BigInt64Array,
  faults: Map<number, AthanorError>,
  place: Place,
): void {
  let from = 0;
  for (let i = 0; i < ends.length; i++) {
    for (let at = from; at < ends[i]!; at++) {
      if (values[at]! >= 0n || faults.has(i)) continue;
      const fault = new ValueRange(
        `field ${JSON.stringify(name)}: value ${BigInt.asUintN(64, values[at]!)} does not fit int64`,
        { file: place.file, record: (place.record ?? 0) + i, byteOffset: place.byteOffset },
        "leave the field out of columns=",
      );
      faults.set(i, fault);
    }
    from = ends[i]!;
  }
}

function narrowed(values: BigInt64Array): Int32Array | undefined {
  const words = new Int32Array(values.buffer, values.byteOffset, values.length * 2);
  const out = new Int32Array(values.length);
  for (let i = 0; i < out.length; i++) {
    const low = words[2 * i]!;
    if (words[2 * i + 1]! !== low >> 31) return undefined;
    out[i] = low;
  }
  return out;
}
