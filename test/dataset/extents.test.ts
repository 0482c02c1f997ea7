import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { extents, orderView } from "../../src/dataset/extents.ts";
import type { DatasetIndex, ShardRow } from "../../src/dataset/types.ts";
import type { BlockTable } from "../../src/formats/types.ts";

/** An index over shards given by the record counts of their blocks. `asked`: shards whose block table was read. */
function indexOf(
  shards: readonly { counts: readonly number[]; stream?: boolean }[],
  asked: number[] = [],
): DatasetIndex {
  const rows = shards.map(({ counts, stream }, i): ShardRow => {
    const runs = Math.ceil(counts.length / 64);
    const runRecords = Float64Array.from({ length: runs }, (_, run) => sum(counts.slice(run * 64, run * 64 + 64)));
    return {
      path: `${i}`,
      size: counts.length * 4096,
      mtimeNs: 0n,
      records: sum(counts),
      tokens: 0,
      crc32c: 0,
      encoding: stream === true ? "gzip" : "plain",
      blocks: counts.length,
      largestBlock: Math.max(0, ...counts),
      runRecords,
      runTokens: new Float64Array(runs),
    };
  });
  const table = (counts: readonly number[]): BlockTable => {
    const firstRecord = new Float64Array(counts.length + 1);
    for (const [i, count] of counts.entries()) firstRecord[i + 1] = firstRecord[i]! + count;
    const none = { f: new Float64Array(), u: new Uint32Array() };
    return {
      stream: false,
      blocks: counts.length,
      firstRecord,
      tokens: none.f,
      segmentStart: none.u,
      segmentFile: none.u,
      segmentOffset: none.f,
      segmentLength: none.f,
      segmentField: none.u,
      restartStart: none.u,
      restarts: none.u,
    };
  };
  const total = (of: (row: ShardRow) => number): number => sum(rows.map(of));
  return {
    root: "/",
    format: "tfrecord",
    shards: rows,
    ignored: [],
    schema: { fields: [] },
    fingerprint: "0",
    past: [],
    totals: {
      shards: rows.length,
      bytes: total((r) => r.size),
      records: total((r) => r.records),
      tokens: 0,
      blocks: total((r) => r.blocks),
    },
    shardTable(shard) {
      asked.push(shard);
      return Promise.resolve({ schema: { fields: [] }, table: table(shards[shard]!.counts) });
    },
  };
}

const sum = (values: readonly number[]): number => values.reduce((a, b) => a + b, 0);

test("extents below 64 blocks come from block tables, larger ones from runs without reading a table", async () => {
  const asked: number[] = [];
  const counts = Array.from({ length: 130 }, (_, i) => i + 1);
  const index = indexOf([{ counts }, { counts: [] }, { counts: [5] }], asked);
  const small = await extents(index, 50);
  assert.deepEqual([...small.blocks], [50, 50, 30, 1]);
  assert.deepEqual([...small.shard], [0, 0, 0, 2]);
  assert.deepEqual([...small.firstBlock], [0, 50, 100, 0]);
  assert.equal(small.sampleStart[1], sum(counts.slice(0, 50)));
  assert.deepEqual(asked, [0]);
  asked.length = 0;
  // 100 is rounded down to one run.
  const large = await extents(index, 100);
  assert.deepEqual([...large.blocks], [64, 64, 2, 1]);
  assert.equal(large.sampleStart[2], sum(counts.slice(0, 128)));
  assert.deepEqual([...(await extents(index, 0)).blocks], [130, 1]);
  assert.deepEqual(asked, []);
});

test("a stream is one extent and counts as one block", async () => {
  const index = indexOf([{ counts: [3, 4, 5], stream: true }, { counts: [1, 1] }, { counts: [], stream: true }]);
  assert.deepEqual([...(await extents(index, 1)).blocks], [3, 1, 1]);
  const view = await orderView(index, "f", 8);
  assert.deepEqual(view, {
    fingerprint: "f",
    samples: 14,
    bytes: 5 * 4096,
    blocks: 3,
    largestBlock: 5,
    rowBytes: 8,
    streams: true,
  });
});

test("extents cover every sample once, in file order, and never cross a shard", async () => {
  const shape = fc.array(
    fc.record({ counts: fc.array(fc.integer({ min: 0, max: 9 }), { maxLength: 200 }), stream: fc.boolean() }),
    { maxLength: 8 },
  );
  await fc.assert(
    fc.asyncProperty(shape, fc.integer({ min: 0, max: 300 }), async (shards, size) => {
      const index = indexOf(shards);
      const table = await extents(index, size);
      assert.equal(table.sampleStart.length, table.count + 1);
      assert.equal(table.sampleStart[table.count], index.totals.records);
      let covered = 0;
      for (let x = 0; x < table.count; x++) {
        const counts = shards[table.shard[x]!]!.counts;
        const first = table.firstBlock[x]!;
        const blocks = table.blocks[x]!;
        assert.ok(first + blocks <= counts.length);
        const samples = sum(counts.slice(first, first + blocks));
        assert.ok(samples > 0);
        assert.equal(table.sampleStart[x + 1]! - table.sampleStart[x]!, samples);
        covered += samples;
        if (x > 0) {
          const later =
            table.shard[x]! > table.shard[x - 1]! || first >= table.firstBlock[x - 1]! + table.blocks[x - 1]!;
          assert.ok(later);
        }
      }
      assert.equal(covered, index.totals.records);
    }),
    { numRuns: 100 },
  );
});
