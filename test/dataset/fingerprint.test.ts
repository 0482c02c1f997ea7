import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import { dataFingerprint, viewFingerprint } from "../../src/dataset/fingerprint.ts";

const half = (text: string): string => createHash("sha256").update(text).digest("hex").slice(0, 32);

test("the data fingerprint is the hash of the documented lines", () => {
  const shards = [
    { path: "a", size: 10, records: 2, crc32c: 4294967295 },
    { path: "b/é", size: 0, records: 0, crc32c: 0 },
  ];
  assert.equal(dataFingerprint(shards), half("a\u000010\u00002\u00004294967295\nb/é\u00000\u00000\u00000\n"));
  assert.notEqual(dataFingerprint(shards), dataFingerprint([{ ...shards[0]!, crc32c: 1 }, shards[1]!]));
});

test("the view fingerprint is the hash over the data fingerprint and canonical JSON, whatever the order of members", () => {
  const spec = { tokenizer: null, sample_rule: "record", max_length: 512, columns: ["b", "a"] };
  assert.equal(
    viewFingerprint("00ff", spec),
    half('00ff\0{"columns":["b","a"],"max_length":512,"sample_rule":"record","tokenizer":null}\n'),
  );
  assert.notEqual(viewFingerprint("00ff", spec), viewFingerprint("00ff", { ...spec, columns: ["a", "b"] }));
});
