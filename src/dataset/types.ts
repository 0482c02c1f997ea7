/** Data set: shards that share a schema, and the index that knows them (design §4.3). */
import type { BlockSamples, BlockTable, Encoding, Schema, ShardFile, ShardMeta } from "../formats/types.ts";
import type { BytesByField } from "./largest-block.ts";
import type { PieceRule } from "./pack.ts";

export interface ShardRow {
  /** Relative to the root, `/` between parts. */
  path: string;
  size: number;
  mtimeNs: bigint;
  records: number;
  tokens: number;
  crc32c: number;
  encoding: Encoding;
  blocks: number;
  /** Records of its largest block. */
  largestBlock: number;
  /** Records and tokens of every run of 64 blocks. */
  runRecords: Float64Array;
  runTokens: Float64Array;
}

/** A file beside the shards that is not data (README, JSON …). */
export interface IgnoredFile {
  path: string;
  /** What it is. */
  why: string;
}

/** A set that shards were appended to. */
export interface PastSet {
  fingerprint: string;
  /** Paths that came with the next set. */
  added: string[];
}

/** What the index keeps of one shard beside its row. */
export interface StoredTable {
  schema: Schema;
  table: BlockTable;
  meta?: ShardMeta;
  /** What `segmentFile` counts from 1. */
  files?: ShardFile[];
  /** The shard is a folder: its files are all in `files`. */
  folder?: boolean;
}

/** Chunks of arrays that no file holds, in all shards. */
export interface MissingChunks {
  chunks: number;
  /** The first of them: its shard, and which it is, in words. */
  path: string;
  what: string;
}

/** What the samples of a view are that are not its records. */
export interface SampleCut {
  /** Samples of one block, in order. */
  of(shard: number, block: number): Promise<BlockSamples>;
  /** The record in which the token at a byte of the shard lies. Absent: faults name their records themselves. */
  recordAt?(shard: number, byteOffset: number): Promise<number>;
}

export interface DatasetIndex {
  /** Absolute folder (or URI) that shard paths are relative to. */
  root: string;
  /** Where the index lies; undefined: in memory only. */
  folder?: string | undefined;
  format: string;
  /** In byte order of their paths. */
  shards: ShardRow[];
  ignored: IgnoredFile[];
  schema: Schema;
  totals: { shards: number; bytes: number; records: number; tokens: number; blocks: number };
  /** Data fingerprint: 32 hex digits. */
  fingerprint: string;
  /** What it was before shards were appended, the newest last. */
  past: PastSet[];
  /** Undefined: not known. */
  largestBlock?: BytesByField | undefined;
  /** Undefined: none. They read as fill values. */
  missing?: MissingChunks | undefined;
  /** The block table of one shard with what belongs to it; read when first asked for, then kept. */
  shardTable(shard: number): Promise<StoredTable>;
  /** Where the index counts the samples of a view and not records: what they are. */
  cut?: SampleCut;
  /** Of a view that splits or packs: what its rows are made of. */
  pieces?: PieceSpec;
}

/** `tokens`: the folder of the counts; `maxLength`: in tokens. */
export interface PieceSpec {
  tokens: string;
  rule: PieceRule;
  maxLength: number;
}
