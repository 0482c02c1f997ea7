import assert from "node:assert/strict";
import { test } from "node:test";
import { billOf } from "../../src/order/bill.ts";
import type { BillData } from "../../src/order/bill.ts";

const MIB = 1 << 20;
const DATA: BillData = {
  shards: 10,
  ofNode: 10,
  visits: 10,
  reads: 17,
  bytes: 134 * MIB,
  samples: 100_000,
  recordBytes: 1340,
  held: false,
  handles: 1024,
};

test("a small set: each shard and table once, then nothing but reads", () => {
  const { firstEpoch, laterEpochs, metadataPerThousand, readsPerThousand, random } = billOf(DATA);
  assert.deepEqual(
    [firstEpoch.opens, firstEpoch.tables, firstEpoch.metadata, firstEpoch.stats, firstEpoch.reads],
    [10, 10, 40, 37, 17],
  );
  assert.equal(firstEpoch.readBytes, (134 * MIB) / 17);
  assert.deepEqual([laterEpochs.opens, laterEpochs.metadata, laterEpochs.reads], [0, 0, 17]);
  assert.equal(metadataPerThousand, 0);
  assert.ok(Math.abs(readsPerThousand - 0.17) < 1e-9);
  assert.equal(random.reads, 100_000);
  assert.equal(Math.round(random.timesTheReads), 5882);
});

test("random access by the rules that a running file system showed", () => {
  // Rows of 2 KiB: one page each, twice the bytes; 1000 reads for 1000 samples.
  const rows = billOf({ ...DATA, samples: 1000, recordBytes: 2048, bytes: 2048_000, reads: 1 });
  assert.deepEqual([rows.random.reads, rows.random.readBytes, rows.random.bytes], [1000, 4096, 4_096_000]);
  // 2,568 bytes anywhere: 1.63 pages, 2.6 times the bytes (2.52 seen, where neighbours share pages).
  const odd = billOf({ ...DATA, samples: 1000, recordBytes: 2568 });
  assert.ok(Math.abs(odd.random.bytes / (1000 * 2568) - 2.6) < 0.02);
  // Large ones go in several requests.
  assert.equal(billOf({ ...DATA, samples: 100, recordBytes: 9 * MIB }).random.reads, 300);
});

test("more shards than stay open: an extent opens its shard again", () => {
  const many = { ...DATA, shards: 4096, ofNode: 4096, visits: 16_384, reads: 100_000 };
  const { firstEpoch, laterEpochs } = billOf(many);
  assert.equal(laterEpochs.opens, 16_384 * 0.75);
  assert.equal(laterEpochs.metadata, 2 * laterEpochs.opens);
  assert.equal(firstEpoch.opens, 4096 + (16_384 - 4096) * (1 - 512 / 4096));
  assert.equal(firstEpoch.tables, 4096);
  // Whole shards are opened once, and by a node of eight an eighth.
  const node = billOf({ ...many, ofNode: 512, visits: 512 });
  assert.equal(node.firstEpoch.opens, 512);
  assert.equal(node.laterEpochs.opens, 384);
});

test("rows that are held cost nothing again", () => {
  const { firstEpoch, laterEpochs } = billOf({ ...DATA, held: true });
  assert.equal(firstEpoch.reads, 17);
  assert.deepEqual([laterEpochs.metadata, laterEpochs.reads, laterEpochs.bytes, laterEpochs.stats], [0, 0, 0, 0]);
});
