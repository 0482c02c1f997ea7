/**
 * View layout: the bytes of what lies in `.athanor/views/` (docs/reference/index-format.md). Pure: bytes in, bytes out.
 *
 * ```
 * TOKENS/NAME.bin   ┌ header, 64 B: kind 3, rows = blocks, a = records, CRC32C of the JSON ───────────────────────┐
 * tokens of every   ├ for each block: u32 CRC32C of the counts behind it │ u32 tokens × records of the block ─────┤
 * record of a shard └ JSON: { path, size, crc32c } ───────────────────────────────────────────────────────────────┘
 * FINGERPRINT.bin   ┌ header, 64 B: kind 4, rows = shards, a = blocks of all shards, b = 1, CRC32C of what follows ┐
 * rows of every     ├ f64 tokens × shards │ u32 rows × a │ u32 CRC32C of the block's counts × a, shard by shard ──┤
 * block of a view   └ JSON: ViewFacts ────────────────────────────────────────────────────────────────────────────┘
 * ```
 * Counts are read a block at a time: block b of a shard begins at 64 + 4 × (its first record + b).
 */
import { basename } from "node:path";
import { crc32c } from "../base/crc32c.ts";
import { IndexCorrupt } from "./errors.ts";
import { decodeHeader, encodeHeader, HEADER_BYTES, KIND_COUNTS, KIND_VIEW, tableName } from "./index-layout.ts";
import type { PieceRule } from "./pack.ts";
import type { ShardRow } from "./types.ts";

/** In `b` of a view; 0: it does not say of which counts it was made. */
const WITH_CRC = 1;

/** Of rows, for those who do not know of which counts they are. */
export const VIEW_REMEDY =
  "run `athanor index PATH --view` with the options of the loader: it writes this file anew of the counts, and reads no data; removing this one file is safe, too";
export const COUNTS_REMEDY = "run `athanor index --view` with the options of the loader: it counts such a shard again";

/** What the rows of a view are made of, beside the counts. */
export interface ViewFacts {
  /** Data fingerprint. */
  data: string;
  /** Folder of the counts. */
  tokens: string;
  rule: PieceRule;
  maxLength: number;
  /** Most pieces of one row. */
  most: number;
  /** Bad records, which are in no row; the first of them, null: there is none. */
  bad: number;
  firstBad: { path: string; record: number } | null;
}

/** Rows of the blocks of a view. */
export interface ViewRows extends ViewFacts {
  /** Tokens of each shard. */
  shardTokens: Float64Array;
  /** Rows of each block, shard by shard. */
  rows: Uint32Array;
  /** CRC32C of the counts of each block: rows and counts that do not belong together would lose records without a word. */
  countsCrc: Uint32Array;
}

/** The parts of a file of counts, one behind the other. `blocks`: counts of each block, in order. */
export async function* encodeCounts(
  { path, size, crc32c: crc, records }: Pick<ShardRow, "path" | "size" | "crc32c" | "records">,
  blockCount: number,
  blocks: AsyncIterable<Uint32Array>,
): AsyncGenerator<Uint8Array> {
  const json = Buffer.from(JSON.stringify({ path, size, crc32c: crc }));
  const payload = (records + blockCount) * 4 + json.length;
  yield encodeHeader({
    kind: KIND_COUNTS,
    payload,
    crc: crc32c(json),
    rows: blockCount,
    a: records,
    b: 0,
    json: json.length,
  });
  for await (const counts of blocks) {
    const bytes = bytesOf(counts);
    yield bytesOf(Uint32Array.of(crc32c(bytes)));
    yield bytes;
  }
  yield json;
}

/** Where the counts of a block lie, with their CRC in front. */
export function countsPlace(firstRecord: number, block: number, records: number): { offset: number; length: number } {
  return { offset: HEADER_BYTES + 4 * (firstRecord + block), length: 4 * (records + 1) };
}

/** What a view remembers of the counts of a block. */
export function countsCrcOf(counts: Uint32Array): number {
  return crc32c(bytesOf(counts));
}

