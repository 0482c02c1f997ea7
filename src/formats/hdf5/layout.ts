/**
 * Layout: which datasets of an open HDF5 file are fields, and how many rows a block has.
 *
 * Records are the rows of all datasets that share the first dimension N, wherever they lie; N is the one whose datasets hold most
 * values together. Everything that could give values which the file does not hold is refused here, before the first is read:
 * an unknown filter, missing files of a virtual dataset, external storage, sizes that the file cannot stand for.
 *
 * @example
 * const { rows, fields, blockRows } = layoutOf(library, id, path, size);
 */
import { Unsupported, ShardInvalid, RecordTooLong } from "../errors.ts";
import { BLOCK_BYTES, type ValueKind } from "../types.ts";
import type { DirectSpec } from "./direct.ts";
import { asBfloat16, dtypeName, kindOf, readingOf, type Reading } from "./dtype.ts";
import type { DatasetInfo, Library } from "./library.ts";
import { numberForm, type NumberForm } from "./number-form.ts";
import { checkParts, type Part } from "./parts.ts";

export interface Hdf5Field {
  /** Path in the file without the leading slash. */
  name: string;
  kind: ValueKind;
  reading: Reading;
  /** Sizes of all dimensions. */
  shape: readonly number[];
  /** Numbers (strings, lists) of a row. */
  perRow: number;
  /** Bytes of a row in the library's memory. */
  rowBytes: number;
  /** Rows of a chunk; 1 where the dataset is not chunked. */
  chunkRows: number;
  /** Bytes of a chunk; 0 where the dataset is not chunked. */
  chunkBytes: number;
  /** How it can be read without the library; undefined: only by that. */
  direct: DirectSpec | undefined;
  /** fletcher32 checks its chunks, before any other filter sees them. */
  checksum: boolean;
}

export interface Hdf5Layout {
  rows: number;
  /** By name. */
  fields: readonly Hdf5Field[];
  blockRows: number;
  /** Other files that hold some of the values. */
  parts: readonly Part[];
  /** What is no field, and why, the first MAX_LEFT by name. */
  left: { readonly [name: string]: string };
}

interface Found {
  name: string;
  info: DatasetInfo;
}

/** More are no data set but an attack on memory. */
const MAX_OBJECTS = 100_000;
const MAX_LEFT = 512;
const MAX_CHUNK_BYTES = 64 * 1024 * 1024;
const MAX_ROW_BYTES = 64 * 1024 * 1024;
/** A chunk of more rows is cut into several blocks: each decompresses it again. */
const MAX_BLOCK_BYTES = 8 * BLOCK_BYTES;
/** Windows are no smaller than the largest block, so blocks of tiny rows stay below it. */
const MAX_BLOCK_ROWS = 131_072;
/** A string or list of unknown length. */
const GUESSED_BYTES = 512;
/** Values for each byte of the file: no compression of real data reaches it, a damaged size passes it. */
const MAX_RATIO = 4096;
const FREE_BYTES = 64 * 1024 * 1024;
/** deflate, shuffle, fletcher32, scale-offset. (n-bit is built in too, but types of fewer bits lose their sign in h5wasm.) */
const DEFLATE = 1;
const SHUFFLE = 2;
const FLETCHER32 = 3;
const BUILT_IN = new Set([DEFLATE, SHUFFLE, FLETCHER32, 6]);

