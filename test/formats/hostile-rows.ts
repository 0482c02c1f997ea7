/**
 * Damaged shards of a `RowFormat`, read as `athanor index`, `athanor cat` and the feed do: index, records, decoding of blocks with and
 * without checksums, and the survey of what is bad in them, by the kernels and by their twin.
 */
import assert from "node:assert/strict";
import { gunzipSync } from "node:zlib";
import { AthanorError } from "../../src/base/errors.ts";
import { parseRecord, readRecords } from "../../src/formats/tfrecord/records.ts";
import { ROW_HEADER_BYTES, isStream } from "../../src/formats/types.ts";
import type { RowFormat, ShardContent, StoredColumn } from "../../src/formats/types.ts";
import { TABLE_BYTES, type Kernels } from "../../src/kernels/kernels.ts";
import { createKernels } from "../../src/kernels/load.ts";
import { concat, frame } from "../kernels/examples.ts";
import { indexShard, shardOf, type TestShard } from "./blocks.ts";
import { damage, type Random } from "./damage.ts";
import { memoryObject } from "./tfrecord/memory-object.ts";

const MAX_LENGTH = 8;

export interface ValidRows {
  content: ShardContent;
  columns: readonly StoredColumn[];
}

/** One for each implementation, with room for the shards of the tests. */
let both: Kernels[] | undefined;
const MEMORY_BYTES = 4 << 20;

export async function validRows(format: RowFormat, shard: TestShard): Promise<ValidRows> {
  const content = await indexShard(format, shard);
  return { content, columns: columnsOf(content) };
}

/** A column of each numeric feature, with the storage that the least of room asks of it. */
function columnsOf({ schema }: ShardContent): StoredColumn[] {
  let rowOffset = ROW_HEADER_BYTES;
  return schema.fields
    .filter(({ kind }) => kind !== "bytes")
    .slice(0, 64)
    .map(({ name, kind }, i): StoredColumn => {
      const storage = kind === "float" ? "f32" : i % 2 === 0 ? "i64" : "i32";
      const rowBytes = storage === "i64" ? MAX_LENGTH * 8 : MAX_LENGTH * 4;
      rowOffset += rowBytes;
      return {
        name,
        feature: name,
        storage,
        maxLength: MAX_LENGTH,
        pad: "0",
        rowOffset: rowOffset - rowBytes,
        rowBytes,
      };
    });
}

/** Damage inside the records of a plain shard, framed anew with checksums that fit. */
export function damagedRecords(shard: TestShard, random: Random): { shard: TestShard; damages: string[] } {
  const { path, bytes } = shard.files[0]!;
  const payloads = payloadsOf(isZipped(bytes) ? gunzipSync(bytes) : bytes);
  const damages: string[] = [];
  for (let left = random(3); left >= 0; left--) {
    const i = random(payloads.length);
    const { bytes: changed, what } = damage(payloads[i]!, payloads, random);
    payloads[i] = changed;
    damages.push(`payload ${i}: ${what}`);
  }
  return { shard: shardOf(path.replace(/\.gz$/, ""), concat(...payloads.map((payload) => frame(payload)))), damages };
}

function isZipped(bytes: Uint8Array): boolean {
  return bytes[0] === 0x1f && bytes[1] === 0x8b;
}

function payloadsOf(bytes: Uint8Array): Uint8Array[] {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const payloads: Uint8Array[] = [];
  for (let at = 0; at < bytes.length;) {
    const length = Number(view.getBigUint64(at, true));
    payloads.push(bytes.slice(at + 12, at + 12 + length));
    at += length + 16;
  }
  return payloads;
}

export async function readDamagedRows(
  format: RowFormat,
  shard: TestShard,
  valid: ValidRows,
  random: Random,
  coded: (error: unknown) => void,
): Promise<boolean> {
  const { path, bytes } = shard.files[0]!;
  both ??= (["wasm", "twin"] as const).map((implementation) => createKernels(MEMORY_BYTES, implementation));
  format.detect(bytes.subarray(0, 4096), path);
  const onBad = random(2) === 0 ? undefined : coded;
  let content: ShardContent | undefined;
  try {
    content = await indexShard(format, shard, onBad === undefined ? {} : { onBad });
  } catch (error) {
    coded(error);
  }
  let records = 0;
  try {
    for await (const record of readRecords(memoryObject(`/${path}`, bytes), both[0]!)) {
      parseRecord(path, record);
      records++;
    }
  } catch (error) {
    coded(error);
  }
  if (content !== undefined && onBad === undefined) assert.equal(records, content.records, "records of the index");
  // Of these very bytes, and as where a shard was damaged behind its index.
  if (content !== undefined && !isStream(content.encoding))
    decodeBlocks(format, path, bytes, content, columnsOf(content), random, coded);
  if (!isStream(valid.content.encoding)) decodeBlocks(format, path, bytes, valid.content, valid.columns, random, coded);
  return content !== undefined;
}

function decodeBlocks(
  format: RowFormat,
  file: string,
  bytes: Uint8Array,
  { table }: ShardContent,
  columns: readonly StoredColumn[],
  random: Random,
  coded: (error: unknown) => void,
): void {
  if (columns.length === 0) return;
  const checkCrc = random(2) === 0;
  for (let block = 0; block < table.blocks; block++) {
    const offset = table.segmentOffset[table.segmentStart[block]!]!;
    const length = table.segmentLength[table.segmentStart[block]!]!;
    // Storage refuses to read behind the end of a file.
    if (offset + length > bytes.length) continue;
    const restarts = table.restarts.subarray(table.restartStart[block], table.restartStart[block + 1]);
    const place = {
      firstRecord: table.firstRecord[block]!,
      records: table.firstRecord[block + 1]! - table.firstRecord[block]!,
    };
    const found = both!.map((kernels) => {
      const plan = align(kernels.tables + TABLE_BYTES);
      const row = align(plan + format.compilePlan(kernels, plan, columns));
      const rows = align(row + ROW_HEADER_BYTES + columns.reduce((sum, { rowBytes }) => sum + rowBytes, 0));
      const raw = align(rows + place.records * 4);
      assert.ok(raw + length + 32 <= kernels.memory.buffer.byteLength, "the memory of this test is too small");
      // What lies behind the bytes must not matter.
      new Uint8Array(kernels.memory.buffer, raw, length + 32).fill(0xaa);
      new Uint8Array(kernels.memory.buffer, raw, length).set(bytes.subarray(offset, offset + length));
      new Uint32Array(kernels.memory.buffer, rows, place.records).fill(row);
      const request = { ...place, raw, rawBytes: length, rows, plan, shardKey: 1n, file, fileOffset: offset };
      let decoded: unknown;
      try {
        decoded = format.decode(kernels, { ...request, checkCrc });
      } catch (error) {
        coded(error);
        decoded = (error as AthanorError).message;
      }
      const { begin, end, faults } = format.survey(kernels, { ...request, restarts, row });
      faults.forEach(coded);
      return { decoded, begin, end, faults: [...faults].map(([i, { message }]) => [i, message]) };
    });
    assert.deepEqual(found[0], found[1], `block ${block}: kernels and twin`);
  }
}

function align(at: number): number {
  return Math.ceil(at / 64) * 64;
}
