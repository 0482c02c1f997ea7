/**
 * Record fields: the columns of a block of a byte-framed format while its records are decoded one after the other.
 *
 * Contract: the kind of a field is that of its values in the shard; `FieldKinds` carries it from block to block and into the
 * shard's meta, so that `columns()` decodes as `scan()` did. Loose fields (of JSON, of arrays that tell their own types) with integers and
 * fractions are floats; with text and numbers they are no columns. Any other conflict is a fault of its record, which then has
 * no values.
 *
 * @example
 * const fields = new RecordFields(kinds, undefined);
 * fields.numbers("ids", "i4", bytes, 16, 5);
 * fields.end();
 * fields.finish(); // BlockColumns
 */
import { AthanorError } from "../base/errors.ts";
import type { Where } from "../base/errors.ts";
import { FeatureKind, ValueRange } from "./errors.ts";
import type { BlockColumns, Column, KeptKind, ScanEnd } from "./types.ts";
import { ColumnValues, numberKind, Unfit } from "./values.ts";
import type { NumberType } from "./values.ts";

/** A set with more has names for values; each costs every block 5 bytes a record. */
const MAX_FIELDS = 512;

/** What is known of the fields of a shard. */
export class FieldKinds {
  readonly kinds: Map<string, KeptKind>;
  readonly loose = new Set<string>();
  /** Fields of which some record holds a list of numbers. */
  readonly lists = new Set<string>();
  /** Fields with integers beyond 2^53. */
  readonly beyond = new Set<string>();
  /** Names that are no columns, and why. */
  readonly left = new Map<string, string>();

  /** `known`: of the meta of an indexed shard. */
  constructor(known: { readonly [field: string]: KeptKind } = {}) {
    this.kinds = new Map(Object.entries(known));
  }

  leave(name: string, why: string): void {
    this.left.set(name, why);
    this.kinds.delete(name);
  }

  /** For the end of a scan: the kinds are part of the meta. */
  end(): Pick<ScanEnd, "notColumns"> & { kinds: { [field: string]: KeptKind } } {
    return { kinds: Object.fromEntries(this.kinds), notColumns: Object.fromEntries(this.left) };
  }
}

export class RecordFields {
  records = 0;
  private readonly known: FieldKinds;
  private readonly wanted: ReadonlySet<string> | undefined;
  private readonly inPlace: Uint8Array | undefined;
  private readonly columns = new Map<string, ColumnValues>();
  private readonly faults = new Map<number, AthanorError>();
  /** Fields of which the record in work is the first to hold a list. */
  private readonly listed: string[] = [];

