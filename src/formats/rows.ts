/**
 * Rows: typed columns of a block as stored rows in kernel memory (`types.ts` has the picture of a row).
 *
 * Contract: writes the rows whose address is not 0 and no byte outside them; a record with a fault, with a value that its
 * column cannot hold, or without the one value of a column, is told of, and its row is not to be used.
 *
 * @example
 * const { rows, truncated, faults } = storeRows(memory.buffer, columns, block, request);
 */
import type { AthanorError } from "../base/errors.ts";
import type { Kernels } from "../kernels/kernels.ts";
import { dense, startOf, widened } from "./dense.ts";
import { valueMissing, ValueRange } from "./errors.ts";
import { prefixCounter } from "./prefix.ts";
import { ROW_HEADER_BYTES, type BlockColumns, type BlockSamples, type Column, type StoredColumn } from "./types.ts";

export interface RowsRequest {
  /** Address of u32[records]: the row of each record, 0 = not wanted. */
  rows: number;
  records: number;
  /** Number in the shard of the first record. */
  firstRecord: number;
  shardKey: bigint;
  file: string;
  /** Over the memory that rows are written to. Values that lie in it, too, and evenly, are copied a run of rows at a time. */
  kernels?: Kernels | undefined;
  /** Identities where records are samples cut out of the shard's. */
  samples?: Pick<BlockSamples, "record" | "token"> | undefined;
}

export interface StoredRows {
  rows: number;
  /** Rows in which a list was cut to its column's length. */
  truncated: number;
  /** Faults of wanted records, by number in the block. */
  faults: Map<number, AthanorError>;
}

const FLAG_CUT = 1;

export function storeRows(
  buffer: ArrayBufferLike,
  columns: readonly StoredColumn[],
  block: BlockColumns,
  request: RowsRequest,
): StoredRows {
  const addresses = new Uint32Array(buffer, request.rows, request.records);
  const faults = new Map<number, AthanorError>();
  const cut = new Uint8Array(request.records);
  for (const [i, fault] of block.faults) if (addresses[i] !== 0) faults.set(i, fault);
  for (const column of columns) {
    const field = block.fields.get(column.feature);
    const write = writerOf(buffer, column, field);
    const copyRun = field && runCopier(request, column, field);
    for (let i = 0; i < request.records; i++) {
      // A record with a fault has no row to be spoilt, but may have values that lie anywhere.
      const behind = copyRun === undefined || faults.size > 0 ? i : copyRun(i, cut);
      if (behind > i) {
        i = behind - 1;
        continue;
      }
      const row = addresses[i]!;
      if (row === 0 || (faults.size > 0 && faults.has(i))) continue;
      if (column.required === true && isEmpty(field, i)) {
        faults.set(i, valueMissing(column.feature, { file: request.file, record: recordOf(request, i) }));
        continue;
      }
      const bad = write(i, row);
      if (bad === CUT || (bad === undefined && field?.cut?.[i] === 1)) cut[i] = 1;
      else if (bad !== undefined) faults.set(i, outOfRange(column, bad, request, i));
    }
  }
  // A BigInt a row would cost more than all else here; memory of kernels is little-endian.
  const words = new Uint32Array(buffer);
  const [keyLow, keyHigh] = [Number(request.shardKey & 0xffffffffn), Number(request.shardKey >> 32n)];
  const { samples } = request;
  const spotless = faults.size === 0;
  let rows = 0;
  let truncated = 0;
  for (let i = 0; i < request.records; i++) {
    const row = addresses[i]!;
    if (row === 0 || (!spotless && faults.has(i))) continue;
    const at = row >>> 2;
    const record = recordOf(request, i);
    words[at] = keyLow;
    words[at + 1] = keyHigh;
    words[at + 2] = record;
    words[at + 3] = record / 2 ** 32;
    words[at + 4] = samples === undefined ? 0 : samples.token[i]!;
    words[at + 5] = cut[i] === 1 ? FLAG_CUT : 0;
    words[at + 6] = 0;
    words[at + 7] = 0;
    rows++;
    truncated += cut[i]!;
  }
  return { rows, truncated, faults };
}

/**
 * Copies rows from record i on whose values lie evenly in the memory of the rows, each as long as its column or longer; gives the
 * record behind them, i where there is none. Undefined: values of this column lie elsewhere, or have to be converted.
 */
