/**
 * Index layout: the bytes of `shards.bin` and `blocks/NAME.bin` (design §4.3; docs/reference/index-format.md).
 * Pure: bytes in, bytes out. Little-endian; f64 hold whole numbers.
 *
 * ```
 * both    ┌ header, 64 B ─────────────────────────────────────────────────────────────────────────────────┐
 *         │ 0 "ATHIDX01" │ 8 u32 version │ 12 u32 kind (1 shards, 2 blocks) │ 16 u64 payload bytes           │
 *         │ 24 u32 CRC32C of the payload │ 28 u32 rows │ 32 u64 a │ 40 u64 b │ 48 u64 JSON bytes │ 56 u32 0  │
 *         │ 60 u32 CRC32C of bytes 0 … 59                                                                  │
 * shards  ├ rows × 72 B, in byte order of paths ───────────────────────────────────────────────────────────┤
 *         │ 0 u64 size │ 8 u64 mtime ns │ 16 u64 records │ 24 u64 tokens │ 32 u64 first run │ 40 u32 runs    │
 *         │ 44 u32 crc32c │ 48 u32 encoding (0 plain, 1 gzip …)   │ 52 u32 blocks │ 56 u32 largest block  │
 *         │ 60 u32 path bytes │ 64 u64 path offset                                                         │
 *         ├ f64 records × a runs │ f64 tokens × a runs │ paths, UTF-8, b bytes │ JSON: the manifest ───────────┤
 * blocks  ├ f64 firstRecord × (rows + 1) │ f64 tokens × rows │ f64 segmentOffset × a │ f64 segmentLength × a ───┤
 *         │ u32 segmentStart × (rows + 1) │ u32 segmentFile × a │ u32 segmentField × a                            │
 *         │ u32 restartStart × (rows + 1) │ u32 restarts × b                                               │
 *         └ JSON: { path, size, crc32c, stream, schema, meta?, files?, folder? } ───────────────────────────────────┘
 * ```
 * A run is 64 blocks. `shards.bin` holds its manifest itself, so that one rename publishes an index whole;
 * `manifest.json` is the copy for eyes.
 */
import { createHash } from "node:crypto";
import { crc32c } from "../base/crc32c.ts";
import type { BlockTable, Encoding, Schema } from "../formats/types.ts";
import { IndexCorrupt } from "./errors.ts";
import type { BytesByField } from "./largest-block.ts";
import type { DatasetIndex, IgnoredFile, MissingChunks, PastSet, ShardRow, StoredTable } from "./types.ts";

export const INDEX_VERSION = 3;
export const RUN_BLOCKS = 64;

const MAGIC = "ATHIDX01";
export const HEADER_BYTES = 64;
const ROW_BYTES = 72;
const KIND_SHARDS = 1;
const KIND_BLOCKS = 2;
const ENCODINGS: readonly Encoding[] = ["plain", "gzip", "zlib", "zstd", "zstd-frames"];
const REBUILD = "run `athanor index --rebuild` on the data";
/** See `view-layout.ts`. */
export const KIND_COUNTS = 3;
export const KIND_VIEW = 4;

/** What `manifest.json` holds. */
export interface Manifest {
  version: number;
  format: string;
  fingerprint: string;
  totals: DatasetIndex["totals"];
  schema: Schema;
  ignored: IgnoredFile[];
  /** Absent in an index that was made before it was kept. */
  largestBlock?: BytesByField;
  /** Absent where no shard was ever appended. */
  past?: PastSet[];
  /** Absent where all chunks of arrays are there. */
  missing?: MissingChunks;
}

/** A shard's block table with what ties it to the shard. */
export interface ShardTable extends StoredTable {
  path: string;
  size: number;
  crc32c: number;
}

/**
 * Name of a shard's block table. By content, so that builders that run at the same time write the same bytes
 * to the same name, and a table is never mistaken for that of another shard.
 */
export function tableName(shard: Pick<ShardRow, "path" | "size" | "crc32c">): string {
  const identity = `${shard.path}\0${shard.size}\0${shard.crc32c}`;
  return `${createHash("sha256").update(identity).digest("hex").slice(0, 16)}.bin`;
}

