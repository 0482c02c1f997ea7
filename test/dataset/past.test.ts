import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { buildIndex } from "../../src/dataset/index-build.ts";
import { openIndex } from "../../src/dataset/index-read.ts";
import { pastSets } from "../../src/dataset/past.ts";
import { createPosixStorage } from "../../src/storage/posix.ts";
import { idRecords, put, shard } from "./shards.ts";

const root = mkdtempSync(join(tmpdir(), "athanor-past-"));
const storage = createPosixStorage({ threads: 2 });
after(async () => {
  await storage.close();
  rmSync(root, { recursive: true, force: true });
});

test("the index knows the sets of before shards were appended, until one of their shards changes", async () => {
  put(root, "b.tfrecord", shard(idRecords(0, 10)));
  const first = await buildIndex(root, { storage });
  assert.deepEqual(first.past, []);
  put(root, "a.tfrecord", shard(idRecords(10, 5)));
  const second = await buildIndex(root, { storage });
  put(root, "c.tfrecord", shard(idRecords(15, 7)));
  put(root, "d.tfrecord", shard(idRecords(22, 1)));
  await buildIndex(root, { storage });
  // Read back, and after everything was read anew.
  for (const index of [await openIndex(root, { storage }), await buildIndex(root, { storage, rebuild: true })]) {
    const sets = [...pastSets(index!)];
    assert.deepEqual(
      sets.map(({ fingerprint, totals }) => [fingerprint, totals.records]),
      [
        [second.fingerprint, 15],
        [first.fingerprint, 10],
      ],
    );
    const [newest, oldest] = sets;
    assert.deepEqual(
      newest!.shards.map(({ path }) => path),
      ["a.tfrecord", "b.tfrecord"],
    );
    const { firstRecord } = (await oldest!.shardTable(0)).table;
    assert.equal(firstRecord.at(-1), 10);
  }
  put(root, "b.tfrecord", shard(idRecords(100, 11)));
  const changed = await buildIndex(root, { storage });
  assert.deepEqual(changed.past, []);
});
