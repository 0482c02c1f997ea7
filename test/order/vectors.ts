/** The committed vectors of the order (written by python/tests/order_vectors.py), and small views for tests. */
import { readFileSync } from "node:fs";
import type { ExtentTable, LastRule, OrderView, ResolvedOrder, ShuffleMode } from "../../src/order/types.ts";

interface VectorOptions {
  seed: string;
  shuffle: ShuffleMode;
  lanes: number;
  window: number;
  last: LastRule;
  global_batch: number;
  from: number;
}

export interface Vectors {
  mix: { fields: string[]; value: string }[];
  permutation: { prefix: string[]; n: number; perm: number[] }[];
  feistel: { seed: string; source: number; epoch: number; n: number; out: number[] }[];
  order: {
    options: VectorOptions;
    extents: number[];
    samples: number[];
    begin: number[];
    epochOf: [number, number][];
    steps: { start: number; step: number; world: number; ranks: [number[], number][] }[];
  }[];
  resolve: {
    view: { samples: number; bytes: number; blocks: number; largest_block: number; row_bytes: number };
    options: {
      shuffle?: ShuffleMode;
      shuffle_memory?: number;
      lanes?: number;
      window?: number;
      unit?: "extent" | "shard";
    };
    resolved: { shuffle: ShuffleMode; held: boolean; lanes: number; extent: number; window: number };
  }[];
  shardKey: { source: string; path: string; key: string }[];
  rowHash: { row: [string, string, string, string]; hash: string }[];
}

/** Compiled tests run from dist/test/order. */
export function vectors(): Vectors {
  return JSON.parse(readFileSync(new URL("../../../test/fixtures/order-v1.json", import.meta.url), "utf8")) as Vectors;
}

/** Extents of the given sample counts, one block each, one shard for each pair of them. */
export function extentsOf(counts: readonly number[]): ExtentTable {
  const table: ExtentTable = {
    count: counts.length,
    shard: Uint32Array.from(counts, (_, x) => x >> 1),
    firstBlock: Uint32Array.from(counts, (_, x) => x & 1),
    blocks: new Uint32Array(counts.length).fill(1),
    sampleStart: new Float64Array(counts.length + 1),
  };
  for (const [x, count] of counts.entries()) table.sampleStart[x + 1] = table.sampleStart[x]! + count;
  return table;
}

export function viewOf(counts: readonly number[]): OrderView {
  const samples = counts.reduce((a, b) => a + b, 0);
  return {
    fingerprint: "0123456789abcdef0123456789abcdef",
    samples,
    bytes: samples * 100,
    blocks: counts.length,
    largestBlock: Math.max(...counts),
    rowBytes: 4096,
  };
}

export function resolvedOf(options: VectorOptions): ResolvedOrder {
  return {
    seed: BigInt(options.seed),
    shuffle: options.shuffle,
    held: false,
    lanes: options.lanes,
    window: options.window,
    extentBlocks: 1,
    last: options.last,
    globalBatch: options.global_batch,
    from: options.from,
  };
}
