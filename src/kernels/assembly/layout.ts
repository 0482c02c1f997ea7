/**
 * Numbers that both sides of the kernels read: AssemblyScript by `./layout`, TypeScript by `./assembly/layout.ts`.
 * Plain constants only, so that the file is valid in both languages.
 *
 * Tables (made once a memory by `initTables`, then read only):
 *   0      CRC32C slices: 16 × 256 × u32
 *   16384  u16[4096]: the next 4 varints, by continuation bits of 12 bytes: bytes │ offset of their shuffle, or 0x8000 = one is longer than 3 bytes
 *   24576  u8[81][16]: byte shuffles that put 4 varints of 1 to 3 bytes into 32-bit lanes
 *   26624  4 × 256 × u32: what 64 bytes of zeros make of each byte of a CRC
 *   30720  2 × 256 × u32: x^(8 n) and x^(8 · 256 n) modulo the CRC's polynomial, then 16 × u32 x^(8 · 65536 · 2^k)
 *
 * Plan of decodeExamples (read only, may be shared between threads):
 *   0  u32 features │ u32 columns │ 8 bytes 0
 *   16 features × 16 B { u32 name (offset in the plan) │ u32 name bytes │ u32 first column │ u32 columns }
 *   .. columns × 32 B  { u32 storage │ u32 maxLength │ u32 rowOffset │ u32 number in the request │ 8 B pad value │ u32 1: each record must have a value │ 4 bytes 0 }
 *   .. names
 *
 * Table of statsExamples (written by the kernel; one caller at a time):
 *   0  u32 features │ u32 stamp │ 8 bytes 0
 *   16 features × 96 B, see STATS_*; names lie behind the entries
 */
export const TABLE_FOURS = 16384;
export const TABLE_SHUFFLE = 24576;
/** Constants of the varint kernels, three vectors. */
export const TABLE_SEPTETS = 25872;
export const TABLE_ZEROS = 26624;
export const TABLE_POWERS = 30720;

export const PLAN_HEADER = 16;
export const PLAN_FEATURE = 16;
export const PLAN_COLUMN = 32;
/** Columns of a plan: one bit each in a u64 of columns seen. */
export const PLAN_MAX_COLUMNS = 64;

export const STORAGE_I32 = 0;
export const STORAGE_I64 = 1;
export const STORAGE_F32 = 2;
export const STORAGE_PREFIX = 3;
export const STORAGE_LENGTH = 4;

/** Field numbers of `Feature.kind`. */
export const KIND_BYTES = 1;
export const KIND_FLOAT = 2;
export const KIND_INT64 = 3;

export const STATS_HEADER = 16;
export const STATS_ENTRY = 96;
export const STATS_NAME = 0;
export const STATS_NAME_BYTES = 4;
export const STATS_KIND = 8;
export const STATS_PREFIX = 12;
export const STATS_PRESENT = 16;
export const STATS_VALUES = 24;
export const STATS_MIN_LENGTH = 32;
export const STATS_MAX_LENGTH = 40;
export const STATS_MIN = 48;
export const STATS_MAX = 56;
/** The record at hand, folded in at its end, so that the last of two features of one name wins. */
export const STATS_STAMP = 64;
export const STATS_NOW_KIND = 68;
export const STATS_NOW_COUNT = 72;
export const STATS_NOW_PREFIX = 76;
export const STATS_NOW_MIN = 80;
export const STATS_NOW_MAX = 88;

/** What unpackDelta makes: i32 modulo 2^32, i32 where each value fits, i64 modulo 2^64. */
export const DELTA_INT32 = 0;
export const DELTA_NARROW = 1;
export const DELTA_WIDE = 2;

export const FAULT_LENGTH_CRC = 1;
export const FAULT_PAYLOAD_CRC = 2;
export const FAULT_TRUNCATED = 3;
export const FAULT_TOO_LONG = 4;
export const FAULT_MALFORMED = 5;
export const FAULT_KIND = 6;
export const FAULT_RANGE = 7;
export const FAULT_NOT_PREFIX = 8;
export const FAULT_UNKNOWN_FEATURE = 9;
export const FAULT_SEQUENCE_EXAMPLE = 10;
export const FAULT_MISSING = 11;

/** Payload bytes of the longest record: with its 16 bytes of frame it stays below 2 GiB. */
export const MAX_PAYLOAD = 2147483631;
