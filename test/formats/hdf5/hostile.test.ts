// Damaged HDF5 files give values or coded errors: no trap of the library comes through, no circle, no wild memory.
import assert from "node:assert/strict";
import { test } from "node:test";
import { hdf5 } from "../../../src/formats/hdf5/format.ts";
import { hostile } from "../hostile.ts";
import { hostileShards } from "./samples.ts";

test("300 damaged files are read or refused", { timeout: 1_800_000 }, async () => {
  const report = await hostile(hdf5, hostileShards(), 300, { seed: 5 });
  assert.equal(report.read + report.refused, 300);
  assert.ok(report.read > 10 && (report.codes["ATH_SHARD_INVALID"] ?? 0) > 10, JSON.stringify(report));
});
