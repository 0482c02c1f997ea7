import "./webassembly.ts";
import {
  DELTA_INT32,
  DELTA_NARROW,
  DELTA_WIDE,
  FAULT_KIND,
  FAULT_LENGTH_CRC,
  FAULT_MALFORMED,
  FAULT_MISSING,
  FAULT_NOT_PREFIX,
  FAULT_PAYLOAD_CRC,
  FAULT_RANGE,
  FAULT_SEQUENCE_EXAMPLE,
  FAULT_TOO_LONG,
  FAULT_TRUNCATED,
  FAULT_UNKNOWN_FEATURE,
} from "./assembly/layout.ts";
import type { Digits } from "./digits.ts";
/**
 * Kernels: the hot loops, over addresses in one WebAssembly memory (which may be shared between threads).
 * Two implementations of one interface: AssemblyScript compiled to `kernels.wasm`, and the plain TypeScript
 * twin (`twin.ts`) that is the oracle of the tests and the fallback where WebAssembly SIMD is missing.
 *
 * Contract: addresses and lengths are bytes, below 4 GiB, and lie inside the memory. A kernel reads nothing outside
 * the ranges it is given and writes nothing outside its outputs, whatever the bytes are. Results come back as
 * values; bad bytes are a `fault`, never an exception.
 *
 * @example
 * const kernels = createKernels(1 << 20); // load.ts
 * const crc = kernels.crc32c(kernels.tables + TABLE_BYTES, 9);
 */

/** Bytes of read-only tables (CRC slices, varint shuffles) that `initTables` writes at `tables`. */
export const TABLE_BYTES = 128 * 1024;

export const FAULT = {
  lengthCrc: FAULT_LENGTH_CRC,
  payloadCrc: FAULT_PAYLOAD_CRC,
  /** The range ends before the record does. At the record's first byte: not even the 12 bytes of its header are there. */
  truncated: FAULT_TRUNCATED,
  /** 2 GiB or more. */
  tooLong: FAULT_TOO_LONG,
  /** Not protobuf, or not an Example. */
  malformed: FAULT_MALFORMED,
  /** A feature holds another kind of list (found, expected: 1 bytes, 2 float, 3 int64). */
  kind: FAULT_KIND,
  /** An int64 that does not fit the int32 column. */
  range: FAULT_RANGE,
  /** A list stored as `prefix` is not ones followed by zeros. */
  notPrefix: FAULT_NOT_PREFIX,
  /** statsExamples: a feature that the table does not list. */
  unknownFeature: FAULT_UNKNOWN_FEATURE,
  sequenceExample: FAULT_SEQUENCE_EXAMPLE,
  /** A column of one value has none in this record. */
  missing: FAULT_MISSING,
} as const;

/** What `unpackDelta` makes: i32 modulo 2^32, i32 where each value fits, i64 modulo 2^64. */
export const DELTA = { int32: DELTA_INT32, narrow: DELTA_NARROW, wide: DELTA_WIDE } as const;

/** Result of a kernel that can fail; offsets count from the `ptr` (or `raw`) given to the kernel. */
export interface KernelFault {
  /** One of `FAULT`. */
  code: number;
  /** Record in which it was found, counted from the first record of the call. */
  record: number;
  /** Byte at which the record begins. */
  recordOffset: number;
  /** Byte at which the fault was seen. */
  offset: number;
  found: bigint;
  expected: bigint;
  /** Column (index in the plan's request; for statsExamples: entry of the table) if one is concerned, else -1. */
  column: number;
}

export interface FrameScan {
  /** Whole records found. */
  records: number;
  /** Bytes of those records. */
  consumed: number;
  /** Bytes in all of the record that begins at `consumed` but passes the end of the range; 0 = none. */
  needed: number;
  /** CRC32C of the bytes before the range and of those records. */
  crc32c: number;
  fault: KernelFault | undefined;
}

/** Arguments of decodeExamples; `DecodeRequest` of the formats without its words for messages. */
export interface ExampleBlock {
  raw: number;
  rawBytes: number;
  firstRecord: number;
  records: number;
  /** Address of u32[records]: address of the stored row (4-byte aligned), 0 = not wanted. */
  rows: number;
  plan: number;
  shardKey: bigint;
  checkCrc: boolean;
}

