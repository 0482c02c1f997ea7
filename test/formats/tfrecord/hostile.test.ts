// Damaged TFRecord shards give records or coded errors, the same from the kernels and from their twin.
import assert from "node:assert/strict";
import { test } from "node:test";
import { tfrecord } from "../../../src/formats/tfrecord/format.ts";
import { hostile } from "../hostile.ts";
import { hostileShards } from "./samples.ts";

test("300 damaged shards are read or refused", async () => {
  const report = await hostile(tfrecord, hostileShards(), 300, { seed: 5 });
  assert.equal(report.read + report.refused, 300);
  for (const code of ["ATH_RECORD_MALFORMED", "ATH_RECORD_CRC", "ATH_RECORD_TRUNCATED"])
    assert.ok((report.codes[code] ?? 0) > 10, JSON.stringify(report));
});
