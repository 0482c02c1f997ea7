/**
 * Field builder: the values of one field of a block, as they are parsed, in the narrowest typed array that holds them.
 *
 * Contract: JSON has numbers only, so the kind of a field is found over all records. `free` (scan): integers make it int64; a
 * number with a fraction makes it float, unless an integer beyond 2^53 was there before, which no float64 holds exactly; text makes it
 * bytes; anything else, or text and numbers mixed, makes it no column, with the reason in `unfit`. Not `free` (columns): the kind
 * is that of the index, and what does not fit it is a fault. What a record changed can be taken back until the next one begins.
 *
 * @example
 * const field = new FieldBuilder("ids", "free");
 * field.begin(0);
 * field.putInt(5);
 * field.end(0);
 * field.column(1); // { kind: "int64", values: Int32Array [5], ends: Uint32Array [1] }
 */
import type { Column, KeptKind, ValueKind } from "../types.ts";

/** What does not fit: the record is bad. `code` tells which error. */
export class Unfit extends Error {
  readonly code: "range" | "kind";
  constructor(code: "range" | "kind", message: string) {
    super(message);
    this.code = code;
  }
}

const FIRST_VALUES = 1024;
const MAX_INT64 = 9223372036854775807n;
const MIN_INT64 = -9223372036854775808n;
const NO_I32 = new Int32Array(0);
const NO_TEXT = new Uint8Array(0);

/** Values of builders that are done; 8 arrays of 16 MiB at most in a thread. */
const spare: Int32Array[] = [];
const MAX_SPARE = 1 << 22;
const MAX_SPARES = 8;

interface Snapshot {
  kind: ValueKind | undefined;
  json: boolean;
  list: boolean;
  exact: boolean;
  unfit: string | undefined;
  i64: BigInt64Array | undefined;
  f64: Float64Array | undefined;
}

export class FieldBuilder {
  readonly name: string;
  readonly free: boolean;
  kind: ValueKind | undefined;
  /** Its bytes are JSON values: objects, lists of objects. */
  json: boolean;
  /** Some record holds a list. */
  list = false;
  /** Why the field is no column. */
  unfit: string | undefined;
  /** Values so far (bytes of text), in the array that is in use. */
  n = 0;
  i32: Int32Array = NO_I32;
  i64: BigInt64Array | undefined;
  f64: Float64Array | undefined;
  text: Uint8Array = NO_TEXT;
  /** Records of blocks before the one in which the kind was found, with an empty list. */
  empties = 0;
  /** Blocks before had values. */
  private valued = false;
  /** An integer beyond 2^53 was seen. */
  private exact = false;
  /** Pairs: record, end of its values. Records without the field are in none. */
  private marks: Uint32Array = new Uint32Array(64);
  private marked = 0;
  private record = -1;
  private before: Snapshot | undefined;

  /** `kind`: that of the index, or "free" where it is to be found. */
  constructor(name: string, kind: KeptKind | "free") {
    this.name = name;
    this.free = kind === "free";
    this.json = kind === "json";
    this.kind = kind === "free" ? undefined : kind === "json" ? "bytes" : kind;
    if (kind === "float") this.f64 = new Float64Array(FIRST_VALUES);
  }

  /** The next block: values are gone, what is known of the kind stays. */
  clear(): void {
    if (this.kind === undefined && this.unfit === undefined) this.empties += this.marked / 2;
    this.valued ||= this.n > 0;
    this.n = 0;
    this.marked = 0;
    this.record = -1;
    this.before = undefined;
    this.i64 = undefined;
    if (this.i32.length > 1 << 22) this.i32 = NO_I32;
    if (this.text.length > 1 << 24) this.text = NO_TEXT;
    this.f64 = this.kind === "float" ? (this.f64 ?? new Float64Array(FIRST_VALUES)) : undefined;
  }

  /** Values of `record` follow. The last of two values of one record counts. */
  begin(record: number): void {
    if (this.record === record) {
      this.drop();
      return;
    }
    this.record = record;
    this.before = undefined;
  }

  /** The record has the field, with all values that were put since `begin`. */
  end(record: number): void {
    if (this.marked + 2 > this.marks.length) this.marks = grown(this.marks, this.marks.length * 2);
    this.marks[this.marked] = record;
    this.marks[this.marked + 1] = this.n;
    this.marked += 2;
  }

