/**
 * Values: rows of a dataset, as the HDF5 library has put them into its memory (little-endian, pointers of 32 bits), as a column.
 * Everything is copied: the memory is the library's.
 *
 * @example
 * const { column, tooLarge } = decodeRows(h5.HEAPU8, at, rows, field);
 */
import type { AthanorError } from "../../base/errors.ts";
import { ValueRange } from "../errors.ts";
import { fromBfloat16, fromFloat16 } from "../halves.ts";
import type { Column } from "../types.ts";
import type { NumberReading } from "./dtype.ts";
import type { Hdf5Field } from "./layout.ts";

export interface DecodedRows {
  column: Column;
  /** Rows with a value of 2^63 or more (unsigned 64-bit integers), with the first of these; among the values it is negative. */
  tooLarge: Map<number, bigint>;
}

/** `rows` rows of `field` at address `at` of `heap`. Throws RangeError where a pointer leads out of it. */
export function decodeRows(heap: Uint8Array, at: number, rows: number, { reading, perRow }: Hdf5Field): DecodedRows {
  const none = (column: Column): DecodedRows => ({ column, tooLarge: new Map() });
  switch (reading.how) {
    case "int": {
      const values = ints(heap, at, rows * perRow, reading);
      if (values instanceof BigUint64Array) return marked(values, evenEnds(rows, perRow));
      return none({ kind: "int64", values, ends: evenEnds(rows, perRow) });
    }
    case "float":
      return none({ kind: "float", values: floats(heap, at, rows * perRow, reading), ends: evenEnds(rows, perRow) });
    case "fixed":
      return none(fixed(heap, at, rows, reading.size, reading.strpad));
    case "text":
      return none(text(heap, at, rows));
    case "list":
      return lists(heap, at, rows, reading.item);
  }
}

/** Numbers alone, left where they are or made wider; undefined: one does not fit int64. `bytes` begin at a whole word of 8. */
export function decodeNumbers(bytes: Uint8Array, reading: NumberReading): Column["values"] | undefined {
  const count = Math.floor(bytes.length / reading.size);
  const { buffer, byteOffset: at } = bytes;
  if (reading.how === "float") {
    if (reading.size === 4) return new Float32Array(buffer, at, count);
    return reading.size === 8 ? new Float64Array(buffer, at, count) : floats(bytes, 0, count, reading);
  }
  if (reading.size === 1) return reading.signed ? new Int8Array(buffer, at, count) : bytes;
  if (reading.size === 4 && reading.signed) return new Int32Array(buffer, at, count);
  const values = ints(bytes, 0, count, reading);
  return values instanceof BigUint64Array ? undefined : values;
}

function evenEnds(rows: number, perRow: number): Uint32Array {
  const ends = new Uint32Array(rows);
  for (let i = 0; i < rows; i++) ends[i] = (i + 1) * perRow;
  return ends;
}

/** BigUint64Array: some value does not fit int64. */
function ints(
  heap: Uint8Array,
  at: number,
  count: number,
  { size, signed }: NumberReading,
): Int32Array | BigInt64Array | BigUint64Array {
  const { buffer } = heap;
  const begin = heap.byteOffset + at;
  switch (size) {
    case 1:
      return new Int32Array(signed ? new Int8Array(buffer, begin, count) : new Uint8Array(buffer, begin, count));
    case 2:
      return new Int32Array(signed ? new Int16Array(buffer, begin, count) : new Uint16Array(buffer, begin, count));
    case 4: {
      const narrow = new Int32Array(buffer, begin, count);
      if (signed || narrow.every((value) => value >= 0)) return narrow.slice();
      return BigInt64Array.from(new Uint32Array(buffer, begin, count), BigInt);
    }
    default: {
      const words = new Int32Array(buffer, begin, 2 * count);
      const narrow = new Int32Array(count);
      let fits = true;
      let over = false;
      for (let i = 0; i < count; i++) {
        const low = words[2 * i]!;
        const high = words[2 * i + 1]!;
        narrow[i] = low;
        if (high !== low >> 31) fits = false;
        if (high < 0) over = true;
      }
      if (over && !signed) return new BigUint64Array(buffer, begin, count).slice();
      return fits ? narrow : new BigInt64Array(buffer, begin, count).slice();
    }
  }
}

