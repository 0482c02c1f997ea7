/**
 * Rows: a range of rows of an HDF5 file as typed columns. Rows of a chunk that cannot be read are faults of each of them; they
 * are found by halving the range at chunk borders, so that all others keep their values.
 *
 * Contract: a function of the file's bytes, range and field; what one field's bad rows are does not depend on other fields.
 *
 * @example
 * const { fields, faults } = await readRows("/d/a.h5", 0, 1024, ["tokens"]);
 */
import type { AthanorError } from "../../base/errors.ts";
import { RecordCrc, RecordMalformed, ValueRange } from "../errors.ts";
import { FeatureKind } from "../errors.ts";
import { ShardTruncated } from "../../storage/errors.ts";
import type { BlockColumns, Column } from "../types.ts";
import { checkUnchanged, forget, inTurn, openFile, type Hdf5File } from "./file.ts";
import type { Hdf5Field } from "./layout.ts";
import { Hdf5Failure } from "./library.ts";
import { decodeRows, type DecodedRows } from "./values.ts";

/** Failed reads for a field of a block; then the rest of the range is bad as a whole. A crash counts as many. */
const MAX_FAILURES = 64;
const CRASH_WEIGHT = 16;
/** Strings and lists: rows a read, since their bytes are not known before. */
const LOOSE_ROWS = 1024;

/** `names`: undefined: all fields. */
export function readRows(
  path: string,
  from: number,
  to: number,
  names: readonly string[] | undefined,
): Promise<BlockColumns> {
  return inTurn(async () => {
    const { layout } = await openFile(path);
    if (to > layout.rows) {
      throw new ShardTruncated(
        `its datasets have ${layout.rows} rows, expected at least ${to}`,
        { file: path, record: layout.rows },
        "run `athanor index` again: the shard has changed",
      );
    }
    const columns: BlockColumns = { fields: new Map(), faults: new Map() };
    for (const field of layout.fields) {
      if (names !== undefined && !names.includes(field.name)) continue;
      columns.fields.set(field.name, await readColumn(path, field, from, to, columns.faults));
    }
    checkUnchanged(await openFile(path));
    return columns;
  });
}

interface Piece {
  rows: number;
  /** Undefined: its rows are bad. */
  read: DecodedRows | undefined;
}

async function readColumn(
  path: string,
  field: Hdf5Field,
  from: number,
  to: number,
  faults: Map<number, AthanorError>,
): Promise<Column> {
  const pieces: Piece[] = [];
  let left = MAX_FAILURES;
  const step = field.reading.how === "text" || field.reading.how === "list" ? LOOSE_ROWS : to - from;
  const fault = (row: number, error: AthanorError): void => {
    if (!faults.has(row - from)) faults.set(row - from, error);
  };
  const take = async (a: number, b: number): Promise<void> => {
    const file = await openFile(path);
    try {
      const same = file.layout.fields.find(({ name }) => name === field.name) ?? gone(path, field.name);
      const read = readOnce(file, same, a, b);
      for (const [i, value] of read.tooLarge) fault(a + i, tooLarge(path, field.name, a + i, value));
      pieces.push({ rows: b - a, read });
    } catch (error) {
      if (!(error instanceof Hdf5Failure)) throw error;
      if (error.crashed) forget(file);
      left -= error.crashed ? CRASH_WEIGHT : 1;
      const middle = left > 0 ? middleOf(a, b, field.chunkRows) : undefined;
      if (middle === undefined) {
        for (let row = a; row < b; row++) fault(row, unreadable(error, path, field.name, row, a, b));
        pieces.push({ rows: b - a, read: undefined });
        return;
      }
      await take(a, middle);
      await take(middle, b);
    }
  };
  for (let a = from; a < to; a += step) await take(a, Math.min(a + step, to));
  return joined(field, pieces);
}

/** A chunk border inside (a, b), the one nearest to its middle. */
function middleOf(a: number, b: number, chunkRows: number): number | undefined {
  const middle = Math.round((a + b) / 2 / chunkRows) * chunkRows;
  if (middle > a && middle < b) return middle;
  const first = (Math.floor(a / chunkRows) + 1) * chunkRows;
  return first < b ? first : undefined;
}

