/**
 * Page: header, checksum, decompression, levels and values of one page of a column.
 *
 * ```
 * v1: ┌ header │ compressed: u32 + repetition levels │ u32 + definition levels │ values ┐
 * v2: ┌ header │ repetition levels │ definition levels │ compressed: values ┐
 * ```
 *
 * @example
 * const head = readHead(bytes, at, place);
 * const page = readPage(head, body, column, dictionary, place, true);
 */
import { crc32 } from "node:zlib";
import { parquetHeader } from "hyparquet/src/column.js";
import type { Encoding, PageHeader } from "hyparquet/src/types.js";
import { RecordCrc, RecordMalformed, StreamCorrupt, Unsupported } from "../errors.ts";
import { type Codec, decompress, unreadCodec } from "./compress.ts";
import { constantRun, readHybrid, zeroLevels } from "../../kernels/hybrid.ts";
import type { Leaf } from "./schema.ts";
import { type Dense, type Values, readPlain, readValues } from "./values.ts";

/** Where a page stands, for messages. */
export interface Place {
  file: string;
  /** "row group 3, column "text"" */
  column: string;
  /** Of the page's header in the file. */
  byteOffset: number;
  record?: number;
}

export interface PageHead {
  kind: "dictionary" | "data" | "other";
  header: PageHeader;
  /** Of header and page, in stored bytes. */
  headBytes: number;
  bodyBytes: number;
  values: number;
}

/** A page of data, decoded. */
export interface Page {
  /** Stored bytes, header included. */
  offset: number;
  length: number;
  /** Values and nulls: one entry a level. */
  entries: number;
  /** Records that begin in it. */
  rows: number;
  /** Its first entry belongs to a record of the page before. */
  continues: boolean;
  /** Absent: all entries are values. */
  def: Uint8Array | undefined;
  /** Where lists lie in lists; else `starts` says all. */
  rep: Uint8Array | undefined;
  /** The entries with which records begin. Absent: each entry is a record. */
  starts: Uint32Array | undefined;
  values: Values;
  /** It needs the dictionary of its column. */
  coded: boolean;
}

/** Its entries take 4 to 10 bytes each. Writers make pages of 1 MiB; some 25 million integers are seen in the largest (DuckDB). */
const MAX_ENTRIES = 2 ** 26;
const MAX_PAGE_BYTES = 1024 * 1024 * 1024;
const REMEDY = "the file is damaged: copy it again, or write it anew";

export function malformed(what: string, { file, column, byteOffset, record }: Place, cause?: unknown): Error {
  const where = record === undefined ? { file, byteOffset } : { file, record, byteOffset };
  return new RecordMalformed(`${column}: ${what}`, where, REMEDY, cause);
}

/** Undefined: the bytes end inside the header. */
export function readHead(bytes: Uint8Array, at: number, place: Place): PageHead | undefined {
  const reader = { view: new DataView(bytes.buffer, bytes.byteOffset, bytes.length), offset: at };
  let header: PageHeader;
  try {
    header = parquetHeader(reader);
  } catch (error) {
    const ended = error instanceof RangeError || (error instanceof Error && /ended|exceeds/.test(error.message));
    if (ended) return undefined;
    throw malformed("the page header cannot be read", place, error);
  }
  const { type, compressed_page_size: bodyBytes, uncompressed_page_size: size } = header;
  const count = (number: unknown): boolean => Number.isInteger(number) && (number as number) >= 0;
  if (bodyBytes === undefined || size === undefined) throw malformed("the page header names no size", place);
  if (!count(bodyBytes) || !count(size)) throw malformed(`a page of ${bodyBytes} bytes, ${size} decompressed`, place);
  if (size > MAX_PAGE_BYTES) throw unsupported(`a page of ${size} bytes`, place);
  const kind = type === "DICTIONARY_PAGE" ? "dictionary" : type?.startsWith("DATA_PAGE") ? "data" : "other";
  if (type === undefined) throw malformed("the page header names no known type", place);
  const own = {
    DATA_PAGE: header.data_page_header,
    DATA_PAGE_V2: header.data_page_header_v2,
    DICTIONARY_PAGE: header.dictionary_page_header,
    INDEX_PAGE: { num_values: 0 },
  }[type];
  const v2 = header.data_page_header_v2;
  // Thrift fields can be of any type.
  const sound =
    type !== "DATA_PAGE_V2" ||
    [v2?.num_nulls, v2?.num_rows, v2?.definition_levels_byte_length, v2?.repetition_levels_byte_length].every(count);
  const values = kind === "other" ? 0 : own?.num_values;
  if (own === undefined || !sound || !count(values)) throw malformed(`the header of a ${type} is incomplete`, place);
  if (values! > MAX_ENTRIES) throw unsupported(`a page of ${values} values`, place);
  return { kind, header, headBytes: reader.offset - at, bodyBytes, values: values! };
}

