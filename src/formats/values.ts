/**
 * Values: a column of one block while its records are decoded, from raw numbers of any type or from parsed values.
 *
 * Contract: integers are kept as int32 until one does not fit, float64 is kept once one came; a value that the column cannot
 * hold is thrown as `Unfit` and the record's values can be dropped.
 *
 * @example
 * const column = new ColumnValues("int64");
 * column.putRaw(0, "i4", bytes, 16, 5, false); // record 0: five little-endian int32 at byte 16
 * column.finish(1);
 */
import type { Column, ValueKind } from "./types.ts";

/** Types of raw numbers, by letter and bytes: `b1` is a boolean. */
export type NumberType = "b1" | "i1" | "i2" | "i4" | "i8" | "u1" | "u2" | "u4" | "u8" | "f2" | "f4" | "f8";

export function numberBytes(type: NumberType): number {
  return Number(type[1]);
}

export function numberKind(type: NumberType): "int64" | "float" {
  return type[0] === "f" ? "float" : "int64";
}

/** A value that the column cannot hold: "kind" or "range" says why. */
export class Unfit extends Error {
  readonly why: "kind" | "range";
  constructor(why: "kind" | "range", message: string) {
    super(message);
    this.why = why;
  }
}

const FIRST = 256;
/** Numbers are brought here to be read with their own alignment. */
let scratch = new ArrayBuffer(1 << 16);

export class ColumnValues {
  kind: ValueKind;
  /** An integer beyond 2^53 is among the values. */
  beyond = false;
  private n = 0;
  private values: Column["values"];
  /** The memory of `values`, by the byte. */
  private raw: Uint8Array;
  private ends: Uint32Array = new Uint32Array(64);
  private present: Uint8Array = new Uint8Array(64);
  /** Values of record i begin here, and end at `ends[i]`, in the block's own bytes; undefined: they were copied. */
  private starts: Uint32Array | undefined;
  private readonly inPlace: Uint8Array | undefined;
  /** All the memory in which they lie, as numbers of their type. */
  private memory: { type: NumberType; values: ReturnType<typeof wholeOf> } | undefined;
  /** Records before this one have an end. */
  private rows = 0;

  /** `inPlace`: bytes of all records: values that lie in them as the column holds them stay there. */
  constructor(kind: ValueKind, inPlace?: Uint8Array) {
    this.kind = kind;
    this.inPlace = inPlace;
    const Type = kind === "bytes" ? Uint8Array : kind === "float" ? Float32Array : Int32Array;
    this.values = new Type(FIRST);
    this.raw = new Uint8Array(this.values.buffer);
  }

  /** Values so far. */
  get length(): number {
    return this.n;
  }

  putBytes(record: number, bytes: Uint8Array): void {
    if (this.kind !== "bytes") throw new Unfit("kind", `holds text or bytes, expected ${this.kind}`);
    this.reserve(bytes.length);
    this.raw.set(bytes, this.n);
    this.n += bytes.length;
    this.close(record);
  }

  /** `count` numbers at byte `at`, which lie inside `bytes`. `big`: the first byte is the highest one. */
  putRaw(record: number, type: NumberType, bytes: Uint8Array, at: number, count: number, big: boolean): void {
    const kind = numberKind(type);
    if (this.kind === "bytes" || (this.kind === "int64" && kind === "float")) {
      throw new Unfit("kind", `holds numbers of type ${kind}, expected ${this.kind}`);
    }
    if (this.keepInPlace(record, type, bytes, at, count, big)) return;
    this.copyOut();
    this.reserve(count);
    const own = bytes.subarray(at, at + count * numberBytes(type));
    const { values } = this;
    const same =
      (type === "i4" && values instanceof Int32Array) ||
      (type === "f4" && values instanceof Float32Array) ||
      (type === "f8" && values instanceof Float64Array) ||
      (type === "i8" && values instanceof BigInt64Array && this.beyond);
    if (same && !big) {
      this.raw.set(own, this.n * values.BYTES_PER_ELEMENT);
      this.n += count;
    } else this.convert(type, own, count, big);
    this.close(record);
  }

  /** Numbers that were parsed from text; `kind`: what they were written as. */
  putList(record: number, kind: "int64" | "float", list: readonly (number | bigint)[]): void {
    if (this.kind === "bytes" || (this.kind === "int64" && kind === "float")) {
      throw new Unfit("kind", `holds numbers of type ${kind}, expected ${this.kind}`);
    }
    this.copyOut();
    this.reserve(list.length);
    if (this.kind === "float") {
      this.toDouble();
      for (const value of list)
        this.values[this.n++] = typeof value === "number" && kind === "float" ? value : exact(value);
    } else {
      for (const value of list) {
        if (typeof value === "number" && value === (value | 0) && this.values instanceof Int32Array) {
          this.values[this.n++] = value;
        } else this.putWide(BigInt(value));
      }
    }
    this.close(record);
  }

