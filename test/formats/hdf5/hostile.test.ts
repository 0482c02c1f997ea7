// Damaged HDF5 files give values or coded errors: no trap of the library comes through, no hang, no wild memory.
import assert from "node:assert/strict";
import { test } from "node:test";
import { hdf5 } from "../../../src/formats/hdf5/format.ts";
import { hostile } from "../hostile.ts";
import { hdf5Shard } from "./shards.ts";

const MUTATIONS = Number(process.env["ATHANOR_HOSTILE"] ?? 300);

test("damaged HDF5 files are read or refused", { timeout: 3_600_000 }, async () => {
  const shards = ["numbers.h5", "text.h5", "plugins.h5", "flipped.h5"].map((name) => hdf5Shard(name));
  const report = await hostile(hdf5, shards, MUTATIONS, { seed: Number(process.env["ATHANOR_SEED"] ?? 1) });
  assert.equal(report.read + report.refused, MUTATIONS);
  assert.ok(report.read > 10 && report.refused > 10, JSON.stringify(report));
  console.log(JSON.stringify(report));
});