export function encodeShards(manifest: Manifest, shards: readonly ShardRow[]): Uint8Array[] {
  const paths = shards.map((shard) => Buffer.from(shard.path));
  const runs = shards.reduce((sum, shard) => sum + shard.runRecords.length, 0);
  const rows = new DataView(new ArrayBuffer(shards.length * ROW_BYTES));
  const runRecords = new Float64Array(runs);
  const runTokens = new Float64Array(runs);
  let run = 0;
  let pathOffset = 0;
  for (const [i, shard] of shards.entries()) {
    const at = i * ROW_BYTES;
    rows.setBigUint64(at, BigInt(shard.size), true);
    rows.setBigUint64(at + 8, BigInt.asUintN(64, shard.mtimeNs), true);
    rows.setBigUint64(at + 16, BigInt(shard.records), true);
    rows.setBigUint64(at + 24, BigInt(shard.tokens), true);
    rows.setBigUint64(at + 32, BigInt(run), true);
    rows.setUint32(at + 40, shard.runRecords.length, true);
    rows.setUint32(at + 44, shard.crc32c, true);
    rows.setUint32(at + 48, ENCODINGS.indexOf(shard.encoding), true);
    rows.setUint32(at + 52, shard.blocks, true);
    rows.setUint32(at + 56, shard.largestBlock, true);
    rows.setUint32(at + 60, paths[i]!.length, true);
    rows.setBigUint64(at + 64, BigInt(pathOffset), true);
    runRecords.set(shard.runRecords, run);
    runTokens.set(shard.runTokens, run);
    run += shard.runRecords.length;
    pathOffset += paths[i]!.length;
  }
  const json = Buffer.from(JSON.stringify(manifest));
  const payload = [new Uint8Array(rows.buffer), bytesOf(runRecords), bytesOf(runTokens), Buffer.concat(paths), json];
  return [header(KIND_SHARDS, payload, shards.length, runs, pathOffset, json.length), ...payload];
}

/** `file`: for messages. Throws ATH_INDEX_CORRUPT. */
export function decodeShards(bytes: Uint8Array, file: string): { manifest: Manifest; shards: ShardRow[] } {
  const { payload, rows, a: runs, b: pathBytes, jsonBytes } = open(bytes, KIND_SHARDS, file);
  const expected = rows * ROW_BYTES + runs * 16 + pathBytes + jsonBytes;
  if (payload.byteLength !== expected) throw corrupt(file, `sections of ${expected} bytes`, `${payload.byteLength}`);
  const view = new DataView(payload.buffer, payload.byteOffset);
  const runsAt = payload.byteOffset + rows * ROW_BYTES;
  const runRecords = new Float64Array(payload.buffer, runsAt, runs);
  const runTokens = new Float64Array(payload.buffer, runsAt + runs * 8, runs);
  const paths = Buffer.from(payload.buffer, runsAt + runs * 16, pathBytes);
  const shards: ShardRow[] = [];
  for (let i = 0; i < rows; i++) {
    const at = i * ROW_BYTES;
    const run = Number(view.getBigUint64(at + 32, true));
    const runEnd = run + view.getUint32(at + 40, true);
    const pathAt = Number(view.getBigUint64(at + 64, true));
    shards.push({
      path: paths.toString("utf8", pathAt, pathAt + view.getUint32(at + 60, true)),
      size: Number(view.getBigUint64(at, true)),
      mtimeNs: view.getBigInt64(at + 8, true),
      records: Number(view.getBigUint64(at + 16, true)),
      tokens: Number(view.getBigUint64(at + 24, true)),
      crc32c: view.getUint32(at + 44, true),
      encoding: ENCODINGS[view.getUint32(at + 48, true)]!,
      blocks: view.getUint32(at + 52, true),
      largestBlock: view.getUint32(at + 56, true),
      runRecords: runRecords.subarray(run, runEnd),
      runTokens: runTokens.subarray(run, runEnd),
    });
  }
  return { manifest: json(payload, jsonBytes) as Manifest, shards };
}

export function encodeTable(shard: ShardTable): Uint8Array[] {
  const { table, ...rest } = shard;
  const text = Buffer.from(JSON.stringify({ ...rest, stream: table.stream, packed: table.origin && true }));
  const payload = [...tableColumns(table).map(bytesOf), text];
  const segments = table.segmentFile.length;
  return [header(KIND_BLOCKS, payload, table.blocks, segments, table.restarts.length, text.length), ...payload];
}

type StoredJson = Omit<ShardTable, "table"> & { stream: boolean; packed?: boolean };

export function decodeTable(bytes: Uint8Array, file: string): ShardTable {
  const { payload, rows: blocks, a: segments, b: restarts, jsonBytes } = open(bytes, KIND_BLOCKS, file);
  const { stream, packed, ...identity } = json(payload, jsonBytes) as StoredJson;
  const doubles = 2 * blocks + 1 + 2 * segments + (packed === true ? blocks : 0);
  const expected = doubles * 8 + (2 * (blocks + 1) + 2 * segments + restarts) * 4 + jsonBytes;
  if (payload.byteLength !== expected) throw corrupt(file, `sections of ${expected} bytes`, `${payload.byteLength}`);
  let at = payload.byteOffset;
  const f64 = (length: number): Float64Array =>
    new Float64Array(payload.buffer, (at += length * 8) - length * 8, length);
  const u32 = (length: number): Uint32Array => new Uint32Array(payload.buffer, (at += length * 4) - length * 4, length);
  const table: BlockTable = {
    stream,
    blocks,
    firstRecord: f64(blocks + 1),
    tokens: f64(blocks),
    segmentOffset: f64(segments),
    segmentLength: f64(segments),
    ...(packed === true && { origin: f64(blocks) }),
    segmentStart: u32(blocks + 1),
    segmentFile: u32(segments),
    segmentField: u32(segments),
    restartStart: u32(blocks + 1),
    restarts: u32(restarts),
  };
  return { ...identity, table };
}

