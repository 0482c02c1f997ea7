// What decoding lends of a thread's memory is given back, whatever becomes of the block: lent for ever, each later block is copied.
import assert from "node:assert/strict";
import { copyFileSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { buildIndex } from "../../src/dataset/index-build.ts";
import { countsOf } from "../../src/feed/count-thread.ts";
import { survey } from "../../src/feed/decode-thread.ts";
import { BlockMemory, ShardBlocks } from "../../src/feed/shard-blocks.ts";
import type { TokenColumn } from "../../src/feed/token-column.ts";
import { workbench } from "../../src/kernels/workbench.ts";
import { createPosixStorage } from "../../src/storage/posix.ts";
import { fixtures } from "../formats/fixtures.ts";

function isLent(): boolean {
  const { release } = workbench().lend(() => 0);
  release?.();
  return release === undefined;
}

test("a block whose text fails gives the workbench back, when it is counted and when it is surveyed", async () => {
  const folder = mkdtempSync(join(tmpdir(), "athanor-release-"));
  const storage = createPosixStorage();
  try {
    copyFileSync(join(fixtures, "parquet/plain.parquet"), join(folder, "a.parquet"));
    const index = await buildIndex(folder, { storage });
    const name = index.schema.fields.find(({ kind }) => kind === "int64")!.name;
    const blocks = new ShardBlocks(index, 0, [name], storage, new BlockMemory());
    assert.ok((await blocks.open()) > 0);
    const { request } = await blocks.read(0);
    blocks.close();
    let failed = 0;
    const failing: TokenColumn = {
      tokenize: () => {
        assert.ok(isLent(), "the values of the block lie in the workbench");
        failed++;
        throw new Error("no ids");
      },
    };
    const text = Promise.resolve(failing);
    await assert.rejects(countsOf(request, name, [name], text, true), /no ids/);
    assert.ok(!isLent(), "counted");
    await assert.rejects(survey({ columns: [], features: [name], text }, request), /no ids/);
    assert.ok(!isLent(), "surveyed");
    assert.equal(failed, 2);
    const { counts, bad } = await countsOf(request, name, [name], undefined, true);
    assert.deepEqual([counts.length, bad.length], [request.records, 0]);
    assert.ok(!isLent());
  } finally {
    await storage.close();
    rmSync(folder, { recursive: true, force: true });
  }
});
