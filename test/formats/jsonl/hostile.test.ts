// Damaged JSON files give values or coded errors.
import assert from "node:assert/strict";
import { test } from "node:test";
import { jsonl } from "../../../src/formats/jsonl/format.ts";
import { hostile } from "../hostile.ts";
import { hostileShards } from "./samples.ts";

test("300 damaged files are read or refused", async () => {
  const report = await hostile(jsonl, hostileShards(), 300, { seed: 5 });
  assert.equal(report.read + report.refused, 300);
  assert.ok((report.codes["ATH_RECORD_MALFORMED"] ?? 0) > 50, JSON.stringify(report));
});