/** In the order of the file: f64 first, so that everything stays aligned. */
function tableColumns(table: BlockTable): (Float64Array | Uint32Array)[] {
  return [
    table.firstRecord,
    table.tokens,
    table.segmentOffset,
    table.segmentLength,
    ...(table.origin === undefined ? [] : [table.origin]),
    table.segmentStart,
    table.segmentFile,
    table.segmentField,
    table.restartStart,
    table.restarts,
  ];
}

/** What a header holds. */
export interface Header {
  kind: number;
  /** Bytes behind the header. */
  payload: number;
  /** CRC32C of them. */
  crc: number;
  rows: number;
  a: number;
  b: number;
  /** Bytes of JSON at the end of the payload. */
  json: number;
}

export function encodeHeader({ kind, payload, crc, rows, a, b, json: jsonBytes }: Header): Uint8Array {
  const bytes = new Uint8Array(HEADER_BYTES);
  const view = new DataView(bytes.buffer);
  bytes.set(Buffer.from(MAGIC));
  view.setUint32(8, INDEX_VERSION, true);
  view.setUint32(12, kind, true);
  view.setBigUint64(16, BigInt(payload), true);
  view.setUint32(24, crc, true);
  view.setUint32(28, rows, true);
  view.setBigUint64(32, BigInt(a), true);
  view.setBigUint64(40, BigInt(b), true);
  view.setBigUint64(48, BigInt(jsonBytes), true);
  view.setUint32(60, crc32c(bytes.subarray(0, 60)), true);
  return bytes;
}

/** Throws ATH_INDEX_CORRUPT for what is no header of this kind. `remedy`: of a file beside the index itself. */
export function decodeHeader(bytes: Uint8Array, kind: number, file: string, remedy = REBUILD): Header {
  if (bytes.byteLength < HEADER_BYTES)
    throw corrupt(file, `a header of ${HEADER_BYTES} bytes`, `${bytes.byteLength} bytes`, remedy);
  const view = new DataView(bytes.buffer, bytes.byteOffset);
  const magic = Buffer.from(bytes.subarray(0, 8)).toString("latin1");
  if (magic !== MAGIC) throw corrupt(file, MAGIC, JSON.stringify(magic), remedy);
  const version = view.getUint32(8, true);
  if (version !== INDEX_VERSION) {
    throw new IndexCorrupt(
      `the index is of version ${version}, this Athanor reads version ${INDEX_VERSION}`,
      { file },
      remedy === REBUILD ? "run `athanor index` on the data, which makes it anew" : remedy,
    );
  }
  const headerCrc = crc32c(bytes.subarray(0, 60));
  if (view.getUint32(60, true) !== headerCrc) throw corrupt(file, "a header CRC that fits", "another one", remedy);
  if (view.getUint32(12, true) !== kind) throw corrupt(file, `kind ${kind}`, `${view.getUint32(12, true)}`, remedy);
  return {
    kind,
    payload: Number(view.getBigUint64(16, true)),
    crc: view.getUint32(24, true),
    rows: view.getUint32(28, true),
    a: Number(view.getBigUint64(32, true)),
    b: Number(view.getBigUint64(40, true)),
    json: Number(view.getBigUint64(48, true)),
  };
}

function header(
  kind: number,
  payload: Uint8Array[],
  rows: number,
  a: number,
  b: number,
  jsonBytes: number,
): Uint8Array {
  return encodeHeader({
    kind,
    payload: payload.reduce((sum, part) => sum + part.byteLength, 0),
    crc: payload.reduce((crc, part) => crc32c(part, crc), 0),
    rows,
    a,
    b,
    json: jsonBytes,
  });
}

interface Opened {
  /** Begins at a multiple of 8 in its buffer. */
  payload: Uint8Array<ArrayBuffer>;
  rows: number;
  a: number;
  b: number;
  jsonBytes: number;
}

function open(bytes: Uint8Array, kind: number, file: string): Opened {
  const { payload: length, crc, rows, a, b, json: jsonBytes } = decodeHeader(bytes, kind, file);
  const found = bytes.byteLength - HEADER_BYTES;
  if (found !== length) throw corrupt(file, `${length} bytes behind the header`, `${found}`);
  // A copy: the views of the sections need a buffer that begins at a multiple of 8.
  const payload = new Uint8Array(length);
  payload.set(bytes.subarray(HEADER_BYTES));
  if (crc32c(payload) !== crc) throw corrupt(file, "a payload CRC that fits", "another one");
  return { payload, rows, a, b, jsonBytes };
}

function json(payload: Uint8Array, bytes: number): unknown {
  return JSON.parse(Buffer.from(payload.subarray(payload.byteLength - bytes)).toString("utf8"));
}

function bytesOf(array: Float64Array | Uint32Array): Uint8Array {
  return new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
}

function corrupt(file: string, expected: string, found: string, remedy = REBUILD): Error {
  return new IndexCorrupt(`index file is damaged: expected ${expected}, found ${found}`, { file }, remedy);
}