  /** Integers become floats: a later value is one. */
  toFloat(): void {
    this.copyOut();
    const doubles = new Float64Array(this.values.length);
    for (let i = 0; i < this.n; i++) doubles[i] = Number(this.values[i]);
    this.take(doubles);
    this.kind = "float";
  }

  /** Takes back what `record` has put. */
  drop(record: number): void {
    if (this.rows === record + 1) this.rows = record;
    this.n = this.rows === 0 ? 0 : this.ends[this.rows - 1]!;
  }

  finish(records: number): Column {
    this.pad(records);
    const column: Column = {
      kind: this.kind,
      values: this.values.subarray(0, this.n),
      ends: this.ends.subarray(0, records),
    };
    if (this.starts !== undefined) {
      column.values = this.memory!.values;
      column.starts = this.starts.subarray(0, records);
    }
    const present = this.present.subarray(0, records);
    if (present.includes(0)) column.present = present;
    return column;
  }

  /** Only from the first record on, and while all are alike. */
  private keepInPlace(
    record: number,
    type: NumberType,
    bytes: Uint8Array,
    at: number,
    count: number,
    big: boolean,
  ): boolean {
    const { inPlace, memory } = this;
    if (inPlace === undefined || bytes.buffer !== inPlace.buffer || this.rows > record) return false;
    const size = numberBytes(type);
    const from = (bytes.byteOffset + at) / size;
    if (!Number.isInteger(from) || (big && size > 1)) return false;
    if (this.starts === undefined) {
      if (this.n > 0 || !IN_PLACE.has(type) || numberKind(type) !== this.kind) return false;
      this.starts = new Uint32Array(this.ends.length);
      this.memory = { type, values: wholeOf(type, inPlace.buffer) };
    } else if (memory?.type !== type) return false;
    this.pad(record);
    this.n = from + count;
    this.close(record);
    this.starts[record] = from;
    return true;
  }

  /** Values that were left where they are: from now on they are copied. */
  private copyOut(): void {
    const { starts } = this;
    if (starts === undefined) return;
    const whole = this.memory!.values;
    this.starts = undefined;
    this.n = 0;
    for (let i = 0; i < this.rows; i++) {
      const own = whole.subarray(starts[i], this.ends[i]);
      this.reserve(own.length);
      (this.values as Int32Array).set(own, this.n);
      this.n += own.length;
      this.ends[i] = this.n;
    }
  }

  private close(record: number): void {
    // 2^32 values of a block are more than any memory for reads.
    if (this.n > 0xffff_fff0) throw new Unfit("range", "has more than 2^32 values in one block");
    this.pad(record);
    if (this.rows === record) this.pad(record + 1);
    this.ends[record] = this.n;
    this.present[record] = 1;
  }

  private pad(rows: number): void {
    if (rows > this.ends.length) {
      const length = Math.max(rows, this.ends.length * 2);
      this.ends = grown(this.ends, length);
      if (this.starts !== undefined) this.starts = grown(this.starts, length);
      this.present = grown(this.present, length);
    }
    const end = this.rows === 0 ? 0 : this.ends[this.rows - 1]!;
    for (; this.rows < rows; this.rows++) {
      this.ends[this.rows] = end;
      if (this.starts !== undefined) this.starts[this.rows] = end;
      this.present[this.rows] = 0;
    }
  }

  private reserve(more: number): void {
    if (this.n + more <= this.values.length) return;
    this.take(grown(this.values, Math.max(this.n + more, this.values.length * 2)));
  }

  private take(values: Column["values"]): void {
    this.values = values;
    this.raw = new Uint8Array(values.buffer);
  }

  private convert(type: NumberType, own: Uint8Array, count: number, big: boolean): void {
    const size = numberBytes(type);
    if (scratch.byteLength < own.length) scratch = new ArrayBuffer(own.length * 2);
    const bytes = new Uint8Array(scratch, 0, own.length);
    bytes.set(own);
    if (big && size > 1) swap(bytes, size);
    if (this.kind === "float") this.toFloats(type, count);
    else this.toIntegers(type, count);
    // Large ones are rare; they are not kept.
    if (scratch.byteLength > 1 << 24) scratch = new ArrayBuffer(1 << 16);
  }

  private toIntegers(type: NumberType, count: number): void {
    if (type === "i8" || type === "u8") return this.toWide(type === "u8", count);
    const from = viewOf(type, scratch, count);
    if (this.values instanceof Int32Array && (type === "i1" || type === "u1" || type === "i2" || type === "u2")) {
      this.n = widen(from as Small, this.values, this.n);
      return;
    }
    for (let i = 0; i < count; i++) {
      const value = type === "b1" ? Number(from[i] !== 0) : (from[i] as number);
      if (value === (value | 0) && this.values instanceof Int32Array) this.values[this.n++] = value;
      else this.putWide(BigInt(value));
    }
  }

