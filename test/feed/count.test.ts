import assert from "node:assert/strict";
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import { countsFile, CountsReader, uncounted } from "../../src/dataset/counts.ts";
import { buildIndex } from "../../src/dataset/index-build.ts";
import { keptView, pieceIndex } from "../../src/dataset/piece-index.ts";
import { packRecords } from "../../src/dataset/pack.ts";
import { pastSets } from "../../src/dataset/past.ts";
import type { DatasetIndex } from "../../src/dataset/types.ts";
import { writeView } from "../../src/dataset/view-write.ts";
import { countTokens } from "../../src/feed/count.ts";
import type { Counted } from "../../src/feed/counted.ts";
import { createPosixStorage, type PosixStorage } from "../../src/storage/posix.ts";

const COUNTED: Counted = { hash: "ab".repeat(16), feature: "input_ids", text: undefined };

interface Rig {
  folder: string;
  storage: PosixStorage;
  count: (index: DatasetIndex) => Promise<number>;
}

async function withRig(work: (rig: Rig) => Promise<void>): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "athanor-count-"));
  const storage = createPosixStorage();
  const count = async (index: DatasetIndex): Promise<number> =>
    (await countTokens(index, COUNTED, { storage, source: folder, threads: 2 })).shards;
  try {
    await work({ folder, storage, count });
  } finally {
    await storage.close();
    rmSync(folder, { recursive: true, force: true });
  }
}

/** A shard whose records have these numbers of tokens, and ballast that makes several blocks of it. */
function writeShard(file: string, counts: readonly number[], bytes = 0): void {
  const ballast = "x".repeat(bytes);
  const lines = counts.map((count) =>
    JSON.stringify({ ballast, input_ids: Array.from({ length: count }, (_, i) => i) }),
  );
  const text = `${lines.join("\n")}\n`;
  writeFileSync(file, file.endsWith(".gz") ? gzipSync(text) : text);
}

const counts = (from: number, records: number): number[] =>
  Array.from({ length: records }, (_, i) => (from + i * 7) % 90);

async function stored(index: DatasetIndex, shard: number, storage: PosixStorage): Promise<number[][]> {
  const { table } = await index.shardTable(shard);
  const reader = await CountsReader.open(storage, countsFile(index, COUNTED.hash, index.shards[shard]!), table);
  const blocks = await reader.blocks(0, table.blocks);
  const one = await reader.block(table.blocks - 1);
  await reader.close();
  assert.deepEqual(one, blocks.at(-1));
  return blocks.map((block) => [...block]);
}

test("counts of plain and compressed shards, block by block; only what is new is counted", async () => {
  await withRig(async ({ folder, storage, count }) => {
    writeShard(join(folder, "a.jsonl"), counts(0, 3000), 3000);
    writeShard(join(folder, "b.jsonl.gz"), counts(5, 2500), 4000);
    const index = await buildIndex(folder, { storage });
    assert.equal(await count(index), 2);
    for (const [shard, expected] of [counts(0, 3000), counts(5, 2500)].entries()) {
      const blocks = await stored(index, shard, storage);
      assert.ok(blocks.length > 1, "several blocks");
      assert.deepEqual(blocks.flat(), expected);
    }
    assert.equal(await count(index), 0);
    writeShard(join(folder, "c.jsonl"), [1, 2, 3]);
    const more = await buildIndex(folder, { storage });
    assert.deepEqual(await uncounted(more, COUNTED.hash, storage), [2]);
    assert.equal(await count(more), 1);
    // The set of before has its counts, too.
    const [before] = [...pastSets(more)];
    assert.deepEqual(await uncounted(before!, COUNTED.hash, storage), []);
    const view = { fingerprint: "12".repeat(16), tokens: COUNTED.hash, rule: "split" as const, maxLength: 16 };
    const past = await pieceIndex(before!, view, storage);
    const whole = await pieceIndex(more, view, storage);
    assert.equal(whole.index.totals.records - past.index.totals.records, 3);
  });
});

