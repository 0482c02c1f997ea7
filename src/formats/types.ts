/**
 * Formats: what every storage format gives to the index and to the feed (design §4.2).
 * A format knows nothing of sockets, paths or clocks: it sees bytes through `ShardFiles` at index
 * time and bytes in kernel memory at decode time.
 *
 * There are two kinds. A `RowFormat` (TFRecord) has a kernel that writes stored rows itself. A `ColumnFormat` (all others)
 * turns the bytes of a block into typed columns; `rows.ts` makes stored rows of them, `stats.ts` the schema, and `cat` JSON.
 */
import type { AthanorError } from "../base/errors.ts";
import type { Value } from "../base/json.ts";
import type { Kernels } from "../kernels/kernels.ts";
import type { ReadableObject } from "../storage/types.ts";

/**
 * Bytes of a block: `file` counts the files of one shard (0, save for pairs such as `.bin/.idx`).
 * @public
 */
export interface Segment {
  file: number;
  offset: number;
  length: number;
}

/**
 * How a shard is compressed as a whole. `zstd-frames`: its blocks are packed (`BlockTable.origin`), each can be decoded by itself.
 * Any other but `plain` is a stream that one running decoder reads in order.
 */
export type Encoding = "plain" | "gzip" | "zlib" | "zstd" | "zstd-frames";

export function isStream(encoding: Encoding): boolean {
  return encoding !== "plain" && encoding !== "zstd-frames";
}

export type ValueKind = "int64" | "float" | "bytes";
/** A kind as formats keep it: `json` is bytes that are JSON. */
export type KeptKind = ValueKind | "json";

/** One feature (column) of a data set, with what the index saw of it. */
export interface Field {
  name: string;
  kind: ValueKind;
  /** Records that hold the feature at all; fewer than the records of the set means it may be null. */
  present: number;
  minLength: number;
  maxLength: number;
  /** Values in all records together. */
  values: number;
  /** int64 only: least and greatest value, decimal (they can pass 2^53). */
  min?: string;
  max?: string;
  /** int64 only: every list is ones followed by zeros (an attention mask that a length can stand for). */
  prefixMask?: boolean;
  /**
   * The kind was found in the values, as in JSON, which has numbers only: integers here and fractions there are one float field.
   * Numbers here and text there make no column.
   */
  loose?: boolean;
  /** bytes only: each is the text of a JSON value (an object, a list of objects) that the data holds nested; none is `[]`. */
  json?: boolean;
  /**
   * int64 only: records whose value does not fit int64, which are not among those `present`, and where the first is. Whoever asks
   * for the field gets ATH_VALUE_RANGE for them. Absent: none (formats that keep no such value have a bad record instead).
   */
  unfit?: { records: number; first: string };
  /** Numbers only: another record could hold another number of values, though each may hold one. Absent: of one value each, or not told (TFRecord). */
  list?: boolean;
}

/** Do all records hold one value, and can hold no more? Where the data does not tell (TFRecord), what they hold says it. */
export function isScalar({ minLength, maxLength, list }: Field): boolean {
  return minLength === 1 && maxLength === 1 && list !== true;
}

export interface Schema {
  fields: Field[];
  /** Bad records, which say nothing of any field. Absent: none. */
  bad?: number;
  /** Names that records have and that are no columns (objects, mixed kinds), with the reason: for whoever asks for one. */
  notColumns?: { [name: string]: string };
}

/**
 * Blocks of one shard as columns of numbers; block b has records [firstRecord[b], firstRecord[b + 1]).
 * For a stream (gzip, zlib) `segment*` count bytes of the *decompressed* stream.
 * CSR layout: block b owns segments [segmentStart[b], segmentStart[b + 1]) and restarts likewise.
 * A columnar format lists the pages of its wanted columns as segments, a shared dictionary page once in
 * each block that needs it.
 */
export interface BlockTable {
  stream: boolean;
  blocks: number;
  firstRecord: Float64Array;
  tokens: Float64Array;
  segmentStart: Uint32Array;
  segmentFile: Uint32Array;
  segmentOffset: Float64Array;
  segmentLength: Float64Array;
  /** Whose bytes a segment holds: 0 every view needs it, f + 1 only views that deliver field f of `fields` of the shard's `meta`. */
  segmentField: Uint32Array;
  /**
   * Offset, from the block's first byte, of records 0, 64, 128 … of the block. Of packed blocks they count from the first byte that the
   * segments decode to, and one more tells where the last record ends.
   */
  restartStart: Uint32Array;
  restarts: Uint32Array;
  /**
   * Only where blocks are packed: their segments are whole Zstandard frames (the last one perhaps cut behind one of its blocks),
   * and this is the offset in the decompressed bytes of the shard of what they begin with.
   */
  origin?: Float64Array;
}