function readOnce({ library, id }: Hdf5File, field: Hdf5Field, from: number, to: number): DecodedRows {
  const { name, shape, rowBytes, reading } = field;
  const rows = to - from;
  const path = `/${name}`;
  const count = [BigInt(rows), ...shape.slice(1).map(BigInt)];
  const offset = shape.map((_, d) => (d === 0 ? BigInt(from) : 0n));
  const stride = shape.map(() => 1n);
  const bytes = rows * rowBytes;
  if (bytes === 0) return decodeRows(new Uint8Array(0), 0, rows, field);
  const at = library.call((h5) => h5._malloc(bytes));
  if (at === 0) throw library.failure(`no memory for ${bytes} bytes of dataset /${name}`);
  try {
    const pointers = reading.how === "text" || reading.how === "list";
    // A read that fails half-way leaves pointers that lead nowhere.
    if (pointers) library.h5.HEAPU8.fill(0, at, at + bytes);
    const status = library.call((h5) => h5.get_dataset_data(id, path, count, offset, stride, BigInt(at)));
    if (status < 0) throw library.failure("the read failed");
    const read = library.call((h5) => decodeRows(h5.HEAPU8, at, rows, field));
    if (pointers) library.call((h5) => h5.reclaim_vlen_memory_count(id, path, "", BigInt(at), count));
    return read;
  } finally {
    library.release(at);
  }
}

function joined(field: Hdf5Field, pieces: readonly Piece[]): Column {
  const [only] = pieces;
  if (pieces.length === 1 && only!.read !== undefined) return only!.read.column;
  const ends = new Uint32Array(pieces.reduce((sum, { rows }) => sum + rows, 0));
  const lists: Column["values"][] = [];
  let row = 0;
  let end = 0;
  for (const { rows, read } of pieces) {
    for (let i = 0; i < rows; i++) ends[row++] = end + (read?.column.ends[i] ?? 0);
    if (read === undefined) continue;
    lists.push(read.column.values);
    end += read.column.values.length;
  }
  return { kind: field.kind, values: concat(field, lists, end), ends };
}

function concat({ kind, reading }: Hdf5Field, lists: readonly Column["values"][], length: number): Column["values"] {
  const wide = lists.some((values) => values instanceof BigInt64Array);
  const item = reading.how === "list" ? reading.item : reading;
  const double = item.how === "float" && item.size === 8;
  const all =
    kind === "bytes"
      ? new Uint8Array(length)
      : kind === "float"
        ? new (double ? Float64Array : Float32Array)(length)
        : new (wide ? BigInt64Array : Int32Array)(length);
  let at = 0;
  for (const values of lists) {
    if (all instanceof BigInt64Array) {
      all.set(values instanceof BigInt64Array ? values : BigInt64Array.from(values as Int32Array, BigInt), at);
    } else {
      all.set(values as Uint8Array, at);
    }
    at += values.length;
  }
  return all;
}

function gone(path: string, name: string): never {
  throw new FeatureKind(
    `dataset /${name} is not there any more`,
    { file: path },
    "run `athanor index` again: the shard has changed",
  );
}

function tooLarge(file: string, name: string, record: number, value: bigint): AthanorError {
  return new ValueRange(
    `dataset /${name}: value ${value} does not fit int64`,
    { file, record },
    "store it as a signed integer, or as text",
  );
}

function unreadable(
  failure: Hdf5Failure,
  file: string,
  name: string,
  record: number,
  from: number,
  to: number,
): AthanorError {
  const { lastRead, message, printed } = failure;
  const where = lastRead?.path === file ? { file, record, byteOffset: lastRead.offset } : { file, record };
  const Fault = /fletcher32|checksum/i.test(printed) ? RecordCrc : RecordMalformed;
  return new Fault(
    `dataset /${name}, rows ${from} to ${to - 1} cannot be read: ${message}`,
    where,
    "the shard is damaged: copy it again",
    failure,
  );
}