function unsupported(what: string, { file, column, byteOffset }: Place): Error {
  return new Unsupported(`${column}: ${what}`, { file, byteOffset }, "write the file with pages of about 1 MiB");
}

/** Checks the CRC32 of a page where its header has one. */
export function checkCrc({ header, headBytes }: PageHead, body: Uint8Array, place: Place): void {
  if (typeof header.crc !== "number") return;
  const found = crc32(body);
  if (found === header.crc >>> 0) return;
  const { file, column, byteOffset, record } = place;
  const where = { file, byteOffset: byteOffset + headBytes };
  throw new RecordCrc(
    `${column}: the page has CRC32 ${hex(found)}, its header says ${hex(header.crc >>> 0)}`,
    record === undefined ? where : { ...where, record },
    REMEDY,
  );
}

function hex(value: number): string {
  return `0x${value.toString(16).padStart(8, "0")}`;
}

export function readDictionary(head: PageHead, body: Uint8Array, leaf: Leaf, codec: Codec, place: Place): Dense {
  const bytes = inflatePage(codec, body, head.header.uncompressed_page_size, place);
  try {
    return readPlain(leaf, bytes, 0, head.values);
  } catch (error) {
    throw malformed(`damaged dictionary: ${(error as Error).message}`, place, error);
  }
}

export function readPage(
  head: PageHead,
  body: Uint8Array,
  leaf: Leaf,
  codec: Codec,
  dictionary: Dense | undefined,
  place: Place,
): Page {
  const v2 = head.header.type === "DATA_PAGE_V2";
  const { encoding, levels, bytes, at } = v2
    ? openV2(head, body, leaf, codec, place)
    : openV1(head, body, leaf, codec, place);
  try {
    const { def, rep, starts } = levels;
    const entries = head.values;
    const values = readValues(encoding, leaf, bytes, at, levels.present, dictionary);
    const rows = starts?.length ?? entries;
    const told = head.header.data_page_header_v2?.num_rows;
    if (v2 && told !== rows) throw new Error(`${rows} rows, its header says ${told}`);
    return {
      offset: place.byteOffset,
      length: head.headBytes + head.bodyBytes,
      entries,
      rows,
      continues: starts !== undefined && entries > 0 && starts[0] !== 0,
      def,
      rep,
      starts,
      values,
      coded: encoding === "PLAIN_DICTIONARY" || encoding === "RLE_DICTIONARY",
    };
  } catch (error) {
    throw malformed(`damaged page: ${(error as Error).message}`, place, error);
  }
}

/** Repetition levels; those of one list are only the places of their zeros. */
interface Repetitions {
  rep: Uint8Array | undefined;
  starts: Uint32Array | undefined;
}

interface Levels extends Repetitions {
  def: Uint8Array | undefined;
  /** Entries that are values. */
  present: number;
}

interface OpenPage {
  encoding: Encoding | undefined;
  levels: Levels;
  /** The values begin at `at`. */
  bytes: Uint8Array;
  at: number;
}

function openV1({ header, values }: PageHead, body: Uint8Array, leaf: Leaf, codec: Codec, place: Place): OpenPage {
  const bytes = inflatePage(codec, body, header.uncompressed_page_size, place);
  const about = header.data_page_header!;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  let at = 0;
  const section = <Read>(
    max: number,
    encoding: Encoding | undefined,
    read: (bytes: Uint8Array, from: number, to: number, max: number, count: number) => Read,
  ): Read | undefined => {
    if (max === 0) return undefined;
    if (encoding !== undefined && encoding !== "RLE") throw new Error(`levels in ${encoding} are not supported`);
    if (at + 4 > bytes.length) throw new Error("its levels are cut");
    const from = at + 4;
    const end = from + view.getUint32(at, true);
    if (end > bytes.length) throw new Error("its levels are cut");
    at = end;
    return read(bytes, from, end, max, values);
  };
  try {
    const rep = section(leaf.maxRep, about.repetition_level_encoding, readRepetitions);
    const def = section(leaf.maxDef, about.definition_level_encoding, readDefinitions);
    return { encoding: about.encoding, levels: known(rep, def, leaf, values), bytes, at };
  } catch (error) {
    throw malformed(`damaged page: ${(error as Error).message}`, place, error);
  }
}

