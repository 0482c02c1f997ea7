import assert from "node:assert/strict";
import { test } from "node:test";
import {
  formatCount,
  formatDuration,
  formatNumber,
  formatSize,
  parseDuration,
  parseSize,
} from "../../src/base/units.ts";

test("sizes", () => {
  assert.equal(parseSize("64MiB"), 64 * 2 ** 20);
  assert.equal(parseSize("64 m"), 64 * 2 ** 20);
  assert.equal(parseSize("1.5GB"), 1.5e9);
  assert.equal(parseSize("4096"), 4096);
  for (const bad of ["", "MiB", "-1", "1 apple", "1e999", "0x10", "1.2.3"]) {
    assert.throws(() => parseSize(bad, "memory"), { code: "ATH_USAGE", message: /memory must be a size/ });
  }
  assert.deepEqual([0, 1023, 1024, 64 * 2 ** 20, 1.5 * 2 ** 30].map(formatSize), [
    "0B",
    "1023B",
    "1KiB",
    "64MiB",
    "1.5GiB",
  ]);
});

test("durations in seconds", () => {
  assert.deepEqual(
    ["30s", "200ms", "5min", "2h", "10"].map((text) => parseDuration(text)),
    [30, 0.2, 300, 7200, 10],
  );
  assert.throws(() => parseDuration("soon"), { code: "ATH_USAGE" });
  assert.deepEqual([0, 0.00002, 0.2, 30, 120, 7200, 172800].map(formatDuration), [
    "0s",
    "20us",
    "200ms",
    "30s",
    "2min",
    "2h",
    "2d",
  ]);
});

test("counts", () => {
  assert.deepEqual([0, 999, 1000, 1234567].map(formatCount), ["0", "999", "1 000", "1 234 567"]);
  assert.deepEqual(
    [formatNumber(1, "shard"), formatNumber(0, "shard"), formatNumber(2000, "batch")],
    ["1 shard", "0 shards", "2 000 batches"],
  );
});