  /**
   * `wanted` undefined (scan): all, and what is found out goes into `known`. `inPlace`: bytes of all records, which stay as they
   * are for as long as the columns: numbers that are as they should be in them are not copied.
   */
  constructor(known: FieldKinds, wanted: Iterable<string> | undefined, inPlace?: Uint8Array) {
    this.known = known;
    this.inPlace = inPlace;
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

  /** `bytes`: not kept. `loose`: other values of the field may be of another kind. */
  bytes(name: string, bytes: Uint8Array, loose = false): void {
    this.put(name, "bytes", loose, (column) => column.putBytes(this.records, bytes));
  }

  /** The text of a JSON value that is nested. Always loose. */
  json(name: string, text: string): void {
    this.put(name, "json", true, (column) => column.putBytes(this.records, Buffer.from(text)));
  }

  numbers(
    name: string,
    type: NumberType,
    bytes: Uint8Array,
    at: number,
    count: number,
    { big = false, loose = false, list = false }: { big?: boolean; loose?: boolean; list?: boolean } = {},
  ): void {
    if (list) this.holdsList(name);
    this.put(name, numberKind(type), loose, (column) => column.putRaw(this.records, type, bytes, at, count, big));
  }

  /** Always loose. `single`: the data holds the one value as such, not as a list. */
  list(name: string, kind: "int64" | "float", list: readonly (number | bigint)[], single: boolean): void {
    if (!single) this.holdsList(name);
    this.put(name, kind, true, (column) => column.putList(this.records, kind, list));
  }

  /** The record in work is whole. */
  end(): void {
    for (const name of this.listed) this.known.lists.add(name);
    this.listed.length = 0;
    this.records++;
  }

  /** The record in work is bad: its values go. */
  fail(error: unknown, where: Where): void {
    const fault = asFault(error, where);
    for (const column of this.columns.values()) column.drop(this.records);
    this.faults.set(this.records, fault);
    this.listed.length = 0;
    this.records++;
  }

  finish(): BlockColumns {
    const { kinds, loose, lists, beyond } = this.known;
    const fields = new Map<string, Column>();
    for (const [name, values] of this.columns) {
      const column = values.finish(this.records);
      if (loose.has(name)) column.loose = true;
      if (kinds.get(name) === "json") column.json = true;
      if (lists.has(name) && column.kind !== "bytes") column.list = true;
      if (values.beyond) beyond.add(name);
      fields.set(name, column);
    }
    // Wanted fields that no record of this block has.
    for (const name of this.wanted ?? []) {
      const kind = kinds.get(name);
      if (kind === undefined || fields.has(name)) continue;
      const column = new ColumnValues(kind === "json" ? "bytes" : kind).finish(this.records);
      if (kind === "json") column.json = true;
      fields.set(name, column);
    }
    return { fields, faults: this.faults };
  }

  private holdsList(name: string): void {
    if (this.wanted === undefined && !this.known.lists.has(name)) this.listed.push(name);
  }

  private put(name: string, kind: KeptKind, loose: boolean, put: (column: ColumnValues) => void): void {
    if (!this.wants(name)) return;
    for (;;) {
      const column = this.column(name, kind, loose);
      if (column === undefined) return;
      try {
        const isJson = this.known.kinds.get(name) === "json";
        if (isJson !== (kind === "json")) throw new Unfit("kind", isJson ? "holds no object" : "holds an object");
        put(column);
        return;
      } catch (error) {
        if (!(error instanceof Unfit)) throw error;
        if (this.wanted !== undefined || !loose || !this.settle(name, kind, column, error)) {
          throw new UnfitField(name, error);
        }
        column.drop(this.records);
      }
    }
  }

  /** Undefined: the field is none, or one too many. */
  private column(name: string, kind: KeptKind, loose: boolean): ColumnValues | undefined {
    const found = this.columns.get(name);
    if (found !== undefined) return found;
    const { known } = this;
    let settled = known.kinds.get(name);
    if (settled === undefined) {
      if (this.wanted !== undefined || known.left.has(name) || known.kinds.size >= MAX_FIELDS) return undefined;
      settled = kind;
      known.kinds.set(name, kind);
      if (loose) known.loose.add(name);
    }
    const fresh = new ColumnValues(settled === "json" ? "bytes" : settled, this.inPlace);
    this.columns.set(name, fresh);
    return fresh;
  }

  /** A value of `kind` does not fit the column: another kind for it, or none. False: the value itself fits no column. */
  private settle(name: string, kind: KeptKind, column: ColumnValues, { why }: Unfit): boolean {
    const { known } = this;
    if (kind === "json" || known.kinds.get(name) === "json") {
      known.leave(name, "holds objects and other values");
      this.columns.delete(name);
      return true;
    }
    if (why === "range" && column.kind !== "float") return false;
    const text = kind === "bytes" || column.kind === "bytes";
    if (!text && why === "kind" && !column.beyond && !known.beyond.has(name)) {
      column.toFloat();
      known.kinds.set(name, "float");
      return true;
    }
    known.leave(name, text ? "holds text and numbers" : "holds integers beyond 2^53 and fractions");
    this.columns.delete(name);
    return true;
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