function floats(
  heap: Uint8Array,
  at: number,
  count: number,
  { size, bfloat16 }: NumberReading,
): Float32Array | Float64Array {
  const begin = heap.byteOffset + at;
  if (size === 4) return new Float32Array(heap.buffer, begin, count).slice();
  if (size === 8) return new Float64Array(heap.buffer, begin, count).slice();
  const halves = new Uint16Array(heap.buffer, begin, count);
  return bfloat16 === true ? fromBfloat16(halves) : fromFloat16(halves);
}

/** Rows of u64, and which of them have a value over int64. */
function marked(values: BigUint64Array, ends: Uint32Array): DecodedRows {
  const tooLarge = new Map<number, bigint>();
  let row = 0;
  for (let i = 0; i < values.length; i++) {
    while (ends[row]! <= i) row++;
    if (values[i]! >= 1n << 63n && !tooLarge.has(row)) tooLarge.set(row, values[i]!);
  }
  const { buffer, byteOffset, length } = values;
  return { column: { kind: "int64", values: new BigInt64Array(buffer, byteOffset, length), ends }, tooLarge };
}

/** `value`: of 2^63 or more. */
export function tooLarge(file: string, name: string, record: number, value: bigint): AthanorError {
  return new ValueRange(
    `dataset /${name}: value ${value} does not fit int64`,
    { file, record },
    "leave the field out of columns=, or store it as a signed integer or as text",
  );
}

function fixed(heap: Uint8Array, at: number, rows: number, size: number, strpad: number): Column {
  const values = new Uint8Array(rows * size);
  const ends = new Uint32Array(rows);
  let end = 0;
  for (let i = 0; i < rows; i++) {
    const row = heap.subarray(at + i * size, at + (i + 1) * size);
    let length = size;
    if (strpad === 0) {
      const nul = row.indexOf(0);
      if (nul >= 0) length = nul;
    } else {
      const pad = strpad === 2 ? 0x20 : 0;
      while (length > 0 && row[length - 1] === pad) length--;
    }
    values.set(row.subarray(0, length), end);
    end += length;
    ends[i] = end;
  }
  return { kind: "bytes", values: values.slice(0, end), ends };
}

function text(heap: Uint8Array, at: number, rows: number): Column {
  const pointers = new Uint32Array(heap.buffer, heap.byteOffset + at, rows);
  const ends = new Uint32Array(rows);
  let end = 0;
  for (let i = 0; i < rows; i++) {
    const pointer = pointers[i]!;
    if (pointer !== 0) {
      const nul = heap.indexOf(0, pointer);
      if (nul < 0) throw new RangeError("a string without an end");
      end += nul - pointer;
    }
    ends[i] = end;
  }
  const values = new Uint8Array(end);
  let from = 0;
  for (let i = 0; i < rows; i++) {
    const to = ends[i]!;
    if (to > from) values.set(heap.subarray(pointers[i], pointers[i]! + to - from), from);
    from = to;
  }
  return { kind: "bytes", values, ends };
}

/** hvl_t: u32 values, u32 address. */
function lists(heap: Uint8Array, at: number, rows: number, item: NumberReading): DecodedRows {
  const pairs = new Uint32Array(heap.buffer, heap.byteOffset + at, 2 * rows);
  const ends = new Uint32Array(rows);
  let end = 0;
  for (let i = 0; i < rows; i++) {
    const bytes = pairs[2 * i]! * item.size;
    if (pairs[2 * i + 1]! + bytes > heap.length) throw new RangeError("a list that leads out of the memory");
    end += pairs[2 * i]!;
    ends[i] = end;
  }
  // Side by side and aligned, as if they were a dataset of their own.
  const flat = new Uint8Array(end * item.size);
  let from = 0;
  for (let i = 0; i < rows; i++) {
    const bytes = pairs[2 * i]! * item.size;
    flat.set(heap.subarray(pairs[2 * i + 1], pairs[2 * i + 1]! + bytes), from);
    from += bytes;
  }
  if (item.how === "float") {
    return { column: { kind: "float", values: floats(flat, 0, end, item), ends }, tooLarge: new Map() };
  }
  const values = ints(flat, 0, end, item);
  if (values instanceof BigUint64Array) return marked(values, ends);
  return { column: { kind: "int64", values, ends }, tooLarge: new Map() };
}
