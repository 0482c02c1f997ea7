/**
 * Description: a data set in a few numbers, enough for the order and for `athanor plan` without any data.
 *
 *   {"shards": 1000, "shard_bytes": 1073741824, "record_bytes": 1340, "max_length": 512, "columns": 2}
 *   {"groups": [{"shards": …, "shard_bytes": …, "records_per_shard": …}, …], "max_length": …, "columns": …}
 *   [{"shards": …, …}, …]
 *
 * Memory: 20 bytes an extent and 8 a shard (a set of 1 PiB has 4 M extents), in typed arrays.
 *
 * @example
 * const shape = describe(JSON.parse(text));
 * const resolved = resolveOrder(shape.view, { seed: 0n, globalBatch: 1024 });
 * const extents = shape.extents(resolved.extentBlocks);
 */
import * as z from "zod";
import { DescriptionInvalid } from "./errors.ts";
import type { ExtentTable, OrderView } from "./types.ts";

/** Blocks of the byte grid (design §4.2). */
export const BLOCK_BYTES = 4 * 1024 * 1024;
const MAX_SHARDS = 16_000_000;
const MAX_EXTENTS = 32_000_000;

/** Shards of equal size. */
export interface ShardGroup {
  shards: number;
  shardBytes: number;
  records: number;
  /** gzip or zlib: one extent a shard. */
  stream: boolean;
}

/** What a plan needs to know of a data set. */
export interface DataShape {
  view: OrderView;
  shards: number;
  /** Bytes of one record as stored, mean. */
  recordBytes: number;
  extents(extentBlocks: number): ExtentTable;
  /** Stored bytes of one shard. */
  shardBytes(shard: number): number;
  isStream(shard: number): boolean;
}

const whole = z.number().int().min(1).max(Number.MAX_SAFE_INTEGER);
const GroupSchema = z.strictObject({
  shards: whole,
  shard_bytes: whole,
  records_per_shard: whole.optional(),
  record_bytes: z.number().min(1).optional(),
  stream: z.boolean().optional(),
  max_length: whole.optional(),
  columns: whole.optional(),
});
const ListSchema = z.strictObject({
  groups: z.array(GroupSchema).min(1),
  max_length: whole.optional(),
  columns: whole.optional(),
});

/** Parses a description. Throws ATH_DESCRIPTION_INVALID naming the field. `overrides` win over its own values. */
export function describe(
  input: unknown,
  overrides: { maxLength?: number; columns?: number } = {},
  file?: string,
): DataShape {
  const where = file === undefined ? {} : { file };
  const fail = (what: string): never => {
    throw new DescriptionInvalid(
      `description ${what}`,
      where,
      'write {"shards": 1000, "shard_bytes": 1073741824, "record_bytes": 1340, "max_length": 512, "columns": 2}, or a list of such groups',
    );
  };
  const wrapped = Array.isArray(input)
    ? { groups: input }
    : typeof input === "object" && input !== null && "groups" in input
      ? input
      : { groups: [input] };
  const parsed = ListSchema.safeParse(wrapped);
  if (!parsed.success) {
    const issue = parsed.error.issues[0]!;
    return fail(`field ${issue.path.join(".") || "(top)"}: ${issue.message}`);
  }
  const { groups, max_length, columns } = parsed.data;
  const first = groups[0]!;
  const maxLength = overrides.maxLength ?? max_length ?? first.max_length ?? 512;
  const width = overrides.columns ?? columns ?? first.columns ?? 2;
  const list = groups.map((group, i): ShardGroup => {
    const { records_per_shard, record_bytes } = group;
    if ((records_per_shard === undefined) === (record_bytes === undefined)) {
      fail(`group ${i} must have one of records_per_shard and record_bytes`);
    }
    const records = records_per_shard ?? Math.floor(group.shard_bytes / record_bytes!);
    if (records < 1) fail(`group ${i}: a shard of ${group.shard_bytes} bytes holds no record of ${record_bytes} bytes`);
    return { shards: group.shards, shardBytes: group.shard_bytes, records, stream: group.stream ?? false };
  });
  const shape = shapeOf(list, maxLength * width * 4);
  if (shape.shards > MAX_SHARDS) fail(`has ${shape.shards} shards, at most ${MAX_SHARDS} can be planned`);
  if (!Number.isSafeInteger(shape.view.samples) || !Number.isSafeInteger(shape.view.bytes))
    fail("is larger than 2^53 records or bytes");
  return shape;
}

