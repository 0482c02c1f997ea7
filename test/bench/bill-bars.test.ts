import assert from "node:assert/strict";
import { test } from "node:test";
import { billBars } from "../../src/bench/bill-bars.ts";
import type { Cost } from "../../src/bench/bill-meter.ts";

const cost = (reads: number, bytes: number, metadata: number): Cost => ({
  reads,
  bytes,
  metadata,
  operations: undefined,
  otherMetadata: undefined,
  indexReads: undefined,
  indexBytes: undefined,
  onePage: undefined,
  faults: undefined,
  diskBytes: undefined,
  unsure: [],
});
const set = (shards: number, bytes: number) => ({ bytes, samples: 1_000_000, shards: Array.from({ length: shards }) });
const MIB = 2 ** 20;

test("held to requests a 1000 samples of 2 KB whatever a sample is, bytes, and operations a shard", () => {
  // 1,000,000 samples of 4,096 bytes are 2,000 thousands of 2 KB.
  const row = {
    samples: 1_000_000,
    needed: 4_096_000_000,
    start: cost(9, 9, 900),
    run: cost(1900, 4_100_000_000, 61),
    end: cost(0, 0, 60),
  };
  const counted = billBars(set(60, 4_096_000_000), "client counters", row);
  assert.deepEqual(
    counted.map(({ value, met }) => [Number(value.toFixed(4)), met]),
    [
      [0.95, true],
      [1.001, true],
      [2.0167, false],
    ],
  );
  // By calls those of the shards alone are known, so the start counts too.
  assert.equal(billBars(set(60, 4_096_000_000), "system calls", row)[2]!.value, 1021 / 60);
  const worse = { ...row, run: cost(2001, 4_178_000_000, 0) };
  assert.deepEqual(
    billBars(set(60, 4_096_000_000), "client counters", worse).map(({ met }) => met),
    [false, false, true],
  );
});

test("a part of an epoch is held to its part of the shards; small shards and /proc to nothing", () => {
  const row = { samples: 100_000, needed: 4.096e8, start: cost(0, 0, 0), run: cost(1, 1, 12), end: cost(0, 0, 0) };
  assert.equal(billBars(set(60, 4.096e9), "client counters", row)[2]!.value, 2);
  assert.deepEqual(billBars(set(100, 64 * 100 * MIB - 1), "client counters", row), []);
  assert.deepEqual(billBars(set(60, 4.096e9), "/proc", row), []);
});

test("where not one read was seen nothing is met", () => {
  const row = { samples: 100_000, needed: 4.096e8, start: cost(0, 0, 0), run: cost(0, 0, 0), end: cost(0, 0, 0) };
  assert.deepEqual(billBars(set(60, 4.096e9), "system calls", row), []);
});
