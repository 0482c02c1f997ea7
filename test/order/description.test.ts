import assert from "node:assert/strict";
import { test } from "node:test";
import { describe, extentBytes } from "../../src/order/description.ts";

test("a description gives the totals, blocks and extents of its shards", () => {
  const shape = describe({
    groups: [
      { shards: 2, shard_bytes: 10 * 2 ** 20, records_per_shard: 1000 },
      { shards: 1, shard_bytes: 2 ** 20, record_bytes: 1024 },
    ],
    max_length: 128,
    columns: 3,
  });
  assert.deepEqual(
    { ...shape.view, fingerprint: "" },
    {
      fingerprint: "",
      samples: 3024,
      bytes: 21 * 2 ** 20,
      blocks: 7,
      largestBlock: 1024,
      rowBytes: 1536,
      streams: false,
    },
  );
  const two = shape.extents(2);
  assert.deepEqual([...two.shard], [0, 0, 1, 1, 2]);
  assert.deepEqual([...two.firstBlock], [0, 2, 0, 2, 0]);
  assert.deepEqual([...two.blocks], [2, 1, 2, 1, 1]);
  assert.deepEqual([...two.sampleStart], [0, 800, 1000, 1800, 2000, 3024]);
  assert.deepEqual(
    [...extentBytes(two, shape.shardBytes, shape.isStream)],
    [8, 2, 8, 2, 1].map((m) => m * 2 ** 20),
  );
  assert.equal(shape.extents(0).count, 3);
});

test("streams are one block and one extent each", () => {
  const shape = describe([{ shards: 3, shard_bytes: 2 ** 26, records_per_shard: 500, stream: true, max_length: 4 }]);
  assert.equal(shape.view.streams, true);
  assert.equal(shape.view.blocks, 3);
  assert.equal(shape.view.largestBlock, 500);
  assert.equal(shape.view.rowBytes, 32);
  assert.equal(shape.extents(1).count, 3);
});

test("what cannot be planned is refused by field", () => {
  const cases: [unknown, RegExp][] = [
    [null, /description/],
    [[], /groups/],
    [{ shards: 1 }, /groups\.0\.shard_bytes/],
    [{ shards: 0, shard_bytes: 1, record_bytes: 1 }, /groups\.0\.shards/],
    [{ shards: 1, shard_bytes: 100 }, /one of records_per_shard and record_bytes/],
    [{ shards: 1, shard_bytes: 100, record_bytes: 1, records_per_shard: 1 }, /one of/],
    [{ shards: 1, shard_bytes: 100, record_bytes: 101 }, /holds no record/],
    [{ shards: 1e9, shard_bytes: 100, record_bytes: 1 }, /at most 16000000/],
    [{ shards: 1, shard_bytes: 100, record_bytes: 1, shard_byte: 1 }, /shard_byte/],
    [{ shards: 1e6, shard_bytes: 1e15, records_per_shard: 1e15 }, /2\^53/],
  ];
  for (const [input, message] of cases)
    assert.throws(() => describe(input), { code: "ATH_DESCRIPTION_INVALID", message });
  assert.throws(() => describe({ shards: 1, shard_bytes: 2 ** 50, record_bytes: 1000 }).extents(1), {
    code: "ATH_DESCRIPTION_INVALID",
  });
});
