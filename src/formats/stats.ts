/**
 * Stats: what typed columns tell the index: the schema of a shard, and the tokens of each block.
 *
 * @example
 * const stats = new ColumnStats(object.uri);
 * for (const block of blocks) stats.add(await format.columns(block, fields), block.records);
 * const { schema, tokens, total } = stats.finish();
 */
import type { AthanorError } from "../base/errors.ts";
import { FeatureKind } from "./errors.ts";
import type { BlockColumns, Column, Field, Schema } from "./types.ts";

interface Seen {
  field: Field;
  min: bigint;
  max: bigint;
  prefix: boolean;
  /** Values in each block so far. */
  perBlock: Map<number, number>;
}

export class ColumnStats {
  private readonly file: string;
  private readonly seen = new Map<string, Seen>();
  private readonly notColumns: { [name: string]: string } = {};
  private blocks = 0;
  private bad = 0;

  /** `file`: for messages. */
  constructor(file: string) {
    this.file = file;
  }

  /** Adds the next block, or (`sameBlock`) more records of the last one. Records with faults say nothing. */
  add({ fields, faults }: BlockColumns, records: number, sameBlock = false): void {
    if (!sameBlock) this.blocks++;
    this.bad += faults.size;
    for (const [name, column] of fields) {
      const seen = this.entry(name, column);
      countUnfit(seen.field, column, faults);
      let before = 0;
      for (let i = 0; i < records; i++) {
        const from = before;
        const to = column.ends[i]!;
        before = to;
        if (faults.has(i) || column.present?.[i] === 0) continue;
        fold(seen, column, from, to, this.blocks - 1);
      }
    }
  }

  /** Records of earlier blocks with an empty list of a field whose kind was not known then. */
  addEmpty(name: string, records: number): void {
    const { field } = this.seen.get(name) ?? {};
    if (field === undefined) return;
    field.present += records;
    field.minLength = 0;
  }

  /** Fields that have turned out to be no columns. */
  drop(notColumns: Readonly<Record<string, string>>): void {
    for (const [name, why] of Object.entries(notColumns)) {
      this.seen.delete(name);
      Object.defineProperty(this.notColumns, name, { value: why, enumerable: true, configurable: true });
    }
  }

  /** Fields by name; tokens of each block: values of the int64 field with most of them, by name if equal. */
  finish(): { schema: Schema; tokens: Float64Array; total: number } {
    const byName = [...this.seen.values()].sort((a, b) => (a.field.name < b.field.name ? -1 : 1));
    let token: Seen | undefined;
    for (const seen of byName) {
      if (seen.field.kind === "int64" && seen.field.values > (token?.field.values ?? 0)) token = seen;
    }
    const tokens = new Float64Array(this.blocks);
    for (const [block, values] of token?.perBlock ?? []) tokens[block] = values;
    const schema: Schema = { fields: byName.map(finished) };
    if (this.bad > 0) schema.bad = this.bad;
    if (Object.keys(this.notColumns).length > 0) schema.notColumns = this.notColumns;
    return { schema, tokens, total: token?.field.values ?? 0 };
  }

  private entry(name: string, { kind, loose, json, list }: Column): Seen {
    const known = this.seen.get(name);
    if (known !== undefined && list === true) known.field.list = true;
    if (known === undefined) {
      const field: Field = { name, kind, present: 0, minLength: 0, maxLength: 0, values: 0 };
      if (loose === true) field.loose = true;
      if (json === true) field.json = true;
      if (list === true) field.list = true;
      const fresh: Seen = { field, min: 0n, max: 0n, prefix: true, perBlock: new Map() };
      this.seen.set(name, fresh);
      return fresh;
    }
    if (known.field.kind !== kind && loose === true && known.field.values === 0) {
      known.field.kind = kind;
      if (json === true) known.field.json = true;
    } else if (known.field.kind !== kind && loose === true && kind !== "bytes" && known.field.kind !== "bytes") {
      known.field.kind = "float";
    } else if (known.field.kind !== kind) {
      throw new FeatureKind(
        `feature ${JSON.stringify(name)} holds a list of ${kind}, expected ${known.field.kind}`,
        { file: this.file },
        "write the feature with one kind in all records",
      );
    }
    return known;
  }
}