function runCopier(
  { kernels, rows, records }: RowsRequest,
  { storage, maxLength, rowOffset, required }: StoredColumn,
  column: Column,
): ((i: number, cut: Uint8Array) => number) | undefined {
  const { values, ends } = column;
  const fits = storage === "i32" ? values instanceof Int32Array : storage === "f32" && values instanceof Float32Array;
  if (kernels === undefined || !fits || values.buffer !== kernels.memory.buffer) return undefined;
  if (required === true || column.cut !== undefined) return undefined;
  const size = values.BYTES_PER_ELEMENT;
  return (i, cut) => {
    const from = startOf(column, i);
    const length = ends[i]! - from;
    if (length < maxLength) return i;
    let behind = i + 1;
    let stride = length;
    for (let last = from; behind < records; behind++) {
      const next = startOf(column, behind);
      if (ends[behind]! - next !== length || next < last) break;
      if (behind === i + 1) stride = next - last;
      else if (next - last !== stride) break;
      last = next;
    }
    kernels.scatter(
      rows + i * 4,
      behind - i,
      values.byteOffset + from * size,
      stride * size,
      rowOffset,
      maxLength * size,
    );
    if (length > maxLength) cut.fill(1, i, behind);
    return behind;
  };
}

function isEmpty(field: Column | undefined, i: number): boolean {
  return field === undefined || field.ends[i] === startOf(field, i);
}

/** With values that a column of this storage takes; of those that are left where they are (all memory) none is converted. */
function fitting(column: Column, storage: StoredColumn["storage"]): Column {
  const { values, starts } = column;
  if (storage === "length" || storage === "prefix") return column;
  const asStored =
    storage === "f32" ? values instanceof Float32Array : storage === "i32" && values instanceof Int32Array;
  if (asStored) return column;
  return widened(starts === undefined ? column : dense(column));
}

const CUT = Symbol("cut");
/** Writes one row; tells of a cut list, or gives the value that does not fit. */
type Write = (i: number, row: number) => typeof CUT | bigint | number | undefined;

function writerOf(buffer: ArrayBufferLike, stored: StoredColumn, given: Column | undefined): Write {
  const { rowOffset, maxLength, storage } = stored;
  const column = given && fitting(given, storage);
  if (rowOffset < ROW_HEADER_BYTES) throw new RangeError(`rowOffset must be at least ${ROW_HEADER_BYTES}`);
  const ends = column?.ends;
  const starts = column?.starts;
  const begin =
    starts === undefined
      ? (i: number): number => (ends === undefined || i === 0 ? 0 : ends[i - 1]!)
      : (i: number): number => starts[i]!;
  const end = (i: number): number => (ends === undefined ? 0 : ends[i]!);
  switch (storage) {
    case "length": {
      const words = new Uint32Array(buffer);
      // No `CUT`: the column that the length is of tells of it.
      return (i, row) => void (words[(row + rowOffset) >>> 2] = Math.min(end(i) - begin(i), maxLength));
    }
    case "prefix": {
      const words = new Uint32Array(buffer);
      const values = column?.values ?? new Int32Array(0);
      const onesIn = prefixCounter(values);
      return (i, row) => {
        const from = begin(i);
        const to = end(i);
        const ones = onesIn(from, to);
        if (ones < 0) return breaking(values, from);
        words[(row + rowOffset) >>> 2] = Math.min(ones, maxLength);
        return to - from > maxLength ? CUT : undefined;
      };
    }
    case "i32":
      return copier(new Int32Array(buffer), narrow(column?.values), stored, begin, end, Number(stored.pad), fits32);
    case "i64":
      return copier(new BigInt64Array(buffer), wide(column?.values), stored, begin, end, BigInt(stored.pad), always);
    case "f32":
      return copier(
        new Float32Array(buffer),
        floats(column?.values),
        stored,
        begin,
        end,
        Number(stored.pad),
        fitsFloat,
      );
  }
}

/** The value that breaks a mask, which begins at `from`. */
function breaking(values: Column["values"], from: number): number | bigint {
  let at = from;
  while (Number(values[at]) === 1) at++;
  while (Number(values[at]) === 0) at++;
  return values[at]!;
}