export const RESTART_EVERY = 64;
export const BLOCK_BYTES = 4 * 1024 * 1024;

/** What `Format.index` finds in one shard. */
export interface ShardContent {
  encoding: Encoding;
  records: number;
  /** Values of the token column (the longest int64 list on average), all records together. */
  tokens: number;
  /** CRC32C of all bytes as stored; columnar formats: of the footer or metadata. */
  crc32c: number;
  schema: Schema;
  table: BlockTable;
  /** What decoding needs to know of the shard beyond its table, as JSON: leaf types, codecs, chunk shapes. A few KiB. */
  meta?: ShardMeta;
  /** Files that `segmentFile` 1, 2 … count, where a shard is more than one file. */
  files?: ShardFile[];
}

/** `fields`: names that `segmentField` counts from 1. The rest is the format's own. */
export interface ShardMeta {
  readonly fields?: readonly string[];
  /** Chunks of arrays that no file holds: they read as fill values, and may be lost ones. `firstMissing`: in words. */
  readonly missingChunks?: number;
  readonly firstMissing?: string;
  readonly [key: string]: unknown;
}

/** A file of a shard beside the first. `path` is relative to the root of the set, like that of the shard. */
export interface ShardFile {
  path: string;
  size: number;
  mtimeNs: string;
  /** Object stores only: their mtime is of whole seconds, within which an object can be replaced. */
  etag?: string;
}

/** A file that lists the shards of a folder (MDS: `index.json`): checked against them, and no part of any. */
export interface ShardListing {
  file: ShardFile;
  /** Path of the next shard of its folder that was found, in byte order; behind the last one the first. */
  next: string;
}

/** The files of one shard at index time. */
export interface ShardFiles {
  /** The shard's own file; its first file where it is a folder. */
  readonly object: ReadableObject;
  /** Path of the shard, relative to the root of the set. */
  readonly path: string;
  /** The other files (`.idx` of a `.bin`, chunks of a Zarr folder), in byte order of their paths. */
  readonly beside: readonly ShardFile[];
  /** The file that lists the shard, if there is one. */
  readonly listing?: ShardListing | undefined;
  /** Opens one of `beside`, or the listing; the caller closes it. */
  open(file: ShardFile): Promise<ReadableObject>;
}

/** How a shard is read to make its index. */
export interface IndexOptions {
  kernels: Kernels;
  /** Stored bytes read so far. */
  progress?: ((bytes: number) => void) | undefined;
  /** A bad record is told of and counts as a record; without it the first one is thrown. */
  onBad?: ((fault: AthanorError) => void) | undefined;
  /** Reads also what the index itself does not need: `athanor verify` looks at every byte. @default false */
  everything?: boolean | undefined;
}

export interface Detection {
  encoding: Encoding;
}

/** How one delivered column lies in a stored row; see `STORAGE`. */
export interface StoredColumn {
  /** Name in the batch. */
  name: string;
  /** Feature it is read from. */
  feature: string;
  storage: StorageKind;
  maxLength: number;
  /** int64 value (decimal) or float that fills a row behind its last value. */
  pad: string;
  /** A record without a value is a bad one: nothing would tell the padding from a value. @default false */
  required?: boolean;
  /** Byte offset in the stored row, behind the 32-byte row header. 8-byte aligned. */
  rowOffset: number;
  /** Bytes in the stored row. */
  rowBytes: number;
}

/**
 * `i32`, `i64`, `f32`: maxLength values, padded.
 * `prefix`: u32, the ones at the head of a 0/1 list of `feature` (anything else is an error).
 * `length`: u32, min(values of `feature`, maxLength): the mask of a set that stores none.
 */
export const STORAGE = { i32: 0, i64: 1, f32: 2, prefix: 3, length: 4 } as const;
export type StorageKind = keyof typeof STORAGE;

/**
 * A stored row: 32-byte header, then the columns at their `rowOffset`.
 *   u64 shardKey │ u64 record │ u32 token offset in the record │ u32 flags │ 8 bytes 0
 * Flags: bit 0: a list was cut to maxLength; bit 1: the row stands in for a bad record (set by the feed)
 */
export const ROW_HEADER_BYTES = 32;

/** One call of `Format.decode`: records of one contiguous run of raw bytes in kernel memory. */
export interface DecodeRequest {
  /** Address and length of the raw (decompressed) bytes. */
  raw: number;
  rawBytes: number;
  /** Number in the shard of the record that begins at `raw`. */
  firstRecord: number;
  records: number;
  /** Address of u32[records]: address of the stored row for each record, 0 = not wanted (skipped cheaply). */
  rows: number;
  /** Address of a plan made by `compilePlan`. */
  plan: number;
  shardKey: bigint;
  /** Check payload CRCs (the length CRC is always checked). */
  checkCrc: boolean;
  /** For messages: path, and the offset in the file (or decompressed stream) of `raw`. */
  file: string;
  fileOffset: number;
}

