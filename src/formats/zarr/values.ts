/**
 * Values: the cells of chunks as a typed column of rows, what lies outside the array cut off, what was never written filled in.
 */
import type { AthanorError } from "../../base/errors.ts";
import { workbench } from "../../kernels/workbench.ts";
import { RecordMalformed, ValueRange } from "../errors.ts";
import { fromBfloat16, fromFloat16 } from "../halves.ts";
import type { BlockColumns, Column, RawBlock } from "../types.ts";
import type { Unit } from "./columns.ts";
import type { DataType } from "./dtype.ts";
import { placeOf } from "./sharding.ts";
import { volume, type ArraySpec } from "./spec.ts";

/** `whole`: no unit is left out. `tooLarge`: rows with integers of 2^63 and more. */
export function numbers(
  array: ArraySpec,
  units: readonly Unit[],
  whole: boolean,
  firstRecord: number,
  records: number,
  fill: Uint8Array | null,
): { column: Column; tooLarge: Set<number> } {
  const perRow = volume(array.shape.slice(1));
  const { size } = array.type;
  const data = room(records * perRow * size);
  if (!whole) data.fill(0);
  for (const unit of units) place(array, unit, data, firstRecord, perRow, fill);
  const ends = new Uint32Array(records);
  for (let i = 0; i < records; i++) ends[i] = (i + 1) * perRow;
  const { values, tooLarge } = typed(array.type, data);
  return {
    column: {
      values,
      kind: values instanceof Float32Array || values instanceof Float64Array ? "float" : "int64",
      ends,
    },
    tooLarge: new Set(tooLarge.map((at) => Math.floor(at / perRow))),
  };
}

/** In the workbench where that is lent: what was there before is still in it. */
function room(bytes: number): Uint8Array {
  const bench = workbench();
  bench.alignOutput();
  return bench.stays && bytes <= bench.room ? bench.takeBytes(bytes) : new Uint8Array(bytes);
}

/** Copies the rows of a chunk to where they belong in `out`. */
function place(
  { shape, chunk, type: { size } }: ArraySpec,
  { at, from, to, cells, base }: Unit,
  out: Uint8Array,
  firstRecord: number,
  perRow: number,
  fill: Uint8Array | null,
): void {
  const rowCells = volume(chunk.slice(1));
  // The whole of each row, or of all rows, is one run where the chunk is as wide as the array.
  let axis = shape.length - 1;
  let run = 1;
  while (axis > 0 && chunk[axis] === shape[axis]) run *= chunk[axis--]!;
  const wide = axis === 0;
  const copy = (target: number, source: number, count: number): void => {
    if (cells !== undefined) out.set(cells.data.subarray(source * size, (source + count) * size), target * size);
    else filled(out, target * size, (target + count) * size, fill!);
  };
  if (wide) {
    copy((from - firstRecord) * perRow, (from - base) * run, (to - from) * run);
    return;
  }
  // Runs along `axis`, cut at the array's edge; one for each place of the axes between rows and it.
  const start = at[axis]! * chunk[axis]!;
  const count = Math.min(chunk[axis]!, shape[axis]! - start) * run;
  const middle = chunk.slice(1, axis).map((width, i) => Math.min(width, shape[i + 1]! - at[i + 1]! * width));
  const runs = volume(middle);
  const places = Array.from({ length: runs }, (_, i) => {
    const inside = placeOf(i, middle);
    let source = 0;
    let target = 0;
    for (let a = 1; a < axis; a++) {
      source = source * chunk[a]! + inside[a - 1]!;
      target = target * shape[a]! + at[a]! * chunk[a]! + inside[a - 1]!;
    }
    return { source: source * chunk[axis]! * run, target: (target * shape[axis]! + start) * run };
  });
  for (let row = from; row < to; row++) {
    const rowTarget = (row - firstRecord) * perRow;
    const rowSource = (row - base) * rowCells;
    for (const { source, target } of places) copy(rowTarget + target, rowSource + source, count);
  }
}

function filled(out: Uint8Array, from: number, to: number, fill: Uint8Array): void {
  if (to === from) return;
  if (fill.every((byte) => byte === 0)) return void out.fill(0, from, to);
  out.set(fill, from);
  // Doubling: 20 copies for a million elements.
  for (let done = fill.length; done < to - from; done *= 2)
    out.copyWithin(from + done, from, from + Math.min(done, to - from - done));
}