function countUnfit(field: Field, { unfit }: Column, faults: BlockColumns["faults"]): void {
  if (unfit === undefined) return;
  const records = unfit.rows.reduce((sum, row) => sum + (faults.has(row) ? 0 : 1), 0);
  const { what, where } = unfit.first;
  const file = where.file?.slice(where.file.lastIndexOf("/") + 1);
  const known = field.unfit ?? { records: 0, first: `record ${where.record} of ${file}: ${what}` };
  field.unfit = { ...known, records: known.records + records };
}

/**
 * Rows of a block with a value that no column can hold: bad ones among `faults`; without these (a scan) the column is as if their
 * records did not have the field, since fields that are not asked for later are not touched by it.
 */
export function tellUnfit(
  column: Column,
  rows: readonly number[],
  faultOf: (row: number) => AthanorError,
  faults: BlockColumns["faults"] | undefined,
): void {
  const [first] = rows;
  if (first === undefined) return;
  if (faults === undefined) withoutUnfit(column, rows, faultOf(first));
  else for (const row of rows) if (!faults.has(row)) faults.set(row, faultOf(row));
}

/** The column of a scan as if some records did not have the field: their value does not fit it, and the others are good. */
export function withoutUnfit(column: Column, rows: readonly number[], first: AthanorError): void {
  const present = column.present?.slice() ?? new Uint8Array(column.ends.length).fill(1);
  for (const row of rows) present[row] = 0;
  column.present = present;
  column.unfit = { rows, first };
}

function fold(seen: Seen, column: Column, from: number, to: number, block: number): void {
  const { field } = seen;
  const length = to - from;
  field.minLength = field.present === 0 ? length : Math.min(field.minLength, length);
  field.maxLength = Math.max(field.maxLength, length);
  field.present++;
  const first = field.values === 0;
  field.values += length;
  if (field.kind !== "int64" || length === 0) return;
  seen.perBlock.set(block, (seen.perBlock.get(block) ?? 0) + length);
  const { values } = column;
  if (values instanceof Int32Array) foldNarrow(seen, values, from, to, first);
  else foldWide(seen, values as BigInt64Array, from, to, first);
}

function foldNarrow(seen: Seen, values: Int32Array, from: number, to: number, first: boolean): void {
  let min = values[from]!;
  let max = min;
  for (let at = from + 1; at < to; at++) {
    const value = values[at]!;
    if (value < min) min = value;
    else if (value > max) max = value;
  }
  if (first || BigInt(min) < seen.min) seen.min = BigInt(min);
  if (first || BigInt(max) > seen.max) seen.max = BigInt(max);
  if (!seen.prefix) return;
  let ones = from;
  while (ones < to && values[ones] === 1) ones++;
  while (ones < to && values[ones] === 0) ones++;
  seen.prefix = ones === to;
}

function foldWide(seen: Seen, values: BigInt64Array, from: number, to: number, first: boolean): void {
  let { min, max } = first ? { min: values[from]!, max: values[from]! } : seen;
  for (let at = from; at < to; at++) {
    const value = values[at]!;
    if (value < min) min = value;
    if (value > max) max = value;
  }
  seen.min = min;
  seen.max = max;
  if (!seen.prefix) return;
  let ones = from;
  while (ones < to && values[ones] === 1n) ones++;
  while (ones < to && values[ones] === 0n) ones++;
  seen.prefix = ones === to;
}

function finished({ field, min, max, prefix }: Seen): Field {
  if (field.kind !== "int64") return field;
  const known = { ...field, prefixMask: prefix && field.values > 0 };
  return field.values === 0 ? known : { ...known, min: String(min), max: String(max) };
}
