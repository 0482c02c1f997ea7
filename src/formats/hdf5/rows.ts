/**
 * Rows: a range of rows of an HDF5 file as typed columns. Rows of a chunk that cannot be read are faults of each of them; they
 * are found by halving the range at chunk borders, so that all others keep their values.
 *
 * Contract: a function of the file's bytes, range and field; what one field's bad rows are does not depend on other fields.
 *
 * @example
 * const { column, faults } = await readColumn("/d/a.h5", "tokens", 0, 1024);
 */
import type { AthanorError } from "../../base/errors.ts";
import { RecordCrc, RecordMalformed } from "../errors.ts";
import { ShardTruncated } from "../../storage/errors.ts";
import type { Column } from "../types.ts";
import { placesOf } from "./direct.ts";
import { checkUnchanged, openFile, type Hdf5File } from "./file.ts";
import type { Hdf5Field } from "./layout.ts";
import { Hdf5Failure } from "./library.ts";
import { decodeRows, type DecodedRows } from "./values.ts";

/** Failed reads for a field of a block; then the rest of the range is bad as a whole. A crash counts as many. */
const MAX_FAILURES = 24;
const CRASH_WEIGHT = 6;
/** What memory holds before a read: no token, and rare enough elsewhere, since where it is found is read twice. */
const CANARY = 0xa5;
const CANARY_WORD = 0xa5a5a5a5;
/** Strings and lists: rows a read, since their bytes are not known before. */
const LOOSE_ROWS = 1024;

/** Rows of one field; `faults` by number from `from`. */
export interface ReadColumn {
  column: Column;
  faults: Map<number, AthanorError>;
  /** Rows with a value of 2^63 or more, by number from `from`, with the first of these. */
  tooLarge: Map<number, bigint>;
  /** Where its chunks lie (`placesOf`), if that was asked for and could be told. */
  places?: readonly number[] | undefined;
}

/** `places`: find out where its chunks lie. Undefined: the file has no such field. */
export async function readColumn(
  path: string,
  name: string,
  from: number,
  to: number,
  places = false,
): Promise<ReadColumn | undefined> {
  const { layout } = await openFile(path);
  if (to > layout.rows) {
    throw new ShardTruncated(
      `its datasets have ${layout.rows} rows, expected at least ${to}`,
      { file: path, record: layout.rows },
      "run `athanor index` again: the shard has changed",
    );
  }
  const field = layout.fields.find((one) => one.name === name);
  if (field === undefined) return undefined;
  const read = await columnOf(path, field, from, to, places);
  checkUnchanged(await openFile(path));
  return read;
}

interface ReadRows extends DecodedRows {
  places?: readonly number[] | undefined;
}

interface Piece {
  rows: number;
  /** Undefined: its rows are bad. */
  read: ReadRows | undefined;
}

async function columnOf(
  path: string,
  field: Hdf5Field,
  from: number,
  to: number,
  places: boolean,
): Promise<ReadColumn> {
  const faults = new Map<number, AthanorError>();
  const large = new Map<number, bigint>();
  const pieces: Piece[] = [];
  let left = MAX_FAILURES;
  const step = field.reading.how === "text" || field.reading.how === "list" ? LOOSE_ROWS : to - from;
  const fault = (row: number, error: AthanorError): void => {
    if (!faults.has(row - from)) faults.set(row - from, error);
  };
  const take = async (a: number, b: number): Promise<void> => {
    const failure = await attempt(a, b);
    if (failure === undefined) return;
    left -= failure.crashed ? CRASH_WEIGHT : 1;
    const middle = left > 0 && separable(failure, field) ? middleOf(a, b, field.chunkRows) : undefined;
    if (middle === undefined) {
      for (let row = a; row < b; row++) fault(row, unreadable(failure, path, field, row, a, b));
      pieces.push({ rows: b - a, read: undefined });
      return;
    }
    await take(a, middle);
    await take(middle, b);
  };
  // Apart, so that no waiting `take` holds on to a library instance that is gone.
  const attempt = async (a: number, b: number): Promise<Hdf5Failure | undefined> => {
    try {
      const read = readOnce(await openFile(path), field, a, b, places);
      for (const [i, value] of read.tooLarge) large.set(a + i - from, value);
      pieces.push({ rows: b - a, read });
      return undefined;
    } catch (error) {
      if (error instanceof Hdf5Failure) return error;
      throw error;
    }
  };
  for (let a = from; a < to; a += step) await take(a, Math.min(a + step, to));
  const [only] = pieces;
  const found = pieces.length === 1 ? only?.read?.places : undefined;
  return { column: joined(field, pieces), faults, tooLarge: large, places: found };
}

