import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { ViewOpener } from "../../src/agent/open-view.ts";
import type { Waiter } from "../../src/agent/attempts.ts";
import type { DatasetIndex } from "../../src/dataset/types.ts";
import { Placement } from "../../src/placement/placement.ts";
import { createPosixStorage } from "../../src/storage/posix.ts";
import { idRecords, put, shard } from "../dataset/shards.ts";

type Indexing = { index(source: object, keepBad: boolean, waiter: Waiter): Promise<DatasetIndex> };

test("a launch behind one that was killed while it made the index has the index made anew", async () => {
  const root = mkdtempSync(join(tmpdir(), "athanor-open-"));
  for (const name of ["a", "b", "c"]) put(root, `${name}.tfrecord`, shard(idRecords(0, 2000)));
  const storage = createPosixStorage();
  const opener = new ViewOpener(storage, new Placement(), 1) as unknown as Indexing;
  const source = { name: "data", path: root, index_dir: null };
  try {
    const calls = { killed: 0, next: 0 };
    let next: Promise<DatasetIndex> | undefined;
    const other: Waiter = { progress: () => undefined, alive: () => (calls.next++, true), builds: () => true };
    const killed: Waiter = {
      progress: () => undefined,
      builds: () => true,
      // Its sessions are gone at the first look; the next launch comes right behind that, before the attempt has ended.
      alive: () => {
        if (calls.killed++ === 0) queueMicrotask(() => void (next = opener.index(source, false, other)));
        return false;
      },
    };
    await assert.rejects(opener.index(source, false, killed), /nobody waits for this index/);
    assert.notEqual(next, undefined);
    assert.equal((await next!).totals.records, 6000);
    assert.ok(calls.next > 0, "it was asked whether it still waits");
  } finally {
    await storage.close();
    rmSync(root, { recursive: true });
  }
});