  /** Takes back all of `record`, if it has the field: it is a bad one. */
  takeBack(record: number): void {
    if (this.record !== record) return;
    this.drop();
    const { before } = this;
    if (before !== undefined) Object.assign(this, before);
    this.before = undefined;
    this.record = -1;
  }

  /** Room for `more` values of the array in use. */
  reserveInts(more: number): void {
    if (this.i32.length === 0) this.i32 = spare.pop() ?? NO_I32;
    if (this.n + more > this.i32.length) {
      this.i32 = grown(this.i32, Math.max(FIRST_VALUES, this.i32.length * 2, this.n + more));
    }
  }

  /**
   * The builder is not used any more: once its memory is (the column of `column(records, true)` lies in it), it goes to the next
   * one, whose pages need not be made anew.
   */
  release(): void {
    if (this.i32.length > 0 && this.i32.length <= MAX_SPARE && spare.length < MAX_SPARES) spare.push(this.i32);
    this.i32 = NO_I32;
  }

  reserveText(more: number): void {
    if (this.n + more > this.text.length) {
      this.text = grown(this.text, Math.max(FIRST_VALUES, this.text.length * 2, this.n + more));
    }
  }

  /** Integers go into `i32`, which may have to be `reserve`d, until something else is put. */
  takesIntegers(): boolean {
    const { kind, i64, unfit } = this;
    return (
      (kind === undefined || kind === "int64") && i64 === undefined && unfit === undefined && this.numeric("int64")
    );
  }

  /** Integers behind each other, while `takesIntegers`. */
  putInts(values: Int32Array): void {
    this.reserveInts(values.length);
    this.i32.set(values, this.n);
    this.n += values.length;
  }

  /** An integer that float64 holds exactly. */
  putInt(value: number): void {
    if (!this.numeric("int64")) return;
    if (this.f64 !== undefined) {
      this.reserveFloats(1);
      this.f64[this.n++] = value;
    } else if (this.i64 !== undefined) {
      this.reserveWide(1);
      this.i64[this.n++] = BigInt(value);
    } else if (value === (value | 0)) {
      this.reserveInts(1);
      this.i32[this.n++] = value;
    } else {
      this.widen();
      this.putInt(value);
    }
  }

  /** An integer beyond 2^53, decimal. */
  putBig(digits: string): void {
    if (this.unfit !== undefined) return;
    const value = digits.length > 20 ? MAX_INT64 + 1n : BigInt(digits);
    if (value > MAX_INT64 || value < MIN_INT64) throw new Unfit("range", `${short(digits)} does not fit int64`);
    if (!this.numeric("int64")) return;
    if (this.kind === "float") {
      throw new Unfit(
        "range",
        `${digits} is beyond 2^53, and the field holds fractions: float64 does not hold both exactly`,
      );
    }
    if (!this.exact) {
      this.remember();
      this.exact = true;
    }
    this.widen();
    this.reserveWide(1);
    this.i64![this.n++] = value;
  }

  /** A number that was written with a point or an exponent. */
  putFloat(value: number, written: string): void {
    if (this.unfit !== undefined) return;
    if (!Number.isFinite(value)) throw new Unfit("range", `${short(written)} does not fit float64`);
    if (this.kind !== "float" && Number.isSafeInteger(value)) return this.putInt(value);
    if (this.kind === "int64" && (this.exact || !this.free)) {
      throw new Unfit("range", `${short(written)} does not fit int64, which the field's other values are`);
    }
    if (!this.numeric("float")) return;
    this.reserveFloats(1);
    this.f64![this.n++] = value;
  }

  /** The value that follows is text; false: it is not kept. */
  putsText(): boolean {
    if (this.unfit !== undefined) return false;
    if (this.json) {
      this.refuse("holds text and objects");
      return false;
    }
    if (this.kind === "bytes") return true;
    if (this.kind !== undefined) this.refuse(`holds ${this.kind} values and text`);
    else {
      this.remember();
      this.kind = "bytes";
    }
    return this.unfit === undefined;
  }

  /** The value that follows is an object, or a list of them; false: it is not kept. */
  putsJson(): boolean {
    if (this.unfit !== undefined || this.json) return this.unfit === undefined;
    // Empty lists are no numbers yet.
    if (this.kind !== undefined && (this.kind !== "int64" || this.valued || this.n > 0)) {
      this.refuse(this.kind === "bytes" ? "holds text and objects" : `holds ${this.kind} values and objects`);
      return false;
    }
    this.remember();
    this.kind = "bytes";
    this.json = true;
    return true;
  }

