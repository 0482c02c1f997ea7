import assert from "node:assert/strict";
import { cpSync, mkdtempSync, rmSync, statSync, truncateSync, utimesSync, writeFileSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { gzipSync } from "node:zlib";
import { adoptIndex } from "../../src/dataset/index-adopt.ts";
import { buildIndex } from "../../src/dataset/index-build.ts";
import { createPosixStorage } from "../../src/storage/posix.ts";
import { idRecords, put, shard } from "./shards.ts";

const top = mkdtempSync(join(tmpdir(), "athanor-adopt-"));
const storage = createPosixStorage();
after(async () => {
  await storage.close();
  rmSync(top, { recursive: true, force: true });
});

async function copied(name: string): Promise<{ copy: string; fingerprint: string }> {
  const original = join(top, `${name}-original`);
  put(original, "a.tfrecord", shard(idRecords(0, 500)));
  put(original, "b.tfrecord", gzipSync(shard(idRecords(500, 100))));
  put(original, "empty.tfrecord", new Uint8Array(0));
  const { fingerprint } = await buildIndex(original, { storage });
  const copy = join(top, name);
  cpSync(original, copy, { recursive: true });
  for (const file of ["a", "b", "empty"]) utimesSync(join(copy, `${file}.tfrecord`), 1e9, 1e9);
  return { copy, fingerprint };
}

test("a copied set is adopted without reading it again, and opens afterwards", async () => {
  const { copy, fingerprint } = await copied("good");
  const { index, adopted } = await adoptIndex(copy, { storage });
  assert.equal(adopted, 3);
  assert.equal(index.fingerprint, fingerprint);
  const read: string[] = [];
  const again = await buildIndex(copy, { storage, onRead: (path) => read.push(path) });
  assert.deepEqual(read, [], "nothing is stale");
  assert.equal(again.fingerprint, fingerprint);
  assert.equal((await adoptIndex(copy, { storage })).adopted, 0);
  assert.equal(again.shards[0]?.mtimeNs, statSync(join(copy, "a.tfrecord"), { bigint: true }).mtimeNs);
});

test("a copy that is shorter, or of other bytes, is refused with the file named", async () => {
  const { copy } = await copied("short");
  truncateSync(join(copy, "a.tfrecord"), 1000);
  await assert.rejects(adoptIndex(copy, { storage }), /a\.tfrecord.*another size/);
  const other = (await copied("other")).copy;
  const path = join(other, "a.tfrecord");
  writeFileSync(path, Buffer.alloc(readFileSync(path).length, 7));
  await assert.rejects(adoptIndex(other, { storage }), /a\.tfrecord/);
});

test("without an index there is nothing to adopt", async () => {
  const folder = join(top, "none");
  put(folder, "a.tfrecord", shard(idRecords(0, 5)));
  await assert.rejects(adoptIndex(folder, { storage }), /ATH_INDEX_MISSING|no index to adopt/);
});

test("a copy forgets what the set was before shards were appended: a state over that set could not go on", async () => {
  const original = join(top, "past-original");
  put(original, "a.tfrecord", shard(idRecords(0, 50)));
  const { fingerprint } = await buildIndex(original, { storage });
  put(original, "b.tfrecord", shard(idRecords(50, 50)));
  await buildIndex(original, { storage });
  const copy = join(top, "past");
  cpSync(original, copy, { recursive: true });
  for (const file of ["a", "b"]) utimesSync(join(copy, `${file}.tfrecord`), 1e9, 1e9);
  await adoptIndex(copy, { storage });
  assert.deepEqual((await buildIndex(copy, { storage })).past, [{ fingerprint, added: ["b.tfrecord"] }]);
});
