// JSON that describes a data set beside shards, and JSON that is one: index, cat and verify agree.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { buildIndex } from "../../src/dataset/index-build.ts";
import { readRecords } from "../../src/dataset/records.ts";
import { verify } from "../../src/dataset/verify.ts";
import { createPosixStorage } from "../../src/storage/posix.ts";

const record = '{"input_ids":[1,2,3]}\n';

async function shardsOf(files: Record<string, string>): Promise<{ shards: string[]; ignored: string[] }> {
  const folder = mkdtempSync(join(tmpdir(), "athanor-judge-"));
  const storage = createPosixStorage();
  try {
    for (const [name, content] of Object.entries(files)) writeFileSync(join(folder, name), content);
    const checked = await verify(folder, { storage });
    assert.deepEqual(checked.problems, []);
    const read: string[] = [];
    const passed: string[] = [];
    for await (const { path } of readRecords(folder, { storage, onIgnored: (path) => passed.push(path) }))
      read.push(path);
    const index = await buildIndex(folder, { storage });
    const again = await buildIndex(folder, { storage });
    assert.equal(again.fingerprint, index.fingerprint);
    const shards = index.shards.map(({ path }) => path);
    assert.deepEqual(
      [...new Set(read)],
      shards.filter((path) => files[path] !== ""),
    );
    assert.deepEqual(
      passed,
      index.ignored.map(({ path }) => path),
    );
    assert.equal(checked.shards, shards.length);
    return { shards, ignored: passed };
  } finally {
    await storage.close();
    rmSync(folder, { recursive: true });
  }
}

test("JSON files are shards where there are no others", async () => {
  const files = { "a.json": `[${record}]`, "b.json": record, "c.json": "", "dataset_info.json": '{"license":"x"}' };
  const { shards, ignored } = await shardsOf({ "a.json": files["a.json"], "b.json": files["b.json"] });
  assert.deepEqual([shards, ignored], [["a.json", "b.json"], []]);
  assert.deepEqual(await shardsOf(files).then((found) => found.ignored), ["dataset_info.json"]);
});

test("a description beside lines is ignored, on one line or on several, and other JSON is data", async () => {
  const description = { name: "x", splits: [1] };
  for (const indent of [0, 2]) {
    const info = JSON.stringify(description, null, indent);
    const { shards, ignored } = await shardsOf({ "a.jsonl": record, "b.json": record, "dataset_info.json": info });
    assert.deepEqual([shards, ignored], [["a.jsonl", "b.json"], ["dataset_info.json"]]);
  }
});

test("no JSON beside shards of another format is data", async () => {
  const { shards, ignored } = await shardsOf({ "a.tfrecord": "", "b.json": record, "list.json": "[]" });
  assert.deepEqual([shards, ignored], [["a.tfrecord"], ["b.json", "list.json"]]);
});

test("a description alone is what was named", async () => {
  assert.deepEqual(await shardsOf({ "dataset_info.json": record }), { shards: ["dataset_info.json"], ignored: [] });
});