const FILTER_FAILED = /filter returned failure/;
/** Of `scripts/patch-hdf5.mjs`. */
const CHUNK_SHORT = /chunk of \d+ bytes, expected/;

/**
 * May a part of the range still be read? Behind a damaged heap of strings and lists the library reads beyond what it has: what it
 * then finds well or bad depends on what it read before.
 */
function separable({ printed }: Hdf5Failure, { reading }: Hdf5Field): boolean {
  if (reading.how !== "text" && reading.how !== "list") return true;
  return FILTER_FAILED.test(printed) || CHUNK_SHORT.test(printed);
}

/** A chunk border inside (a, b), the one nearest to its middle. */
function middleOf(a: number, b: number, chunkRows: number): number | undefined {
  const middle = Math.round((a + b) / 2 / chunkRows) * chunkRows;
  if (middle > a && middle < b) return middle;
  const first = (Math.floor(a / chunkRows) + 1) * chunkRows;
  return first < b ? first : undefined;
}

function readOnce(
  { library, id, path: file }: Hdf5File,
  field: Hdf5Field,
  from: number,
  to: number,
  places: boolean,
): ReadRows {
  const { name, shape, rowBytes, reading } = field;
  const rows = to - from;
  const path = `/${name}`;
  const count = [BigInt(rows), ...shape.slice(1).map(BigInt)];
  const offset = shape.map((_, d) => (d === 0 ? BigInt(from) : 0n));
  const stride = shape.map(() => 1n);
  const bytes = rows * rowBytes;
  if (bytes === 0) return decodeRows(new Uint8Array(0), 0, rows, field);
  const at = library.call((h5) => h5["_malloc"](bytes), { bytes });
  if (at === 0) throw library.failure(`no memory for ${bytes} bytes of dataset /${name}`);
  const pointers = reading.how === "text" || reading.how === "list";
  const read = (canary: number): void => {
    library.h5.HEAPU8.fill(canary, at, at + bytes);
    const status = library.call((h5) => h5.get_dataset_data(id, path, count, offset, stride, BigInt(at)), {
      // A chunk is decompressed whole; the first one behind a plugin waits for that to compile.
      bytes: Math.max(rows, field.chunkRows) * rowBytes + (pointers ? 0 : 1 << 20),
      chunkBytes: field.chunkBytes,
      canary,
    });
    if (status < 0) throw library.failure("the read failed");
  };
  try {
    // Pointers that are not written lead nowhere.
    const { reads } = library.recording(places && field.direct !== undefined ? file : "", () =>
      read(pointers ? 0 : CANARY),
    );
    if (!pointers && hasCanary(library.h5.HEAPU8.subarray(at, at + bytes))) {
      const first = library.h5.HEAPU8.slice(at, at + bytes);
      read(~CANARY & 0xff);
      if (Buffer.compare(first, library.h5.HEAPU8.subarray(at, at + bytes)) !== 0) {
        throw library.failure("chunks are too short, or were never written and have no fill value");
      }
    }
    const found = library.call((h5) => decodeRows(h5.HEAPU8, at, rows, field));
    if (reads.length > 0 && found.tooLarge.size === 0) {
      const truth = library.h5.HEAPU8.subarray(at, at + bytes);
      return { ...found, places: placesOf(field.direct!, reads, truth, from, to) };
    }
    if (pointers) library.call((h5) => h5.reclaim_vlen_memory_count(id, path, "", BigInt(at), count));
    return found;
  } finally {
    library.release(at);
  }
}

/** May some value not have been written? HDF5 says nothing of a value that it neither has nor can fill in. */
function hasCanary(bytes: Uint8Array): boolean {
  const words = new Uint32Array(bytes.buffer, bytes.byteOffset, bytes.length >> 2);
  return words.includes(CANARY_WORD) || (words.length === 0 && bytes.includes(CANARY));
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

function unreadable(
  failure: Hdf5Failure,
  file: string,
  { name, checksum }: Hdf5Field,
  record: number,
  from: number,
  to: number,
): AthanorError {
  const { lastRead, message, printed } = failure;
  const where = lastRead?.path === file ? { file, record, byteOffset: lastRead.offset } : { file, record };
  const Fault = FILTER_FAILED.test(printed) && checksum ? RecordCrc : RecordMalformed;
  return new Fault(
    `dataset /${name}, rows ${from} to ${to - 1} cannot be read: ${message}`,
    where,
    "the shard is damaged: copy it again",
    failure,
  );
}