  /** The value that follows is a list. */
  putsList(): void {
    if (this.list) return;
    this.remember();
    this.list = true;
  }

  /** Nothing was put for the record in work. */
  get isEmpty(): boolean {
    return this.n === (this.marked === 0 ? 0 : this.marks[this.marked - 1]!);
  }

  /** Text as it is written. */
  putWritten(bytes: Uint8Array, from: number, to: number): void {
    this.reserveText(to - from);
    this.text.set(bytes.subarray(from, to), this.n);
    this.n += to - from;
  }

  /** The value is of no kind that a column can hold. */
  refuse(why: string): void {
    if (this.unfit !== undefined) return;
    if (!this.free) throw new Unfit("kind", `field ${JSON.stringify(this.name)} ${why}, the index says ${this.kind}`);
    this.remember();
    this.unfit = why;
  }

  /** The records of a block as a column; undefined where there is none. `inPlace`: integers are not copied, see `release`. */
  column(records: number, inPlace = false): Column | undefined {
    const { kind } = this;
    if (this.unfit !== undefined || kind === undefined) return undefined;
    const ends = new Uint32Array(records);
    const all = this.marked === records * 2;
    const present = all ? undefined : new Uint8Array(records);
    let next = 0;
    let end = 0;
    for (let at = 0; at < this.marked; at += 2) {
      const record = this.marks[at]!;
      if (next < record) ends.fill(end, next, record);
      end = this.marks[at + 1]!;
      ends[record] = end;
      next = record + 1;
      if (present !== undefined) present[record] = 1;
    }
    ends.fill(end, next);
    const column: Column = { values: this.values(inPlace), kind, ends, loose: true };
    if (present !== undefined) column.present = present;
    if (this.json) column.json = true;
    if (this.list && kind !== "bytes") column.list = true;
    return column;
  }

  private values(inPlace: boolean): Column["values"] {
    if (this.kind === "bytes") return this.text.slice(0, this.n);
    const wide = this.f64 ?? this.i64;
    if (wide !== undefined) return wide.slice(0, this.n);
    return inPlace ? this.i32.subarray(0, this.n) : this.i32.slice(0, this.n);
  }

  /** A number may follow: false where the field is no column. */
  private numeric(kind: "int64" | "float"): boolean {
    if (this.unfit !== undefined) return false;
    if (this.kind === kind || this.kind === "float") return true;
    if (this.kind === "bytes") {
      this.refuse(this.json ? "holds objects and numbers" : "holds text and numbers");
      return false;
    }
    this.remember();
    if (kind === "float") {
      const f64 = new Float64Array(Math.max(FIRST_VALUES, this.n * 2));
      for (let i = 0; i < this.n; i++) f64[i] = Number(this.i64 === undefined ? this.i32[i] : this.i64[i]);
      this.f64 = f64;
    }
    this.kind = kind;
    return true;
  }

  private widen(): void {
    if (this.i64 !== undefined) return;
    this.remember();
    const i64 = new BigInt64Array(Math.max(FIRST_VALUES, this.n * 2));
    for (let i = 0; i < this.n; i++) i64[i] = BigInt(this.i32[i]!);
    this.i64 = i64;
  }

  private reserveWide(more: number): void {
    if (this.n + more > this.i64!.length) this.i64 = grown(this.i64!, this.i64!.length * 2 + more);
  }

  private reserveFloats(more: number): void {
    if (this.n + more > this.f64!.length) this.f64 = grown(this.f64!, this.f64!.length * 2 + more);
  }

  private remember(): void {
    const { kind, json, list, exact, unfit, i64, f64 } = this;
    this.before ??= { kind, json, list, exact, unfit, i64, f64 };
  }

  /** Drops the values of the record in work. */
  private drop(): void {
    if (this.marked > 0 && this.marks[this.marked - 2] === this.record) this.marked -= 2;
    this.n = this.marked === 0 ? 0 : this.marks[this.marked - 1]!;
  }
}

function short(text: string): string {
  return text.length > 40 ? `${text.slice(0, 37)}…` : text;
}

interface Growable<Self> {
  readonly length: number;
  set(values: Self): void;
}
function grown<Self extends Int32Array | Uint32Array | BigInt64Array | Float64Array | Uint8Array>(
  values: Self,
  length: number,
): Self {
  const Type = values.constructor as new (length: number) => Self;
  const more = new Type(length);
  (more as Growable<Self>).set(values);
  return more;
}
