import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import { buildIndex } from "../../src/dataset/index-build.ts";
import { countSeconds, textBytes } from "../../src/feed/count-estimate.ts";
import { createPosixStorage } from "../../src/storage/posix.ts";
import { shard } from "../dataset/shards.ts";

test("a compressed set was said to take a fifth of the time: what counts is its text", async () => {
  const folder = mkdtempSync(join(tmpdir(), "athanor-estimate-"));
  const storage = createPosixStorage();
  try {
    const texts = Array.from({ length: 500 }, (_, i) => `${"some words ".repeat(100)}${i}`);
    const bytes = texts.reduce((sum, text) => sum + text.length, 0);
    const lines = texts.map((text) => `${JSON.stringify({ text, source: "not counted" })}\n`).join("");
    const records = shard(texts.map((text) => ({ text })));
    const files: [string, Uint8Array][] = [
      ["a.jsonl", Buffer.from(lines)],
      ["a.jsonl.gz", gzipSync(lines)],
      ["a.tfrecord", records],
      ["a.tfrecord.gz", gzipSync(records)],
    ];
    for (const [name, content] of files) {
      writeFileSync(join(folder, name), content);
      const index = await buildIndex(join(folder, name), { storage, write: false });
      const found = await textBytes(index, [0], ["text"]);
      // Of TFRecord with its frames.
      assert.ok(found >= bytes && found < bytes * (name.includes("jsonl") ? 1.001 : 1.1), `${name}: ${found}`);
      assert.equal(await textBytes(index, [], ["text"]), 0);
    }
    assert.ok(countSeconds(8e9, 1, false) > 1000 && countSeconds(8e9, 10, false) < 110);
  } finally {
    await storage.close();
    rmSync(folder, { recursive: true, force: true });
  }
});