export interface DecodeReport {
  rows: number;
  truncated: number;
}

/** One call of `Format.survey`: a whole block in kernel memory that holds bad records. */
export interface SurveyRequest extends Omit<DecodeRequest, "checkCrc"> {
  /** Offsets from `raw` of records 0, 64, 128 … of the block. */
  restarts: ArrayLike<number>;
  /** Address of one stored row that may be overwritten; `rows` likewise. */
  row: number;
}

/** What can be had of a block, by number of the record in it. */
export interface BlockSurvey {
  /** Offsets from `raw`: first byte of a record, and behind its last one. */
  begin: Uint32Array;
  end: Uint32Array;
  /** The bad records. */
  faults: Map<number, AthanorError>;
}

interface FormatBase {
  readonly name: string;
  /**
   * Looks at the first bytes (at least 512, or the whole file). `name` only tells apart what content cannot (a headerless
   * `.bin`, JSON Lines from a JSON array). Undefined: not this format.
   */
  detect(head: Uint8Array, name: string): Detection | undefined;
  /** Is a shard of several files its own, by their names? Asked before `detect`. `beside`: its files beside the first. */
  claims?(path: string, beside: readonly string[]): boolean;
  /** Streams through a shard, bounded in memory. Throws on the first fault, with record and byte offset. */
  index(shard: ShardFiles, options: IndexOptions): Promise<ShardContent>;
}

/** A format whose kernel writes stored rows itself. Its blocks are one segment each, with restarts. */
export interface RowFormat extends FormatBase {
  readonly kind: "rows";
  /** Its records as typed columns, for views that make something else of them (text). */
  readonly columns: ColumnReader;
  /** Writes the plan at `at` in kernel memory; returns its bytes. */
  compilePlan(kernels: Kernels, at: number, columns: readonly StoredColumn[]): number;
  decode(kernels: Kernels, request: DecodeRequest): DecodeReport;
  /** All bad records of a block, as a function of its bytes, its table and the plan. */
  survey(kernels: Kernels, request: SurveyRequest): BlockSurvey;
}

/** Bytes of one segment as they lie in memory, usually shared with other threads: copy what a library is not to see change. */
export interface PlacedSegment extends Segment {
  field: number;
  bytes: Uint8Array;
}

/** Records of one block as they were read: the whole block, or (formats with restarts) a span of its records. */
export interface RawBlock {
  /** For messages: path of the shard. A self-reading format opens it. */
  file: string;
  block: number;
  /** Number in the shard of the first record, and how many there are. */
  firstRecord: number;
  records: number;
  /** The wanted segments, in the order of the block table. Empty for a self-reading format. */
  segments: readonly PlacedSegment[];
  /** The block is packed: `unpackBlock` first. As of `BlockTable`. */
  origin?: number | undefined;
  /** Of a row format: `{ kinds }`, those of the set's fields. */
  meta: ShardMeta;
  /** Check checksums of the payload where the format has some. */
  checkCrc: boolean;
  /** Of a view that cuts samples out of records (`TokenFormat`): `records` counts samples, and the one segment is their tokens. */
  samples?: BlockSamples | undefined;
}

/** How a view makes samples of records (docs/reference/formats.md). */
export type SampleRule = "record" | "stream" | "document" | "split" | "pack";

/** Samples of a block, in order: record and place in it of the first token of each, and its tokens. */
export interface BlockSamples {
  record: Float64Array;
  token: Uint32Array;
  length: Uint32Array;
  /** Of rows that are made of pieces of records: which. */
  pieces?: BlockPieces;
}

/** Rows of a block that are made of pieces of its records: row r of pieces [start[r], start[r + 1]). */
export interface BlockPieces {
  /** Number in the shard of the block's first record. */
  firstRecord: number;
  /** Tokens of each record of the block. */
  counts: Uint32Array;
  /** Offsets, from the block's first byte, of its records 0, 64, 128 … */
  restarts: Uint32Array;
  start: Uint32Array;
  /** Of each piece: number of its record in the block, its first token in that, and its tokens. */
  record: Uint32Array;
  token: Uint32Array;
  length: Uint32Array;
}

/** Where the tokens of a shard lie in its own file. */
export interface TokenPlace {
  /** Of its first token. */
  offset: number;
  itemBytes: number;
  tokens: number;
}