export function layoutOf(library: Library, id: bigint, file: string, fileSize: number): Hdf5Layout {
  const { found, left } = datasetsOf(library, id, file);
  const usable: Hdf5Field[] = [];
  let empty = 0;
  for (const { name, info } of found) {
    if (info.shape === null) empty++;
    else if (info.shape.length === 0) left.set(name, "is a scalar");
    else {
      const field = fieldOf(name, info, info.shape, () => formOf(library, id, file, name));
      if (typeof field === "string") left.set(name, field);
      else usable.push(field);
    }
  }
  if (usable.length === 0 && empty === 0) {
    const has = [...left].slice(0, 5).map(([name, why]) => `${name}, which ${why}`);
    throw new Unsupported(
      `no dataset has rows of numbers or text; found ${has.join("; ") || "none at all"}`,
      { file },
      "store one row a record, in datasets of the same first dimension",
    );
  }
  const rows = commonRows(usable);
  const fields = usable.filter(({ shape }) => shape[0] === rows).sort((a, b) => (a.name < b.name ? -1 : 1));
  for (const { name, shape } of usable) {
    if (shape[0] !== rows) left.set(name, `has ${shape[0]} rows, and the datasets that records are made of ${rows}`);
  }
  const infos = new Map(found.map(({ name, info }) => [name, info]));
  const parts: Part[] = [];
  for (const field of fields) {
    const info = infos.get(field.name)!;
    const filters = checkFilters(library, id, file, field.name);
    field.checksum = filters.includes(FLETCHER32);
    field.direct = directOf(field, infos.get(field.name)!, filters);
    checkSizes(file, field);
    parts.push(...checkParts(library, file, field.name, info));
  }
  const bytes = fields.reduce((sum, { rowBytes }) => sum + rows * rowBytes, 0);
  const stored = parts.reduce((sum, { size }) => sum + size, fileSize);
  if (!(bytes <= FREE_BYTES + stored * MAX_RATIO)) {
    throw new ShardInvalid(
      `datasets claim ${bytes} bytes of values in a file of ${stored} bytes`,
      { file },
      "the file is damaged: write it again",
    );
  }
  const some = [...left].sort(([a], [b]) => (a < b ? -1 : 1)).slice(0, MAX_LEFT);
  return { rows, fields, blockRows: blockRowsOf(fields), parts, left: Object.fromEntries(some) };
}

/** All datasets below the root, each group once; `left`: what is none, and why. */
function datasetsOf(library: Library, id: bigint, file: string): { found: Found[]; left: Map<string, string> } {
  const found: Found[] = [];
  const left = new Map<string, string>();
  const seen = new Set<string>();
  const groups = [""];
  let objects = 0;
  for (let group = groups.shift(); group !== undefined; group = groups.shift()) {
    const path = `/${group}`;
    const address = Array.from(library.call((h5) => h5.create_object_reference(id, path))).join();
    if (seen.has(address)) continue;
    seen.add(address);
    for (const child of library.call((h5) => h5.get_names(id, path, false))) {
      if (++objects > MAX_OBJECTS) {
        throw new ShardInvalid(`more than ${MAX_OBJECTS} objects`, { file }, "split the file");
      }
      const name = group === "" ? child : `${group}/${child}`;
      const type = library.call((h5) => h5.get_type(id, `/${name}`));
      if (type === 0) groups.push(name);
      else if (type === 1) found.push({ name, info: library.call((h5) => h5.get_dataset_metadata(id, `/${name}`)) });
      else if (type !== 2) left.set(name, "is a link that leads nowhere in this file");
    }
  }
  return { found, left };
}

/** Or why it is none. */
function fieldOf(
  name: string,
  info: DatasetInfo,
  shape: readonly number[],
  form: () => NumberForm | undefined,
): Hdf5Field | string {
  let reading = readingOf(info);
  if (reading === undefined) return `holds values of type ${dtypeName(info)}`;
  if (reading.how !== "text" && reading.how !== "fixed") {
    const found = form();
    if (found === "other") return "holds integers of fewer bits than their bytes have, or floats that are not IEEE 754";
    if (found === "bfloat16") reading = asBfloat16(reading);
  }
  const elements = shape.slice(1).reduce((product, n) => product * n, 1);
  const single = reading.how === "text" || reading.how === "list" || reading.how === "fixed";
  // A list of strings has no column of its own kind.
  if (single && elements !== 1) return "holds several texts or lists a row";
  const perRow = reading.how === "int" || reading.how === "float" ? elements * reading.values : elements;
  return {
    name,
    kind: kindOf(reading),
    reading,
    shape,
    perRow,
    rowBytes: elements * info.size,
    chunkRows: info.chunks?.[0] ?? 1,
    chunkBytes: info.chunks?.reduce((product, n) => product * n, info.size) ?? 0,
    direct: undefined,
    checksum: false,
  };
}

function formOf(library: Library, id: bigint, file: string, name: string): NumberForm | undefined {
  const reference = Buffer.from(Array.from(library.call((h5) => h5.create_object_reference(id, `/${name}`))));
  return reference.length < 8 ? undefined : numberForm(file, reference.readBigUInt64LE(0));
}