/** The shape of groups of shards. `rowBytes`: nominal bytes of a delivered row. */
export function shapeOf(groups: readonly ShardGroup[], rowBytes: number): DataShape {
  let shards = 0;
  let samples = 0;
  let bytes = 0;
  let blocks = 0;
  let largestBlock = 0;
  for (const group of groups) {
    const inShard = group.stream ? 1 : Math.ceil(group.shardBytes / BLOCK_BYTES);
    shards += group.shards;
    samples += group.shards * group.records;
    bytes += group.shards * group.shardBytes;
    blocks += group.shards * inShard;
    largestBlock = Math.max(largestBlock, group.stream ? group.records : recordsBefore(group, 1));
  }
  const streams = groups.some((group) => group.stream);
  return {
    view: { fingerprint: "0".repeat(32), samples, bytes, blocks, largestBlock, rowBytes, streams },
    shards,
    recordBytes: bytes / samples,
    extents: (extentBlocks) => extentsOf(groups, extentBlocks),
    shardBytes: (shard) => groupOf(groups, shard).shardBytes,
    isStream: (shard) => groupOf(groups, shard).stream,
  };
}

function groupOf(groups: readonly ShardGroup[], shard: number): ShardGroup {
  let left = shard;
  for (const group of groups) {
    if (left < group.shards) return group;
    left -= group.shards;
  }
  throw new RangeError(`there is no shard ${shard}`);
}

/** Records of a shard that begin before block b of the grid. */
function recordsBefore({ shardBytes, records }: ShardGroup, block: number): number {
  return Math.min(Math.ceil((block * BLOCK_BYTES * records) / shardBytes), records);
}

function extentsOf(groups: readonly ShardGroup[], extentBlocks: number): ExtentTable {
  const inShard = groups.map((group) => {
    const blocks = group.stream ? 1 : Math.ceil(group.shardBytes / BLOCK_BYTES);
    return { blocks, extents: extentBlocks === 0 ? 1 : Math.ceil(blocks / extentBlocks) };
  });
  const count = groups.reduce((sum, group, g) => sum + group.shards * inShard[g]!.extents, 0);
  if (count > MAX_EXTENTS) {
    throw new DescriptionInvalid(
      `description gives ${count} extents, at most ${MAX_EXTENTS} can be planned`,
      {},
      "describe larger shards",
    );
  }
  const table: ExtentTable = {
    count,
    shard: new Uint32Array(count),
    firstBlock: new Uint32Array(count),
    blocks: new Uint32Array(count),
    sampleStart: new Float64Array(count + 1),
  };
  let x = 0;
  let shard = 0;
  let sample = 0;
  for (const [g, group] of groups.entries()) {
    const { blocks, extents } = inShard[g]!;
    const step = extentBlocks === 0 ? blocks : extentBlocks;
    const before = Array.from({ length: extents }, (_, k) => (group.stream ? 0 : recordsBefore(group, k * step)));
    for (let s = 0; s < group.shards; s++, shard++) {
      for (let k = 0; k < extents; k++, x++) {
        table.shard[x] = shard;
        table.firstBlock[x] = k * step;
        table.blocks[x] = Math.min(step, blocks - k * step);
        table.sampleStart[x] = sample + before[k]!;
      }
      sample += group.records;
    }
  }
  table.sampleStart[count] = sample;
  return table;
}

/** Stored bytes of each extent: its blocks of the grid, cut at the shard's end; of a stream, the whole shard. */
export function extentBytes(
  extents: ExtentTable,
  shardBytes: (shard: number) => number,
  stream: (shard: number) => boolean,
): Float64Array {
  const result = new Float64Array(extents.count);
  for (let x = 0; x < extents.count; x++) {
    const shard = extents.shard[x]!;
    const size = shardBytes(shard);
    const first = extents.firstBlock[x]! * BLOCK_BYTES;
    const last = first + extents.blocks[x]! * BLOCK_BYTES;
    result[x] = stream(shard) ? size : Math.max(Math.min(last, size) - first, 0);
  }
  return result;
}

/** Bytes of a row in a window when all values take 4 bytes: a header of 32, the columns, rounded up to 64. */
export function storedRowBytes(rowBytes: number): number {
  return Math.ceil((32 + rowBytes) / 64) * 64;
}