/** What a format of token shards tells those who cut samples out of them. */
export interface TokenFormat {
  /** The default first. */
  rules: readonly SampleRule[];
  place(meta: ShardMeta): TokenPlace;
  /**
   * First tokens of records [from, to] of a shard; the first token of record `records` is the number of all tokens. Absent:
   * each token is a record. `file`: the first of `StoredTable.files`.
   */
  borders?(meta: ShardMeta, file: ReadableObject, from: number, to: number): Promise<Float64Array>;
}

/**
 * One field of the records of a block: record i has values [ends[i − 1], ends[i]) (ends[−1] = 0; for `bytes` these count
 * bytes), with `starts` [starts[i], ends[i]). Integers come as i32 where all of a block fit, else as i64; floats as stored. `columns` may
 * leave integers of 8 bits as they are.
 */
export interface Column {
  values: Int32Array | BigInt64Array | Float32Array | Float64Array | Uint8Array | Int8Array;
  kind: ValueKind;
  ends: Uint32Array;
  /** Where values lie in the bytes of the block itself, between others. Of `columns` only, numbers only. */
  starts?: Uint32Array;
  /** One byte a record, 0: the record does not have the field (null). Absent: all have it. */
  present?: Uint8Array;
  /** One byte a record, 1: values were cut off already. Absent: none were. */
  cut?: Uint8Array;
  /** The kind was found in the values: see `Field.loose`. */
  loose?: boolean;
  /** See `Field.json`. */
  json?: boolean;
  /** See `Field.list`. Of `scan` only. */
  list?: boolean;
  /** See `Field.unfit`: records by number in the block, `present` is 0 for them; and what is wrong with the first. Of `scan` only. */
  unfit?: { rows: readonly number[]; first: AthanorError };
}

export interface BlockColumns {
  /** The asked fields that the shard has. */
  fields: Map<string, Column>;
  /** Bad records by number in the block (of `records`); their values are empty. */
  faults: Map<number, AthanorError>;
  /**
   * Gives the memory of the values to the next block. To be called once nothing reads them any more, or not at all: then the
   * collector has it, and the thread's workbench is lent to nobody else. Absent: nothing to give.
   */
  release?: (() => void) | undefined;
}

/** The next block of a shard as `scan` finds it. */
export interface ScannedBlock {
  records: number;
  /** In the order in which they are to be read; `file` counts the files of `ScanEnd.files` from 1, 0 is the shard's own. */
  segments: readonly (Segment & { field: number })[];
  /** Offsets, from the block's first byte, of its records 0, 64, 128 … Empty where a block can only be read whole. See `BlockTable`. */
  restarts: readonly number[];
  /** The block is packed, see `BlockTable`. */
  origin?: number;
  columns: BlockColumns;
  /** Where record i of the block begins in the file (in the decompressed stream). Absent: not known by the byte. */
  offsets?: ArrayLike<number>;
  /**
   * Record i for eyes (`cat`): text as strings, scalars as such. Absent: made of the columns, every field a list. Until the next
   * block is asked for.
   */
  record?: (i: number) => { readonly [field: string]: Value };
}

export interface ScanEnd {
  encoding: Encoding;
  /** As in `ShardContent`. */
  crc32c: number;
  meta?: ShardMeta;
  files?: ShardFile[];
  /** See `Schema`. A field can have been a column of the first blocks. */
  notColumns?: { [name: string]: string };
  /** Records with an empty list in blocks before the one in which the kind of their field was found, by field. */
  empty?: ReadonlyMap<string, number>;
}

/** A format that decodes blocks into typed columns. */
export interface ColumnFormat extends FormatBase {
  readonly kind: "columns";
  /**
   * All blocks of a shard in file order with all their fields, bounded in memory; `index` (by `indexColumns`) and `cat` are made
   * of it. At a fault it first gives what is readable before it, then throws; a bad record in `columns.faults` is thrown
   * by those who do not keep bad records.
   */
  scan(shard: ShardFiles, options: IndexOptions): AsyncGenerator<ScannedBlock, ScanEnd>;
  /** The format's library reads the file by its path itself (HDF5): no segments are read for it. */
  readonly selfReading?: boolean;
  /** Its shards are nothing but tokens, which a view cuts into samples. */
  readonly tokens?: TokenFormat;
  /** Loads what decoding needs (WebAssembly of codecs), once a thread; asked before each `columns`: what failed is tried again. */
  ready?(): Promise<void>;
  /**
   * Decodes `fields` (names of the schema) of a block. A fault of one record goes into `faults`; one of the block (a page that
   * cannot be decompressed) is thrown.
   */
  columns(raw: RawBlock, fields: readonly string[]): BlockColumns | Promise<BlockColumns>;
}

/** What decodes blocks into typed columns. */
export type ColumnReader = Pick<ColumnFormat, "name" | "kind" | "selfReading" | "ready" | "columns">;

export type Format = RowFormat | ColumnFormat;