function openV2({ header, values }: PageHead, body: Uint8Array, leaf: Leaf, codec: Codec, place: Place): OpenPage {
  const about = header.data_page_header_v2!;
  const { repetition_levels_byte_length: rep, definition_levels_byte_length: def } = about;
  if (!(rep >= 0 && def >= 0 && rep + def <= body.length && rep + def <= header.uncompressed_page_size)) {
    throw malformed(`levels of ${rep} and ${def} bytes in a page of ${body.length}`, place);
  }
  const size = header.uncompressed_page_size - rep - def;
  // A page without values may hold nothing at all, which no codec takes.
  const stored = body.subarray(rep + def);
  const plain = about.is_compressed === false || (size === 0 && stored.length === 0);
  let levels: Levels;
  try {
    levels = known(
      leaf.maxRep === 0 ? undefined : readRepetitions(body, 0, rep, leaf.maxRep, values),
      leaf.maxDef === 0 ? undefined : readDefinitions(body, rep, rep + def, leaf.maxDef, values),
      leaf,
      values,
    );
    if (about.num_nulls !== values - levels.present && leaf.maxRep === 0) {
      throw new Error(`${values - levels.present} nulls, its header says ${about.num_nulls}`);
    }
  } catch (error) {
    throw malformed(`damaged page: ${(error as Error).message}`, place, error);
  }
  const empty = levels.present === 0;
  // A page that is not compressed in a column that is: whoever reads the column uses its memory again.
  const bytes = empty ? new Uint8Array(0) : plain ? stored.slice() : inflatePage(codec, stored, size, place);
  return { encoding: about.encoding, levels, bytes, at: 0 };
}

function inflatePage(codec: Codec, body: Uint8Array, size: number, place: Place): Uint8Array {
  const unread = unreadCodec(codec);
  if (unread !== undefined) {
    const { file, byteOffset } = place;
    throw new Unsupported(
      `${place.column}: compression ${unread} is not supported`,
      { file, byteOffset },
      "write it with zstd",
    );
  }
  try {
    return decompress(codec, body, size);
  } catch (error) {
    const { file, column, byteOffset, record } = place;
    const where = record === undefined ? { file, byteOffset } : { file, record, byteOffset };
    throw new StreamCorrupt(
      `${column}: the page cannot be decompressed: ${(error as Error).message}`,
      where,
      REMEDY,
      error,
    );
  }
}

function readLevels(bytes: Uint8Array, from: number, to: number, max: number, count: number): Uint8Array {
  const levels = new Uint8Array(count);
  const largest = readHybrid(bytes, from, to, 32 - Math.clz32(max), levels);
  // The bound is sharp only to its highest bit.
  const wrong = largest > max ? levels.find((level) => level > max) : undefined;
  if (wrong !== undefined) throw new Error(`a level of ${wrong}, expected ${max} at most`);
  return levels;
}

function readRepetitions(bytes: Uint8Array, from: number, to: number, max: number, count: number): Repetitions {
  if (max === 1) return { rep: undefined, starts: zeroLevels(bytes, from, to, count) };
  const rep = readLevels(bytes, from, to, max, count);
  return { rep, starts: zeros(rep) };
}

/** Undefined: all entries are values. */
function readDefinitions(
  bytes: Uint8Array,
  from: number,
  to: number,
  max: number,
  count: number,
): Uint8Array | undefined {
  return constantRun(bytes, from, to, 32 - Math.clz32(max), count) === max
    ? undefined
    : readLevels(bytes, from, to, max, count);
}

/** Counts the values; where all entries are some, the levels need not be kept. */
function known(
  repetitions: Repetitions = { rep: undefined, starts: undefined },
  def: Uint8Array | undefined,
  { maxDef }: Leaf,
  entries: number,
): Levels {
  if (def === undefined) return { ...repetitions, def, present: entries };
  const present = countLevel(def, 0, entries, maxDef);
  return { ...repetitions, def: present === entries ? undefined : def, present };
}

export function countLevel(levels: Uint8Array, from: number, to: number, level: number): number {
  let count = 0;
  for (let i = from; i < to; i++) if (levels[i] === level) count++;
  return count;
}

function zeros(rep: Uint8Array): Uint32Array {
  const found: number[] = [];
  // `indexOf` looks at 16 bytes at once: a list of 512 costs some 20 ns.
  for (let at = rep.indexOf(0); at >= 0; at = rep.indexOf(0, at + 1)) found.push(at);
  return Uint32Array.from(found);
}
