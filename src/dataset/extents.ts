/**
 * Extents: what an index tells the order. One sample a record.
 *
 * @example
 * const view = await orderView(index, viewFingerprint(index.fingerprint, spec), 2 * 512 * 4);
 * const table = await extents(index, resolveOrder(view, options).extentBlocks);
 */
import { isStream } from "../formats/types.ts";
import type { ExtentTable, OrderView } from "../order/types.ts";
import { RUN_BLOCKS } from "./index-layout.ts";
import type { DatasetIndex, ShardRow } from "./types.ts";

/** Block tables that are read at a time. */
const CONCURRENT_TABLES = 32;

/**
 * Extents in file order. `extentBlocks`: 0 = whole shards; below 64 the block tables are read; from 64 on whole runs of
 * 64 are taken (rounded down) and only `shards.bin` is needed. An extent never crosses a shard, a stream is one extent, and
 * extents without samples are left out.
 */
export async function extents(index: DatasetIndex, extentBlocks: number): Promise<ExtentTable> {
  if (!Number.isSafeInteger(extentBlocks) || extentBlocks < 0) {
    throw new RangeError(`extentBlocks must be a whole number ≥ 0, got ${extentBlocks}`);
  }
  const table = new Builder();
  const { shards } = index;
  for (let from = 0; from < shards.length; from += CONCURRENT_TABLES) {
    const some = shards.slice(from, from + CONCURRENT_TABLES);
    const counts = await Promise.all(some.map((row, i) => samplesOfSteps(index, from + i, row, extentBlocks)));
    for (const [i, { step, samples }] of counts.entries()) {
      const { blocks } = some[i]!;
      for (const [k, count] of samples.entries()) {
        if (count > 0) table.add(from + i, k * step, Math.min(step, blocks - k * step), count);
      }
    }
  }
  return table.finish();
}

/** Samples of the shard's consecutive stretches of `step` blocks. */
async function samplesOfSteps(
  index: DatasetIndex,
  shard: number,
  row: ShardRow,
  extentBlocks: number,
): Promise<{ step: number; samples: number[] }> {
  if (extentBlocks === 0 || isStream(row.encoding) || extentBlocks >= row.blocks) {
    return { step: row.blocks, samples: [row.records] };
  }
  if (extentBlocks >= RUN_BLOCKS) {
    const runs = Math.floor(extentBlocks / RUN_BLOCKS);
    const samples: number[] = [];
    for (let run = 0; run < row.runRecords.length; run += runs) {
      samples.push(row.runRecords.subarray(run, run + runs).reduce((sum, records) => sum + records, 0));
    }
    return { step: runs * RUN_BLOCKS, samples };
  }
  const { firstRecord, blocks } = (await index.shardTable(shard)).table;
  const samples: number[] = [];
  for (let block = 0; block < blocks; block += extentBlocks) {
    samples.push(firstRecord[Math.min(block + extentBlocks, blocks)]! - firstRecord[block]!);
  }
  return { step: extentBlocks, samples };
}

class Builder {
  private readonly shard: number[] = [];
  private readonly firstBlock: number[] = [];
  private readonly blocks: number[] = [];
  private readonly sampleStart: number[] = [0];

  add(shard: number, firstBlock: number, blocks: number, samples: number): void {
    this.shard.push(shard);
    this.firstBlock.push(firstBlock);
    this.blocks.push(blocks);
    this.sampleStart.push(this.sampleStart.at(-1)! + samples);
  }

  finish(): ExtentTable {
    return {
      count: this.shard.length,
      shard: Uint32Array.from(this.shard),
      firstBlock: Uint32Array.from(this.firstBlock),
      blocks: Uint32Array.from(this.blocks),
      sampleStart: Float64Array.from(this.sampleStart),
    };
  }
}

/** What the order needs to know. `rowBytes`: Σ over delivered columns of max_length × 4. */
export function orderView(index: DatasetIndex, fingerprint: string, rowBytes: number): Promise<OrderView> {
  const asStream = (row: ShardRow): boolean => isStream(row.encoding) && row.records > 0;
  return Promise.resolve({
    fingerprint,
    samples: index.totals.records,
    bytes: index.totals.bytes,
    blocks: index.shards.reduce((sum, row) => sum + (asStream(row) ? 1 : row.blocks), 0),
    largestBlock: index.shards.reduce((most, row) => Math.max(most, row.largestBlock), 0),
    rowBytes,
    streams: index.shards.some(asStream),
  });
}