/** The first dimension with most values; the larger one if equal. */
function commonRows(fields: readonly Hdf5Field[]): number {
  const values = new Map<number, number>();
  for (const { shape, perRow } of fields) {
    const rows = shape[0]!;
    values.set(rows, (values.get(rows) ?? 0) + rows * perRow);
  }
  const byValues = [...values].sort(([rowsA, a], [rowsB, b]) => b - a || rowsB - rowsA);
  return byValues[0]?.[0] ?? 0;
}

/** Throws at a filter that cannot be undone. */
function checkFilters(library: Library, id: bigint, file: string, name: string): number[] {
  const filters = library.call((h5) => h5.get_dataset_filters(id, `/${name}`));
  for (const filter of filters) {
    if (BUILT_IN.has(filter.id) || library.addPlugin(filter.id)) continue;
    throw new Unsupported(
      `dataset /${name}: HDF5 filter ${filter.id} (${filter.name || "no name"}) is not available`,
      { file },
      "write the dataset with gzip, lzf, lz4, zstd, blosc, blosc2, bitshuffle or bzip2",
    );
  }
  return filters.map((filter) => filter.id);
}

function directOf(
  { kind, reading, shape, perRow, rowBytes, chunkRows }: Hdf5Field,
  { chunks }: DatasetInfo,
  filters: readonly number[],
): DirectSpec | undefined {
  if ((reading.how !== "int" && reading.how !== "float") || reading.values !== 1 || rowBytes === 0) return undefined;
  if (chunks !== null && chunks.slice(1).some((width, i) => width !== shape[i + 1])) return undefined;
  const [shuffle, deflate] = [filters.includes(SHUFFLE), filters.includes(DEFLATE)];
  const known = [...(shuffle ? [SHUFFLE] : []), ...(deflate ? [DEFLATE] : [])];
  if (filters.join() !== known.join()) return undefined;
  const { how, size, signed, bool, bfloat16 } = reading;
  return {
    kind,
    reading: { how, size, signed, bool, ...(bfloat16 && { bfloat16 }) },
    perRow,
    rowBytes,
    chunkRows: chunks === null ? 0 : chunkRows,
    shuffle,
    deflate,
  };
}

function checkSizes(file: string, { name, rowBytes, shape, chunkBytes }: Hdf5Field): void {
  if (!Number.isSafeInteger(shape[0]! * Math.max(rowBytes, 1))) {
    throw new ShardInvalid(
      `dataset /${name} claims shape ${shape.join("×")}`,
      { file },
      "the file is damaged: write it again",
    );
  }
  if (rowBytes > MAX_ROW_BYTES) {
    throw new RecordTooLong(
      `dataset /${name}: a row of ${rowBytes} bytes, at most ${MAX_ROW_BYTES} are read`,
      { file },
      "cut its rows into shorter ones",
    );
  }
  if (chunkBytes > MAX_CHUNK_BYTES) {
    throw new Unsupported(
      `dataset /${name}: a chunk of ${chunkBytes} bytes, at most ${MAX_CHUNK_BYTES} are read`,
      { file },
      "write it with smaller chunks (h5repack -l): about 4 MiB read best",
    );
  }
}

/** About 4 MiB of rows, in whole chunks of the dataset with most numbers. */
function blockRowsOf(fields: readonly Hdf5Field[]): number {
  const rowBytes = fields.reduce((sum, { reading, rowBytes: own }) => {
    return sum + (reading.how === "text" || reading.how === "list" ? GUESSED_BYTES : own);
  }, 1);
  const [tokens] = [...fields].sort((a, b) => rank(b) - rank(a));
  const chunk = tokens?.chunkRows ?? 1;
  const wanted = Math.min(Math.max(1, Math.floor(BLOCK_BYTES / rowBytes)), MAX_BLOCK_ROWS);
  if (wanted >= chunk) return wanted - (wanted % chunk);
  const parts = Math.max(Math.ceil((chunk * rowBytes) / MAX_BLOCK_BYTES), Math.ceil(chunk / MAX_BLOCK_ROWS));
  return Math.ceil(chunk / parts);
}

/** Integers before all else, then by their number. */
function rank({ reading, perRow }: Hdf5Field): number {
  return reading.how === "int" ? 2 ** 40 + perRow : reading.how === "list" ? 2 ** 39 : perRow;
}