test("rows of a view are those that its counts pack to; its file is read again", async () => {
  await withRig(async ({ folder, storage, count }) => {
    const all = counts(3, 4000);
    writeShard(join(folder, "a.jsonl"), all, 2500);
    const index = await buildIndex(folder, { storage });
    await count(index);
    const view = { fingerprint: "cd".repeat(16), tokens: COUNTED.hash, rule: "pack" as const, maxLength: 64 };
    assert.equal(await keptView(index, view.fingerprint, storage), undefined);
    const made = await pieceIndex(index, view, storage, (name, parts) => writeView(index, name, parts, folder));
    const again = await pieceIndex(index, view, storage, () => assert.fail("it was kept"));
    const kept = await keptView(index, view.fingerprint, storage);
    const { table } = await index.shardTable(0);
    for (const { index: rows } of [made, again, { index: kept! }]) {
      const { table: rowTable } = await rows.shardTable(0);
      assert.equal(rows.totals.records, rowTable.firstRecord[table.blocks]);
      for (let block = 0; block < table.blocks; block++) {
        const own = all.slice(table.firstRecord[block], table.firstRecord[block + 1]);
        const packed = packRecords(Uint32Array.from(own), "pack", 64);
        assert.equal(rowTable.firstRecord[block + 1]! - rowTable.firstRecord[block]!, packed.rows);
        const { pieces, record } = await rows.cut!.of(0, block);
        assert.deepEqual(pieces!.record, packed.record);
        assert.equal(record[0], table.firstRecord[block]! + packed.record[0]!);
      }
    }
    assert.equal(again.most, made.most);
    // Counted anew while a job reads the counts: the same rows.
    const before = await again.index.cut!.of(0, 1);
    const open = (await pieceIndex(index, view, storage)).index.cut!;
    await open.of(0, 0);
    await countTokens(index, COUNTED, { storage, source: folder, threads: 1, again: true });
    assert.deepEqual(await open.of(0, 1), before);
    assert.equal(
      made.tokens,
      all.reduce((sum, tokens) => sum + tokens, 0),
    );
  });
});

test("damage in the files of a view is told with file and byte", async () => {
  await withRig(async ({ folder, storage, count }) => {
    writeShard(join(folder, "a.jsonl"), counts(3, 400));
    const index = await buildIndex(folder, { storage });
    await count(index);
    const view = { fingerprint: "cd".repeat(16), tokens: COUNTED.hash, rule: "pack" as const, maxLength: 64 };
    const make = () => pieceIndex(index, view, storage, (name, parts) => writeView(index, name, parts, folder));
    await make();
    const views = join(folder, ".athanor", "views");
    const damaged = async (file: string, at: number): Promise<void> => {
      const whole = readFileSync(file);
      const bytes = Buffer.from(whole);
      bytes[at]! ^= 1;
      writeFileSync(file, bytes);
      storage.forget();
      await assert.rejects(make(), { code: "ATH_INDEX_CORRUPT" }, `byte ${at} of ${file}`);
      truncateSync(file, whole.length - 3);
      storage.forget();
      await assert.rejects(make(), { code: "ATH_INDEX_CORRUPT" }, `a cut ${file}`);
      writeFileSync(file, whole);
      storage.forget();
      await make();
    };
    const file = join(views, `${view.fingerprint}.bin`);
    for (const at of [0, 9, 30, 64, statSync(file).size - 2]) await damaged(file, at);
    rmSync(file);
    const own = join(views, COUNTED.hash, readdirSync(join(views, COUNTED.hash))[0]!);
    const again = () => pieceIndex(index, view, storage);
    for (const at of [3, 33, 64, 70]) {
      const whole = readFileSync(own);
      const bytes = Buffer.from(whole);
      bytes[at]! ^= 1;
      writeFileSync(own, bytes);
      storage.forget();
      await assert.rejects(again(), { code: "ATH_INDEX_CORRUPT" }, `byte ${at}`);
      writeFileSync(own, whole);
      storage.forget();
    }
    await again();
  });
});

test("what is not counted is an error that names the command; a bad record is named", async () => {
  await withRig(async ({ folder, storage, count }) => {
    const data = join(folder, "d");
    mkdirSync(data);
    writeShard(join(data, "a.jsonl"), [1, 2, 3]);
    writeFileSync(join(data, "b.jsonl"), '{"input_ids": [1]}\n{"input_ids": [2, 3]}\n{"input_ids": [}\n');
    const index = await buildIndex(data, { storage, onBad: () => undefined });
    const view = { fingerprint: "cd".repeat(16), tokens: COUNTED.hash, rule: "pack" as const, maxLength: 64 };
    await assert.rejects(pieceIndex(index, view, storage), { code: "ATH_VIEW_MISSING", message: /index --view/ });
    await assert.rejects(count(index), (error: { code: string; where: { record: number; file: string } }) => {
      assert.equal(error.code, "ATH_RECORD_MALFORMED");
      assert.equal(error.where.record, 2);
      assert.equal(error.where.file, join(data, "b.jsonl"));
      return true;
    });
    assert.deepEqual(
      readdirSync(join(data, ".athanor", "views", COUNTED.hash)).filter((name) => name.startsWith(".")),
      [],
    );
  });
});