/** `data` begins at a whole word of 8. */
function typed({ kind, size }: DataType, data: Uint8Array): { values: Column["values"]; tooLarge: number[] } {
  const { buffer, byteOffset: at } = data;
  const count = data.length / size;
  const of = (values: Column["values"]): { values: Column["values"]; tooLarge: number[] } => ({ values, tooLarge: [] });
  switch (`${kind}${size}`) {
    case "b1":
      return of(Int32Array.from(data, (byte) => (byte === 0 ? 0 : 1)));
    case "u1":
      return of(data);
    case "i1":
      return of(new Int8Array(buffer, at, count));
    case "i2":
      return of(new Int32Array(new Int16Array(buffer, at, count)));
    case "u2":
      return of(new Int32Array(new Uint16Array(buffer, at, count)));
    case "i4":
      return of(new Int32Array(buffer, at, count));
    case "u4": {
      const values = new Int32Array(buffer, at, count);
      if (values.every((value) => value >= 0)) return of(values);
      return of(BigInt64Array.from(new Uint32Array(buffer, at, count), BigInt));
    }
    case "i8":
    case "u8":
      return long(new BigInt64Array(buffer, at, count), kind === "u");
    case "f2":
      return of(fromFloat16(new Uint16Array(buffer, at, count)));
    case "bf2":
      return of(fromBfloat16(new Uint16Array(buffer, at, count)));
    case "f4":
      return of(new Float32Array(buffer, at, count));
    default:
      return of(new Float64Array(buffer, at, count));
  }
}

function long(wide: BigInt64Array, unsigned: boolean): { values: Column["values"]; tooLarge: number[] } {
  const words = new Int32Array(wide.buffer, wide.byteOffset, 2 * wide.length);
  const narrow = workbench().spareInts(wide.length) ?? new Int32Array(wide.length);
  let fits = true;
  for (let i = 0; i < narrow.length; i++) {
    const low = words[i * 2]!;
    // Above and below int32 the high word is not the sign of the low one.
    if (words[i * 2 + 1] !== low >> 31) {
      fits = false;
      break;
    }
    narrow[i] = low;
  }
  const tooLarge: number[] = [];
  if (unsigned) for (let i = 0; i < narrow.length; i++) if (words[i * 2 + 1]! < 0) tooLarge.push(i);
  return { values: fits && tooLarge.length === 0 ? narrow : wide, tooLarge };
}

export function valueRange({ path }: ArraySpec, file: string, record: number): AthanorError {
  return new ValueRange(
    `array ${JSON.stringify(path)}: a value is 2^63 or more`,
    { file, record },
    "leave the field out of columns=: tokens and other integers must fit int64",
  );
}

/** Strings and lists: one element a record. */
export function texts(
  array: ArraySpec,
  units: readonly Unit[],
  { firstRecord, records, file }: RawBlock,
  fill: Uint8Array | null,
  faults: BlockColumns["faults"],
): { column: Column; tooLarge: Set<number> } {
  const { type, chunk } = array;
  const rowCells = volume(chunk.slice(1));
  const rows: (Uint8Array | undefined)[] = Array.from({ length: records });
  let total = 0;
  for (const { from, to, cells, base } of units) {
    for (let row = from; row < to; row++) {
      const cell = (row - base) * rowCells;
      const bytes = cells === undefined ? fill! : cellOf(cells, cell);
      const own = type.kind === "U" ? utf8(bytes) : type.kind === "S" ? unpadded(bytes) : bytes;
      rows[row - firstRecord] = own;
      total += own.length;
    }
  }
  const data = new Uint8Array(total);
  const ends = new Uint32Array(records);
  let at = 0;
  const width = type.item?.size ?? 1;
  for (let i = 0; i < records; i++) {
    const own = rows[i];
    if (own !== undefined && own.length % width !== 0) {
      const fault = new RecordMalformed(`a list of ${own.length} bytes is no whole number of elements of ${width}`, {
        file,
        record: firstRecord + i,
      });
      if (!faults.has(i)) faults.set(i, fault);
    } else if (own !== undefined) {
      data.set(own, at);
      at += own.length;
    }
    ends[i] = at / width;
  }
  if (type.item === undefined) return { column: { values: data, kind: "bytes", ends }, tooLarge: new Set() };
  const { values, tooLarge } = typed(type.item, data.slice(0, at));
  const kind = values instanceof Float32Array || values instanceof Float64Array ? "float" : "int64";
  let row = 0;
  const rowOf = (place: number): number => {
    while (ends[row]! <= place) row++;
    return row;
  };
  return { column: { values, kind, ends, list: true }, tooLarge: new Set(tooLarge.map(rowOf)) };
}

function cellOf({ data, size, begin, end }: NonNullable<Unit["cells"]>, cell: number): Uint8Array {
  return begin === undefined || end === undefined
    ? data.subarray(cell * size, (cell + 1) * size)
    : data.subarray(begin[cell], end[cell]);
}

function unpadded(bytes: Uint8Array): Uint8Array {
  let length = bytes.length;
  while (length > 0 && bytes[length - 1] === 0) length--;
  return bytes.subarray(0, length);
}

/** UTF-32 as UTF-8; what is no character is U+FFFD. */
function utf8(bytes: Uint8Array): Uint8Array {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const points: number[] = [];
  for (let at = 0; at < bytes.length; at += 4) points.push(view.getUint32(at, true));
  while (points.at(-1) === 0) points.pop();
  const isCharacter = (point: number): boolean => point < 0xd800 || (point > 0xdfff && point <= 0x10ffff);
  let text = "";
  for (const point of points) text += isCharacter(point) ? String.fromCodePoint(point) : "\uFFFD";
  return new TextEncoder().encode(text);
}
