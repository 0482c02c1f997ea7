/**
 * Formats: what every storage format gives to the index and to the feed (design §4.2).
 * A format knows nothing of sockets, paths or clocks: it sees bytes through `ReadableObject` at index
 * time and bytes in kernel memory at decode time.
 */
import type { AthanorError } from "../base/errors.ts";
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

export type Encoding = "plain" | "gzip" | "zlib";

export type ValueKind = "int64" | "float" | "bytes";

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
}

export interface Schema {
  fields: Field[];
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
  /** Offset, from the block's first byte, of records 0, 64, 128 … of the block. */
  restartStart: Uint32Array;
  restarts: Uint32Array;
}

export const RESTART_EVERY = 64;
export const BLOCK_BYTES = 4 * 1024 * 1024;

/** What `Format.index` finds in one shard. */
export interface ShardContent {
  encoding: Encoding;
  records: number;
  /** Values of the token column (the longest int64 list on average), all records together. */
  tokens: number;
  /** CRC32C of all bytes as stored. */
  crc32c: number;
  schema: Schema;
  table: BlockTable;
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

export interface Format {
  readonly name: string;
  /** Looks at the first bytes (at least 512, or the whole file) and not at the name. Undefined: not this format. */
  detect(head: Uint8Array): Detection | undefined;
  /**
   * Streams through a shard, bounded in memory. Throws on the first fault, with record and byte offset; with `onBad` a bad
   * record is told of and counts as a record.
   */
  index(
    object: ReadableObject,
    kernels: Kernels,
    progress?: (bytes: number) => void,
    onBad?: (fault: AthanorError) => void,
  ): Promise<ShardContent>;
  /** Writes the plan at `at` in kernel memory; returns its bytes. */
  compilePlan(kernels: Kernels, at: number, columns: readonly StoredColumn[]): number;
  decode(kernels: Kernels, request: DecodeRequest): DecodeReport;
  /** All bad records of a block, as a function of its bytes, its table and the plan. */
  survey(kernels: Kernels, request: SurveyRequest): BlockSurvey;
}