export interface ExampleRows {
  /** Rows written; with a fault, those before it. */
  rows: number;
  /** Rows of which a list was cut to its maxLength. */
  truncated: number;
  fault: KernelFault | undefined;
}

/** Rows in which a list was cut, and rows that stand in for bad records. */
export interface RowFlags {
  cut: number;
  replaced: number;
}

export interface Kernels {
  readonly implementation: "wasm" | "twin";
  readonly memory: WebAssembly.Memory;
  /** Address of the tables, 16-byte aligned. */
  readonly tables: number;
  /** CRC32C (Castagnoli) of `length` bytes at `ptr`, continued from `seed` (a finished CRC; default 0). */
  crc32c(ptr: number, length: number, seed?: number): number;
  /** Copies n rows' bytes [rowOffset, rowOffset + bytes) to `out`, one behind the other. `rows`: address of u32[n]. */
  gather(rows: number, n: number, rowOffset: number, bytes: number, out: number): void;
  /**
   * Writes the identities of n rows to `out`, 32 bytes each: u64 shard key, u64 record and u32 token at 8, 16 and 24, nothing else of
   * them. `rows`: address of u32[n]. Returns what the rows' flags say.
   */
  gatherHeads(rows: number, n: number, out: number): RowFlags;
  /** Copies `bytes` at ptr + i · stride to `rowOffset` of row i. `rows`: address of u32[n]; a row of address 0 is left out. */
  scatter(rows: number, n: number, ptr: number, stride: number, rowOffset: number, bytes: number): void;
  /**
   * Walks at most `max` TFRecord frames and checks them. Writes the payloads' offsets (from `ptr`) and lengths to
   * u32[max] at `offsets` and `lengths`. A record that passes the end of the range is no fault: see `needed`.
   * `crc32c`: of the bytes before the range; that of all is made of the payloads', so that no byte is summed twice.
   */
  scanFrames(ptr: number, length: number, max: number, offsets: number, lengths: number, crc32c: number): FrameScan;
  /**
   * Frames → CRC → tf.train.Example → stored rows (formats/types.ts), by a plan of `encodePlan` (formats/tfrecord/plan.ts).
   * Stops at the first fault; a range that ends inside a record is one (`FAULT.truncated`). Payloads of rows
   * that are not wanted are passed over unread.
   */
  decodeExamples(block: ExampleBlock): ExampleRows;
  /**
   * Folds what the payloads hold into a table of features (assembly/layout.ts). Returns the records folded; stops
   * at a fault, of which `FAULT.unknownFeature` asks the caller to extend the table and go on from that record.
   */
  statsExamples(ptr: number, offsets: number, lengths: number, records: number, table: number): StatsScan;
  /**
   * Parquet's runs of `width` (1 to 32) bits in `length` bytes as i32[count] at `out`. `words`: address of i32[size], of which
   * they are indices; 0: they are the values. False: the runs end before, or an index is too large; `out` then holds anything.
   */
  unpackHybrid(
    ptr: number,
    length: number,
    width: number,
    out: number,
    count: number,
    words: number,
    size: number,
  ): boolean;
  /**
   * Parquet's DELTA_BINARY_PACKED as `count` integers at `out`, in one of `DELTA`. Returns the bytes up to behind the last
   * miniblock that holds a value; −1: they are damaged, or a value does not fit; `out` then holds anything.
   */
  unpackDelta(ptr: number, length: number, out: number, count: number, form: number): number;
  /** i64[count] as i32[count] at `out`; false: one does not fit. */
  narrowInts(ptr: number, count: number, out: number): boolean;
  /**
   * The bytes of values of `size` bytes that lie in planes, put together (shuffle.ts), at `out`, which does not overlap.
   * Bytes that fill no value stay at the end.
   */
  unshuffle(ptr: number, length: number, size: number, out: number): void;
  /**
   * Integers of a JSON list as i32 at `out`, `max` at most: up to 9 digits, a comma behind, one space before at most. Stops
   * before whatever else stands there; `next` is the offset behind the last comma.
   */
  readDigits(ptr: number, length: number, out: number, max: number): Digits;
}

export interface StatsScan {
  records: number;
  fault: KernelFault | undefined;
}