/** `bytes`: of one block, as `countsPlace` says. */
export function decodeCounts(bytes: Uint8Array<ArrayBuffer>, file: string, offset: number): Uint32Array {
  const words = new Uint32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 4);
  const counts = words.subarray(1);
  if (words[0] !== countsCrcOf(counts))
    throw corrupt(file, "counts whose CRC fits", "other ones", COUNTS_REMEDY, offset);
  return counts;
}

/** Is it a whole file of counts of this shard? `head`: its header; `size`: of the file. Returns where its JSON begins. */
export function checkCounts(head: Uint8Array, size: number, file: string, records: number, blocks: number): number {
  const { rows, a, payload, json } = decodeHeader(head, KIND_COUNTS, file, COUNTS_REMEDY);
  if (rows !== blocks || a !== records)
    throw corrupt(file, `${records} records in ${blocks} blocks`, `${a} in ${rows}`, COUNTS_REMEDY);
  const end = HEADER_BYTES + 4 * (records + blocks);
  if (payload !== end - HEADER_BYTES + json || size !== end + json)
    throw corrupt(file, `${end + json} bytes`, `${size}`, COUNTS_REMEDY);
  return end;
}

/** Is the JSON behind the counts whole, and that of the file's name? `head`: the header, checked. */
export function checkCountsEnd(head: Uint8Array, bytes: Uint8Array, file: string, offset: number): void {
  const { crc } = decodeHeader(head, KIND_COUNTS, file, COUNTS_REMEDY);
  if (crc32c(bytes) !== crc) throw corrupt(file, "a CRC of the JSON that fits", "another one", COUNTS_REMEDY, offset);
  const shard = JSON.parse(Buffer.from(bytes).toString("utf8")) as Pick<ShardRow, "path" | "size" | "crc32c">;
  if (tableName(shard) !== basename(file))
    throw corrupt(file, "counts of the shard of this name", `those of ${shard.path}`, COUNTS_REMEDY, offset);
}

export function encodeView({ shardTokens, rows, countsCrc, ...facts }: ViewRows): Uint8Array[] {
  const json = Buffer.from(JSON.stringify(facts));
  const payload = [bytesOf(shardTokens), bytesOf(rows), bytesOf(countsCrc), json];
  const header = encodeHeader({
    kind: KIND_VIEW,
    payload: payload.reduce((sum, part) => sum + part.byteLength, 0),
    crc: payload.reduce((crc, part) => crc32c(part, crc), 0),
    rows: shardTokens.length,
    a: rows.length,
    b: WITH_CRC,
    json: json.length,
  });
  return [header, ...payload];
}

/** undefined: it does not say of which counts it was made, so nobody can trust it. */
export function decodeView(bytes: Uint8Array, file: string): ViewRows | undefined {
  const head = decodeHeader(bytes, KIND_VIEW, file, VIEW_REMEDY);
  if (head.b !== WITH_CRC) return undefined;
  const { rows: shards, a: blocks, json } = head;
  if (bytes.byteLength !== HEADER_BYTES + head.payload || head.payload !== shards * 8 + blocks * 8 + json)
    throw corrupt(file, `${HEADER_BYTES + shards * 8 + blocks * 8 + json} bytes`, `${bytes.byteLength}`, VIEW_REMEDY);
  // A copy: the views need a buffer that begins at a multiple of 8.
  const payload = bytes.slice(HEADER_BYTES);
  if (crc32c(payload) !== head.crc) throw corrupt(file, "a payload CRC that fits", "another one", VIEW_REMEDY);
  const facts = JSON.parse(Buffer.from(payload.subarray(payload.length - json)).toString("utf8")) as ViewFacts;
  return {
    ...facts,
    shardTokens: new Float64Array(payload.buffer, 0, shards),
    rows: new Uint32Array(payload.buffer, shards * 8, blocks),
    countsCrc: new Uint32Array(payload.buffer, shards * 8 + blocks * 4, blocks),
  };
}

function bytesOf(array: Float64Array | Uint32Array): Uint8Array {
  return new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
}

function corrupt(file: string, expected: string, found: string, remedy: string, byteOffset?: number): Error {
  const what = `file of a view is damaged: expected ${expected}, found ${found}`;
  return new IndexCorrupt(what, byteOffset === undefined ? { file } : { file, byteOffset }, remedy);
}