interface Target<Value> {
  [index: number]: Value;
  readonly BYTES_PER_ELEMENT: number;
  set(values: ArrayLike<Value>, at: number): void;
  fill(value: Value, from: number, to: number): unknown;
}
interface Values<Value> extends ArrayLike<Value> {
  readonly byteOffset: number;
  subarray(from: number, to: number): ArrayLike<Value>;
}

function copier<Source extends Values<Value>, Value extends number | bigint>(
  target: Target<Value>,
  values: Source,
  { rowOffset, maxLength }: StoredColumn,
  begin: (i: number) => number,
  end: (i: number) => number,
  pad: Value,
  fits: (values: Source, from: number, to: number) => Value | undefined,
): Write {
  const bytes = target.BYTES_PER_ELEMENT;
  return (i, row) => {
    const from = begin(i);
    const to = end(i);
    const length = Math.min(to - from, maxLength);
    const bad = fits(values, from, from + length);
    if (bad !== undefined) return bad;
    const at = (row + rowOffset) / bytes;
    // Into shared memory V8 copies byte by byte unless both lie alike in words of 8.
    if (((values.byteOffset + from * bytes - at * bytes) & 7) === 0 && length > 0) {
      target.set(values.subarray(from, from + length), at);
    } else for (let j = 0; j < length; j++) target[at + j] = values[from + j]!;
    if (length < maxLength) target.fill(pad, at + length, at + maxLength);
    return to - from > maxLength ? CUT : undefined;
  };
}

/** Greatest finite float32; values up to half a step above it still round to it. */
const MAX_FLOAT = 3.4028234663852886e38;
const always = (): undefined => undefined;

function fits32(values: Int32Array | Float64Array, from: number, to: number): number | undefined {
  if (values instanceof Int32Array) return undefined;
  for (let at = from; at < to; at++) if (values[at]! !== (values[at]! | 0)) return values[at];
  return undefined;
}

/** No finite value is delivered as an infinity. */
function fitsFloat(values: Float32Array | Float64Array | Int32Array, from: number, to: number): number | undefined {
  if (!(values instanceof Float64Array)) return undefined;
  for (let at = from; at < to; at++) {
    if (Math.abs(values[at]!) > MAX_FLOAT && Number.isFinite(values[at]!) && !Number.isFinite(Math.fround(values[at]!)))
      return values[at];
  }
  return undefined;
}

/** i64 values that an i32 column is to take: as f64, so that one that does not fit is seen. */
function narrow(values: Column["values"] | undefined): Int32Array | Float64Array {
  if (values === undefined) return new Int32Array(0);
  if (values instanceof Int32Array) return values;
  // `set` converts f64 to i32 exactly once `fits32` has passed them.
  return Float64Array.from(values as BigInt64Array, Number);
}

function wide(values: Column["values"] | undefined): BigInt64Array {
  if (values instanceof BigInt64Array) return values;
  return BigInt64Array.from((values ?? []) as Int32Array, BigInt);
}

function floats(values: Column["values"] | undefined): Float32Array | Float64Array {
  // A shard can have integers where the set has fractions (`Field.loose`); `set` takes i32 as they are.
  if (values instanceof BigInt64Array) return Float64Array.from(values, Number);
  return (values ?? new Float32Array(0)) as Float32Array | Float64Array;
}

/** Of a row; of one that is made of several records the first. */
function recordOf({ firstRecord, samples }: RowsRequest, i: number): number {
  return samples === undefined ? firstRecord + i : samples.record[i]!;
}

function outOfRange(column: StoredColumn, value: bigint | number, request: RowsRequest, i: number): AthanorError {
  const what = `feature ${JSON.stringify(column.feature)}: value ${value}`;
  const where = { file: request.file, record: recordOf(request, i) };
  if (column.storage === "f32") {
    const remedy = "write a smaller value, or leave the column out with columns=";
    return new ValueRange(`${what} does not fit float32, as which fractions are delivered`, where, remedy);
  }
  const rule =
    column.storage === "prefix" ? "breaks the mask, which must be ones followed by zeros" : "does not fit int32";
  return new ValueRange(`${what} ${rule}`, where, "run `athanor index` again: the shard has changed");
}
