import assert from "node:assert/strict";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import { crc32c } from "../../src/base/crc32c.ts";
import { countsFile, CountsReader, uncounted } from "../../src/dataset/counts.ts";
import { buildIndex } from "../../src/dataset/index-build.ts";
import { decodeHeader, encodeHeader, HEADER_BYTES, KIND_VIEW } from "../../src/dataset/index-layout.ts";
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

test("what a killed writer of rows left is removed by a later one once it is a day old", async () => {
  await withRig(async ({ folder, storage, count }) => {
    writeShard(join(folder, "a.jsonl"), counts(3, 40));
    const index = await buildIndex(folder, { storage });
    await count(index);
    const views = join(folder, ".athanor", "views");
    const [old, fresh] = ["1", "2"].map((n) => join(views, `.${"cd".repeat(16)}.bin.tmp-${n}-abcd`)) as [
      string,
      string,
    ];
    for (const file of [old, fresh]) writeFileSync(file, "cut");
    const yesterday = Date.now() / 1000 - 25 * 3600;
    utimesSync(old, yesterday, yesterday);
    await writeView(index, `${"ef".repeat(16)}.bin`, [], folder);
    assert.deepEqual([existsSync(old), existsSync(fresh)], [false, true]);
  });
});

test("rows never go with other counts than those that they were made of", async () => {
  await withRig(async ({ folder, storage }) => {
    const file = join(folder, "a.jsonl");
    const whole = Array.from({ length: 40 }, (_, i) => `{"input_ids": [${i % 10}]}\n`).join("");
    // A bad record, and later a whole one: of the same size and time, as a repaired page of Parquet.
    const write = (text: string): void => {
      writeFileSync(file, text);
      utimesSync(file, 1_700_000_000, 1_700_000_000);
      storage.forget();
    };
    write(whole.replaceAll("[7]", "[,]"));
    const index = await buildIndex(folder, { storage, onBad: () => undefined });
    const view = { fingerprint: "cd".repeat(16), tokens: COUNTED.hash, rule: "split" as const, maxLength: 16 };
    const other = { ...view, fingerprint: "ef".repeat(16), maxLength: 8 };
    const elsewhere = { ...view, fingerprint: "01".repeat(16), tokens: "ba".repeat(16) };
    const views = join(folder, ".athanor", "views");
    const make = (of = view) => pieceIndex(index, of, storage, (name, parts) => writeView(index, name, parts, folder));
    const count = (counted: Counted, again: boolean) =>
      countTokens(index, counted, { storage, source: folder, threads: 1, again, onBad: () => undefined });
    await count(COUNTED, false);
    await count({ ...COUNTED, hash: elsewhere.tokens }, false);
    const running = await make();
    assert.deepEqual([running.bad, running.index.totals.records], [4, 36]);
    await make(other);
    await make(elsewhere);
    const stale = readFileSync(join(views, `${view.fingerprint}.bin`));

    write(whole);
    await count(COUNTED, true);
    storage.forget();
    assert.equal(await keptView(index, view.fingerprint, storage), undefined);
    assert.equal(await keptView(index, other.fingerprint, storage), undefined);
    assert.notEqual(await keptView(index, elsewhere.fingerprint, storage), undefined, "rows of other tokens stay");
    const refused = { code: "ATH_INDEX_CORRUPT", message: /other counts.*a\.jsonl/ };
    await assert.rejects(running.index.cut!.of(0, 0), refused);
    const made = await make();
    assert.deepEqual([made.bad, made.index.totals.records], [0, 40]);
    await made.index.cut!.of(0, 0);

    writeFileSync(join(views, `${view.fingerprint}.bin`), stale);
    storage.forget();
    await assert.rejects((await make()).index.cut!.of(0, 0), refused);
    // Of a version that did not say of which counts: made anew.
    const { rows, a, json, ...head } = decodeHeader(stale, KIND_VIEW, "");
    const crcs = HEADER_BYTES + rows * 8 + a * 4;
    const payload = Buffer.concat([stale.subarray(HEADER_BYTES, crcs), stale.subarray(crcs + a * 4)]);
    const older = encodeHeader({ ...head, rows, a, json, b: 0, payload: payload.length, crc: crc32c(payload) });
    writeFileSync(join(views, `${view.fingerprint}.bin`), Buffer.concat([older, payload]));
    storage.forget();
    assert.deepEqual((await make()).bad, 0);
    // Rows that are damaged do not keep anybody from making them anew.
    truncateSync(join(views, `${view.fingerprint}.bin`), 70);
    storage.forget();
    await count(COUNTED, true);
    storage.forget();
    assert.equal((await make()).index.totals.records, 40);
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
    const file = join(views, `${view.fingerprint}.bin`);
    const whole = readFileSync(file);
    // Who knows the counts makes the rows anew of them; who does not is told how.
    const mended = async (): Promise<void> => {
      storage.forget();
      const refused = { code: "ATH_INDEX_CORRUPT", message: /athanor index PATH --view/ };
      await assert.rejects(keptView(index, view.fingerprint, storage), refused);
      await make();
      assert.deepEqual(readFileSync(file), whole);
    };
    for (const at of [0, 9, 30, 64, whole.length - 2]) {
      const bytes = Buffer.from(whole);
      bytes[at]! ^= 1;
      writeFileSync(file, bytes);
      await mended();
    }
    truncateSync(file, whole.length - 3);
    await mended();
    rmSync(file);
    const own = join(views, COUNTED.hash, readdirSync(join(views, COUNTED.hash))[0]!);
    const again = () => pieceIndex(index, view, storage);
    for (const at of [3, 33, 64, 70, statSync(own).size - 2]) {
      const whole = readFileSync(own);
      const bytes = Buffer.from(whole);
      bytes[at]! ^= 1;
      writeFileSync(own, bytes);
      storage.forget();
      await assert.rejects(again(), { code: "ATH_INDEX_CORRUPT", message: /index --view/ }, `byte ${at}`);
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
