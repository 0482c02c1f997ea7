/**
 * Index load: how long a set of a million blocks (4 TB of TFRecord) takes from its path to its order, in a process that is new, as an
 * agent is. The index is the writer's own: block tables and all; the shards themselves are files of 0 bytes, since none is opened.
 *
 * @example
 * await makeLargeIndex(folder, 1_000_000);
 * const { wall, cpu } = await timeLoad(folder);
 */
import { execFile } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { extents } from "../dataset/extents.ts";
import { dataFingerprint } from "../dataset/fingerprint.ts";
import { INDEX_VERSION } from "../dataset/index-layout.ts";
import { openIndex } from "../dataset/index-read.ts";
import { IndexWriter } from "../dataset/index-write.ts";
import { totalsOf } from "../dataset/past.ts";
import { runsOf } from "../dataset/shard-scan.ts";
import type { ShardRow } from "../dataset/types.ts";
import { viewOf } from "../feed/order-view.ts";
import { BLOCK_BYTES, RESTART_EVERY, type BlockTable, type Schema } from "../formats/types.ts";
import { Order } from "../order/order.ts";
import { resolveOrder } from "../order/resolve.ts";
import { createPosixStorage } from "../storage/posix.ts";

export interface Loaded {
  blocks: number;
  /** Seconds from the path to the order. */
  wall: number;
  cpu: number;
}

const SHARD_BLOCKS = 1000;
/** Of 512 ids and a mask, as in the data of the other parts. */
const RECORD_BYTES = 1340;
const RECORDS = Math.floor(BLOCK_BYTES / RECORD_BYTES);
const WIDTH = 512;
/** Each write waits for the disk. */
const CONCURRENT_WRITES = 16;

/** An index of `blocks` blocks in shards of up to 4 GB, and their names. `folder` is there and empty. */
export async function makeLargeIndex(folder: string, blocks: number): Promise<void> {
  const writer = new IndexWriter(join(folder, ".athanor"), folder);
  await writer.prepare();
  const schema = schemaOf(blocks * RECORDS);
  const full = tableOf(SHARD_BLOCKS);
  const shards = Array.from({ length: Math.ceil(blocks / SHARD_BLOCKS) }, (_, shard): [ShardRow, BlockTable] => {
    const left = blocks - shard * SHARD_BLOCKS;
    const table = left >= SHARD_BLOCKS ? full : tableOf(left);
    const records = table.blocks * RECORDS;
    const row = {
      path: `${String(shard).padStart(6, "0")}.tfrecord`,
      size: table.blocks * BLOCK_BYTES,
      mtimeNs: BigInt(shard),
      records,
      tokens: records * WIDTH,
      crc32c: shard,
      encoding: "plain" as const,
      blocks: table.blocks,
      ...runsOf(table),
    };
    return [row, table];
  });
  for (let from = 0; from < shards.length; from += CONCURRENT_WRITES) {
    const some = shards.slice(from, from + CONCURRENT_WRITES).map(async ([{ path, size, crc32c }, table]) => {
      await writeFile(join(folder, path), "");
      await writer.writeTable({ path, size, crc32c, schema, table });
    });
    await Promise.all(some);
  }
  const rows = shards.map(([row]) => row);
  const [fingerprint, totals] = [dataFingerprint(rows), totalsOf(rows)];
  await writer.publish({ version: INDEX_VERSION, format: "tfrecord", fingerprint, totals, schema, ignored: [] }, rows);
}

function schemaOf(records: number): Schema {
  const field = {
    kind: "int64" as const,
    present: records,
    minLength: WIDTH,
    maxLength: WIDTH,
    values: records * WIDTH,
  };
  return {
    fields: [
      { ...field, name: "attention_mask", prefixMask: true, min: "0", max: "1" },
      { ...field, name: "input_ids", prefixMask: false, min: "0", max: "102399" },
    ],
  };
}

function tableOf(blocks: number): BlockTable {
  const restarts = Math.ceil(RECORDS / RESTART_EVERY);
  const counted = (each: number): Uint32Array => Uint32Array.from({ length: blocks + 1 }, (_, b) => b * each);
  return {
    stream: false,
    blocks,
    firstRecord: Float64Array.from(counted(RECORDS)),
    tokens: new Float64Array(blocks).fill(RECORDS * WIDTH),
    segmentStart: counted(1),
    segmentFile: new Uint32Array(blocks),
    segmentField: new Uint32Array(blocks),
    segmentOffset: Float64Array.from({ length: blocks }, (_, b) => b * BLOCK_BYTES),
    segmentLength: new Float64Array(blocks).fill(BLOCK_BYTES),
    restartStart: counted(restarts),
    restarts: Uint32Array.from({ length: blocks * restarts }, (_, i) => (i % restarts) * RESTART_EVERY * RECORD_BYTES),
  };
}

/** In a new process, whose own start is left out. */
export async function timeLoad(folder: string): Promise<Loaded> {
  const script = fileURLToPath(new URL("./index-load-process.js", import.meta.url));
  const { stdout } = await promisify(execFile)(process.execPath, [script, folder]);
  return JSON.parse(stdout) as Loaded;
}

/** What an agent does until it knows what to read. */
export async function load(folder: string): Promise<Loaded> {
  const storage = createPosixStorage();
  try {
    const [wall, cpu] = [performance.now(), process.cpuUsage()];
    const index = await openIndex(folder, { storage });
    if (index === undefined) throw new Error(`no index in ${folder}`);
    const request = { columns: undefined, maxLength: WIDTH, padId: 0, strict: false };
    const { view, index: samples } = await viewOf(index, request, storage);
    const resolved = resolveOrder(view, { seed: 1n, globalBatch: 256 });
    const order = Order.single(view, await extents(samples, resolved.extentBlocks), resolved);
    order.locate(0);
    const used = process.cpuUsage(cpu);
    const seconds = (performance.now() - wall) / 1000;
    return { blocks: view.blocks, wall: seconds, cpu: (used.user + used.system) / 1e6 };
  } finally {
    await storage.close();
  }
}
