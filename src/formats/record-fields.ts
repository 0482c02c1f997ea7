/**
 * Record fields: the columns of a block of a byte-framed format while its records are decoded one after the other.
 *
 * Contract: the kind of a field is that of its first value in the shard; `kinds` carries it from block to block and into the
 * shard's meta, so that `columns()` decodes as `scan()` did. A record with a fault has no values. More than MAX_FIELDS
 * fields of a shard are not columns.
 *
 * @example
 * const fields = new RecordFields(kinds, undefined);
 * fields.begin();
 * fields.numbers("ids", "i4", bytes, 16, 5);
 * fields.end();
 * fields.finish(); // BlockColumns
 */
import { AthanorError } from "../base/errors.ts";
import type { Where } from "../base/errors.ts";
import { FeatureKind, ValueRange } from "./errors.ts";
import { ColumnValues, Unfit, numberKind } from "./values.ts";
import type { NumberType } from "./values.ts";
import type { BlockColumns, Column, ValueKind } from "./types.ts";

/** A set with more has names for values; each costs every block 5 bytes a record. */
const MAX_FIELDS = 512;

export class RecordFields {
  records = 0;
  private readonly kinds: Map<string, ValueKind>;
  private readonly wanted: ReadonlySet<string> | undefined;
  private readonly columns = new Map<string, ColumnValues>();
  private readonly faults = new Map<number, AthanorError>();

  /** `wanted` undefined (scan): all, and fresh ones are added to `kinds`. */
  constructor(kinds: Map<string, ValueKind>, wanted: Iterable<string> | undefined) {
    this.kinds = kinds;
    this.wanted = wanted === undefined ? undefined : new Set(wanted);
  }

  wants(name: string): boolean {
    return this.wanted === undefined || this.wanted.has(name);
  }

  /** Is any field wanted whose name begins so? */
  wantsSome(prefix: string): boolean {
    if (this.wanted === undefined) return true;
    for (const name of this.wanted) if (name.startsWith(prefix)) return true;
    return false;
  }

  /** `bytes`: not kept. */
  bytes(name: string, bytes: Uint8Array): void {
    this.put(name, "bytes", (column) => column.putBytes(this.records, bytes));
  }

  numbers(name: string, type: NumberType, bytes: Uint8Array, at: number, count: number, big = false): void {
    this.put(name, numberKind(type), (column) => column.putRaw(this.records, type, bytes, at, count, big));
  }

  list(name: string, kind: "int64" | "float", list: readonly (number | bigint)[]): void {
    this.put(name, kind, (column) => column.putList(this.records, kind, list));
  }

  /** The record in work is whole. */
  end(): void {
    this.records++;
  }

  /** The record in work is bad: its values go. */
  fail(error: unknown, where: Where): void {
    const fault = asFault(error, where);
    for (const column of this.columns.values()) column.drop(this.records);
    this.faults.set(this.records, fault);
    this.records++;
  }

  finish(): BlockColumns {
    const fields = new Map<string, Column>();
    for (const [name, column] of this.columns) fields.set(name, column.finish(this.records));
    if (this.wanted !== undefined) {
      // A wanted field that no record of this block has.
      for (const name of this.wanted) {
        const kind = this.kinds.get(name);
        if (kind !== undefined && !fields.has(name)) fields.set(name, new ColumnValues(kind).finish(this.records));
      }
    }
    return { fields, faults: this.faults };
  }

  private put(name: string, kind: ValueKind, put: (column: ColumnValues) => void): void {
    if (!this.wants(name)) return;
    let column = this.columns.get(name);
    if (column === undefined) {
      let known = this.kinds.get(name);
      if (known === undefined) {
        if (this.wanted !== undefined || this.kinds.size >= MAX_FIELDS) return;
        known = kind;
        this.kinds.set(name, kind);
      }
      column = new ColumnValues(known);
      this.columns.set(name, column);
    }
    try {
      put(column);
    } catch (error) {
      if (error instanceof Unfit) throw new UnfitField(name, error);
      throw error;
    }
  }
}

class UnfitField extends Error {
  readonly field: string;
  readonly unfit: Unfit;
  constructor(field: string, unfit: Unfit) {
    super(unfit.message);
    this.field = field;
    this.unfit = unfit;
  }
}

function asFault(error: unknown, where: Where): AthanorError {
  if (error instanceof AthanorError) {
    if (error.where.file !== undefined) return error;
    return AthanorError.fromRecord({
      remedy: "the shard is damaged: copy or write it again",
      ...error.toRecord(),
      ...where,
    });
  }
  if (!(error instanceof UnfitField)) throw error;
  const { field, unfit } = error;
  const what = `field ${JSON.stringify(field)} ${unfit.message}`;
  return unfit.why === "kind"
    ? new FeatureKind(what, where, "write the field with one kind in all records")
    : new ValueRange(what, where, "write the field within int64 (floats: integers within 2^53)");
}