  private toWide(unsigned: boolean, count: number): void {
    const words = new Int32Array(scratch, 0, count * 2);
    for (let i = 0; i < count; i++) {
      const low = words[2 * i]!;
      const high = words[2 * i + 1]!;
      if (high === low >> 31 && this.values instanceof Int32Array && !(unsigned && high < 0))
        this.values[this.n++] = low;
      else {
        if (unsigned && high < 0) {
          throw new Unfit("range", `value ${BigInt.asUintN(64, bigOf(low, high))} does not fit int64`);
        }
        this.putWide(bigOf(low, high));
      }
    }
  }

  private putWide(value: bigint): void {
    if (value !== BigInt.asIntN(64, value)) throw new Unfit("range", `value ${short(value)} does not fit int64`);
    if (this.values instanceof Int32Array) {
      const narrow = this.values;
      const wide = new BigInt64Array(narrow.length);
      for (let i = 0; i < this.n; i++) wide[i] = BigInt(narrow[i]!);
      this.take(wide);
    }
    if (!Number.isSafeInteger(Number(value))) this.beyond = true;
    this.values[this.n++] = value;
  }

  private toFloats(type: NumberType, count: number): void {
    if (type === "f2") {
      const from = new Uint16Array(scratch, 0, count);
      for (let i = 0; i < count; i++) this.values[this.n++] = half(from[i]!);
      return;
    }
    // Float32 holds no float64 and no int32 exactly.
    if (type !== "f4") this.toDouble();
    const integers = numberKind(type) === "int64";
    const from = viewOf(type, scratch, count);
    for (let i = 0; i < count; i++) {
      const value = from[i]!;
      this.values[this.n++] = type === "b1" ? Number(value !== 0) : integers ? exact(value) : (value as number);
    }
  }

  private toDouble(): void {
    if (this.values instanceof Float64Array) return;
    const doubles = new Float64Array(this.values.length);
    doubles.set(this.values.subarray(0, this.n) as Float32Array);
    this.take(doubles);
  }
}

type Numbers = ArrayLike<number | bigint>;

function viewOf(type: NumberType, buffer: ArrayBuffer, count: number): Numbers {
  switch (type) {
    case "i1":
      return new Int8Array(buffer, 0, count);
    case "b1":
    case "u1":
      return new Uint8Array(buffer, 0, count);
    case "i2":
      return new Int16Array(buffer, 0, count);
    case "u2":
    case "f2":
      return new Uint16Array(buffer, 0, count);
    case "i4":
      return new Int32Array(buffer, 0, count);
    case "u4":
      return new Uint32Array(buffer, 0, count);
    case "i8":
      return new BigInt64Array(buffer, 0, count);
    case "u8":
      return new BigUint64Array(buffer, 0, count);
    case "f4":
      return new Float32Array(buffer, 0, count);
    case "f8":
      return new Float64Array(buffer, 0, count);
  }
}

/** Types that stay where they are. */
const IN_PLACE: ReadonlySet<NumberType> = new Set(["i1", "u1", "i4", "f4"]);

function wholeOf(type: NumberType, buffer: ArrayBufferLike): Int8Array | Uint8Array | Int32Array | Float32Array {
  if (type === "i1") return new Int8Array(buffer);
  if (type === "u1") return new Uint8Array(buffer);
  const count = Math.floor(buffer.byteLength / 4);
  return type === "i4" ? new Int32Array(buffer, 0, count) : new Float32Array(buffer, 0, count);
}

type Small = Int8Array | Uint8Array | Int16Array | Uint16Array;

/** Behind the last one. A loop: `set` between types takes three times as long. */
function widen(from: Small, to: Int32Array, at: number): number {
  for (let i = 0; i < from.length; i++) to[at + i] = from[i]!;
  return at + from.length;
}

function swap(bytes: Uint8Array, size: number): void {
  for (let at = 0; at < bytes.length; at += size) bytes.subarray(at, at + size).reverse();
}

function bigOf(low: number, high: number): bigint {
  return BigInt(high) * 4294967296n + BigInt(low >>> 0);
}

/** An integer as a float64 that is the same number. */
function exact(value: number | bigint): number {
  const double = Number(value);
  if (!Number.isSafeInteger(double)) {
    throw new Unfit("range", `integer ${short(value)} is beyond 2^53, and the column's other values are floats`);
  }
  return double;
}

/** IEEE 754 binary16. */
function half(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction === 0 ? sign * Number.POSITIVE_INFINITY : Number.NaN;
  return sign * (1024 + fraction) * 2 ** (exponent - 25);
}

function short(value: number | bigint): string {
  const text = String(value);
  return text.length > 40 ? `${text.slice(0, 37)}…` : text;
}

function grown<Self extends Column["values"] | Uint32Array>(values: Self, length: number): Self {
  const Type = values.constructor as new (length: number) => Self;
  const more = new Type(length);
  (more as { set(values: Self): void }).set(values);
  return more;
}
