import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import {
  chmodSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  truncateSync,
  unlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { gzipSync } from "node:zlib";
import { buildIndex } from "../../src/dataset/index-build.ts";
import type { BuildOptions } from "../../src/dataset/index-build.ts";
import { dataFingerprint } from "../../src/dataset/fingerprint.ts";
import { openIndex } from "../../src/dataset/index-read.ts";
import type { DatasetIndex } from "../../src/dataset/types.ts";
import { createPosixStorage } from "../../src/storage/posix.ts";
import { idRecords, put, shard } from "./shards.ts";

const top = mkdtempSync(join(tmpdir(), "athanor-index-"));
// Mode 0755: a test reads it as another user.
chmodSync(top, 0o755);
const storage = createPosixStorage();
after(async () => {
  await storage.close();
  rmSync(top, { recursive: true, force: true });
});

let sets = 0;
function makeSet(): string {
  const root = join(top, `set-${sets++}`);
  put(root, "a.tfrecord", shard(idRecords(0, 200)));
  put(root, "b/c.tfrecord", shard(idRecords(200, 50)));
  put(root, "empty.tfrecord", "");
  return root;
}

async function build(
  root: string,
  options: Partial<BuildOptions> = {},
): Promise<{ index: DatasetIndex; read: string[] }> {
  const read: string[] = [];
  const index = await buildIndex(root, { storage, onRead: (path) => read.push(path), ...options });
  return { index, read };
}

async function reopen(root: string, indexDir?: string): Promise<DatasetIndex> {
  const index = await openIndex(root, { storage, indexDir });
  assert.ok(index !== undefined, "no index");
  return index;
}

/** All that an index says, for comparing. */
async function contentOf(index: DatasetIndex): Promise<unknown> {
  const tables = await Promise.all(index.shards.map((_, i) => index.shardTable(i)));
  const { shards, format, schema, totals, fingerprint, ignored } = index;
  return { shards, format, schema, totals, fingerprint, ignored, tables };
}

test("an index read back equals the one that was built", async () => {
  const root = makeSet();
  assert.equal(await openIndex(root, { storage }), undefined);
  const { index, read } = await build(root);
  assert.deepEqual(read, ["a.tfrecord", "b/c.tfrecord", "empty.tfrecord"]);
  assert.deepEqual(
    index.shards.map(({ path, records }) => [path, records]),
    [
      ["a.tfrecord", 200],
      ["b/c.tfrecord", 50],
      ["empty.tfrecord", 0],
    ],
  );
  assert.equal(index.totals.records, 250);
  assert.equal(index.totals.bytes, statSync(join(root, "a.tfrecord")).size + statSync(join(root, "b/c.tfrecord")).size);
  const id = index.schema.fields.find(({ name }) => name === "id");
  assert.deepEqual([id?.present, id?.min, id?.max, id?.values], [250, "0", "249", 250]);
  assert.equal(index.fingerprint, dataFingerprint(index.shards));
  assert.deepEqual(await contentOf(await reopen(root)), await contentOf(index));
  assert.deepEqual(readdirSync(join(root, ".athanor")).sort(), ["blocks", "manifest.json", "shards.bin"]);
});

test("an unchanged shard is never read again; new, changed and gone ones are followed", async () => {
  const root = makeSet();
  await build(root);
  assert.deepEqual((await build(root)).read, []);
  put(root, "b/new.tfrecord", shard(idRecords(900, 3)));
  await assert.rejects(openIndex(root, { storage }), (error: { code: string; message: string }) => {
    assert.equal(error.code, "ATH_INDEX_STALE");
    assert.match(error.message, /b\/new\.tfrecord: this file is not in the index.*athanor index /);
    return true;
  });
  const grown = await build(root);
  assert.deepEqual(grown.read, ["b/new.tfrecord"]);
  assert.equal(grown.index.totals.records, 253);

  put(root, "a.tfrecord", shard(idRecords(0, 7)));
  const changed = await build(root);
  assert.deepEqual(changed.read, ["a.tfrecord"]);
  assert.equal(changed.index.schema.fields[0]?.max, "902");

  unlinkSync(join(root, "b/new.tfrecord"));
  await assert.rejects(openIndex(root, { storage }), {
    code: "ATH_INDEX_STALE",
    message: /b\/new\.tfrecord: this shard of the index is gone/,
  });
  const shrunk = await build(root);
  assert.deepEqual(shrunk.read, []);
  assert.equal(shrunk.index.totals.records, 57);
  // Statistics of the shard that is gone went with it.
  assert.equal(shrunk.index.schema.fields[0]?.max, "249");
  assert.deepEqual(await contentOf(await reopen(root)), await contentOf(shrunk.index));
  const fresh = await build(root, { rebuild: true });
  assert.equal(fresh.read.length, 3);
  assert.deepEqual(await contentOf(fresh.index), await contentOf(shrunk.index));
});

test("a shard changed after the index was made is refused at its first open, not mixed in", async () => {
  const root = makeSet();
  const { index } = await build(root);
  const file = join(root, "a.tfrecord");
  renameSync(put(root, ".a", shard(idRecords(5, 200))), file);
  const opened = await reopen(root);
  assert.equal(opened.fingerprint, index.fingerprint);
  // Another process: this one may go on over the descriptor that it has.
  const job = createPosixStorage();
  await assert.rejects(job.open(file, opened.shards[0]), {
    code: "ATH_SHARD_CHANGED",
    message: /changed since it was indexed: found .* expected /,
  });
  await job.close();
});

test("a copy of a set has the same fingerprint whatever its times and place", async () => {
  const one = makeSet();
  const other = makeSet();
  utimesSync(join(other, "a.tfrecord"), 1000, 1000);
  assert.equal((await build(one)).index.fingerprint, (await build(other)).index.fingerprint);
});

test("cut and damaged index files are named and can be built anew", async () => {
  const root = makeSet();
  const { index } = await build(root);
  const file = join(root, ".athanor/shards.bin");
  const whole = readFileSync(file);
  for (const length of [0, 10, 63, 64, whole.length - 1]) {
    writeFileSync(file, whole.subarray(0, length));
    await assert.rejects(openIndex(root, { storage }), {
      code: "ATH_INDEX_CORRUPT",
      message: /shards\.bin: .*athanor index --rebuild/,
    });
  }
  for (let at = 0; at < whole.length; at += 13) {
    const damaged = Buffer.from(whole);
    damaged[at]! ^= 0x10;
    writeFileSync(file, damaged);
    await assert.rejects(openIndex(root, { storage }), { code: "ATH_INDEX_CORRUPT" }, `flip at byte ${at}`);
  }
  const again = await build(root);
  assert.equal(again.read.length, 3);
  assert.deepEqual(await contentOf(again.index), await contentOf(index));

  const [table] = readdirSync(join(root, ".athanor/blocks"));
  truncateSync(join(root, ".athanor/blocks", table!), 100);
  const opened = await reopen(root);
  const results = await Promise.allSettled(opened.shards.map((_, i) => opened.shardTable(i)));
  const failed = results.filter((result) => result.status === "rejected");
  assert.equal(failed.length, 1);
  assert.equal((failed[0]!.reason as { code: string }).code, "ATH_INDEX_CORRUPT");
});

test("a table that is gone makes only its own shard be read again", async () => {
  const root = makeSet();
  await build(root);
  const blocks = join(root, ".athanor/blocks");
  unlinkSync(join(blocks, readdirSync(blocks)[0]!));
  assert.equal((await build(root)).read.length, 1);
});

test("builders at the same time, over a set that grows, leave a whole index", async () => {
  const root = makeSet();
  const program = `
    import { buildIndex } from ${JSON.stringify(new URL("../../src/dataset/index-build.js", import.meta.url).href)};
    import { createPosixStorage } from ${JSON.stringify(new URL("../../src/storage/posix.js", import.meta.url).href)};
    const storage = createPosixStorage();
    const index = await buildIndex(${JSON.stringify(root)}, { storage, rebuild: true });
    console.log(index.totals.records);`;
  const file = put(top, "builder.mjs", program);
  const script = `for i in 1 2 3; do "$NODE" "$FILE" & done; wait`;
  const { status, stdout } = spawnSync("sh", ["-c", script], {
    encoding: "utf8",
    env: { ...process.env, NODE: process.execPath, FILE: file },
    timeout: 100_000,
  });
  assert.equal(status, 0);
  assert.equal(stdout, "250\n250\n250\n");
  const own = await Promise.all([
    build(root, { rebuild: true }),
    build(root, { rebuild: true }),
    build(root, { rebuild: true }),
  ]);
  assert.deepEqual(await contentOf(await reopen(root)), await contentOf(own[0].index));
  assert.deepEqual(readdirSync(join(root, ".athanor")).sort(), ["blocks", "manifest.json", "shards.bin"]);
});

test("a folder that cannot be written is named before anything is read, with --index-dir as the way out", async () => {
  const root = makeSet();
  const program = `
    import { buildIndex } from ${JSON.stringify(new URL("../../src/dataset/index-build.js", import.meta.url).href)};
    import { createPosixStorage } from ${JSON.stringify(new URL("../../src/storage/posix.js", import.meta.url).href)};
    // Modules are loaded as whoever started the test; root may write anywhere, so the rest runs as another user.
    const storage = createPosixStorage({ threads: 1 });
    await storage.stat("/");
    if (process.getuid() === 0) process.setuid(65534);
    const read = [];
    await buildIndex(${JSON.stringify(root)}, { storage, onRead: (path) => read.push(path) }).then(
      () => console.log("written"),
      (error) => console.log(error.code, read.length, error.remedy),
    );`;
  chmodSync(root, 0o555);
  const { stdout, stderr } = spawnSync(process.execPath, [put(top, "other-user.mjs", program)], {
    encoding: "utf8",
    timeout: 100_000,
  });
  chmodSync(root, 0o755);
  assert.match(stdout, /^ATH_INDEX_READONLY 0 run `athanor index .* --index-dir FOLDER`/, stderr);

  const indexDir = join(top, "elsewhere");
  const { index } = await build(root, { indexDir });
  assert.equal(await openIndex(root, { storage }), undefined);
  assert.equal((await reopen(root, indexDir)).fingerprint, index.fingerprint);
  // An index folder inside the data that is not hidden is no shard.
  await build(root, { indexDir: join(root, "index") });
  assert.equal((await reopen(root, join(root, "index"))).totals.shards, 3);
});

test("files beside the shards: known non-data is ignored and listed, anything else is an error that says what it is", async () => {
  const root = makeSet();
  put(root, "README.md", "# about\n");
  put(root, "info.json", '{"name": "set"}');
  const { index } = await build(root);
  assert.deepEqual(
    index.ignored.map(({ path }) => path),
    ["README.md", "info.json"],
  );
  assert.match(index.ignored[1]!.why, /JSON/);
  assert.equal((await reopen(root)).ignored.length, 2);
  // Read once: the next build does not look at them again.
  assert.deepEqual((await build(root)).read, []);
  put(root, "d.tfrecord", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 4711\n");
  await assert.rejects(build(root), { code: "ATH_NOT_FORMAT", message: /d\.tfrecord.*Git LFS pointer.*4711/ });
  const bare = join(top, "bare");
  put(bare, "README.md", "# about\n");
  await assert.rejects(build(bare), { code: "ATH_NO_SHARDS", message: /none of 1 files is a shard; README\.md: / });
});

test("a fault in a shard stops the build with file, record and byte offset, and leaves the old index", async () => {
  const root = makeSet();
  const { index } = await build(root);
  const bytes = shard(idRecords(0, 10));
  const length = bytes.length / 10;
  bytes[length * 4 + 20]! ^= 1;
  put(root, "z.tfrecord", bytes);
  await assert.rejects(build(root), (error: { code: string; where: object }) => {
    assert.equal(error.code, "ATH_RECORD_CRC");
    assert.deepEqual(error.where, { file: join(root, "z.tfrecord"), record: 4, byteOffset: length * 4 });
    return true;
  });
  unlinkSync(join(root, "z.tfrecord"));
  assert.equal((await reopen(root)).fingerprint, index.fingerprint);
});

test("kinds that differ between shards are an error that names both", async () => {
  const root = makeSet();
  put(root, "z.tfrecord", shard([{ id: "seven" }]));
  await assert.rejects(build(root), {
    code: "ATH_SCHEMA_CONFLICT",
    message: /z\.tfrecord: feature "id" holds bytes values here and int64 values in .*a\.tfrecord/,
  });
});

test("globs and single files have an index of their own", async () => {
  const root = makeSet();
  const whole = await build(root);
  const glob = await build(join(root, "**/c.tfrecord"));
  assert.equal(glob.index.root, join(root, "b"));
  assert.deepEqual(
    glob.index.shards.map(({ path }) => path),
    ["c.tfrecord"],
  );
  const single = await build(join(root, "a.tfrecord"));
  assert.equal(single.index.totals.records, 200);
  assert.equal((await reopen(join(root, "a.tfrecord"))).totals.records, 200);
  assert.equal((await reopen(root)).fingerprint, whole.index.fingerprint);
});

test("gzip shards are streams: the table counts decompressed bytes", async () => {
  const root = join(top, "gz");
  put(root, "a.gz", gzipSync(shard(idRecords(0, 30_000, 400))));
  const { index } = await build(root);
  const [row] = index.shards;
  assert.equal(row?.encoding, "gzip");
  assert.equal(row?.records, 30_000);
  const { table } = await (await reopen(root)).shardTable(0);
  assert.equal(table.stream, true);
  assert.equal(table.blocks, row?.blocks);
  assert.ok(table.blocks > 1);
});

test("a build that fails leaves no empty folder behind", async () => {
  const root = join(top, `set-${sets++}`);
  put(root, "a.tfrecord", "this is no TFRecord file at all");
  await assert.rejects(build(root), { code: "ATH_NOT_FORMAT" });
  assert.deepEqual(readdirSync(root), ["a.tfrecord"]);
  const elsewhere = join(top, "new", "index");
  await assert.rejects(build(root, { indexDir: elsewhere }), { code: "ATH_NOT_FORMAT" });
  assert.ok(!readdirSync(top).includes("new"));
  await assert.rejects(build(root, { indexDir: "/proc/athanor/index" }), { code: "ATH_INDEX_WRITE" });
});

test("a file of 0 bytes under the name of a compressed one is cut: it was a shard of no records", async () => {
  for (const name of ["b.jsonl.gz", "b.jsonl.zst", "b.tfrecord.gz", "b.tar.gz", "b.tgz"]) {
    const root = join(top, `set-${sets++}`);
    put(root, "a.jsonl", '{"a":1}\n');
    put(root, name, "");
    await assert.rejects(build(root), { code: "ATH_STREAM_CORRUPT" }, name);
    await assert.rejects(build(join(root, name)), { code: "ATH_STREAM_CORRUPT" }, name);
  }
});

test("a file whose name is no UTF-8 is named; it was not found, or another one was read in its place", async () => {
  const root = join(top, `set-${sets++}`);
  put(root, "a.jsonl", '{"a":1}\n');
  put(root, "b\ufffd.jsonl", '{"a":2}\n');
  assert.equal((await build(root)).index.totals.records, 2);
  writeFileSync(Buffer.concat([Buffer.from(`${root}/b`), Buffer.of(0xff), Buffer.from(".jsonl")]), '{"a":3}\n');
  const refused = { code: "ATH_FILE_NAME", message: /b\\xff\.jsonl: the name is not UTF-8/ };
  await assert.rejects(build(root), refused);
  await assert.rejects(build(join(root, "*.jsonl")), refused);
  // What was not asked for is let be.
  assert.equal((await build(join(root, "a*"))).index.totals.records, 1);
});

test("a file of 0 bytes is called empty, and a .bin without its .idx: it was a TFRecord shard", async () => {
  const root = join(top, `set-${sets++}`);
  put(root, "a.bin", "");
  await assert.rejects(build(root), { code: "ATH_NOT_FORMAT", message: /a\.bin.*the file is empty, and the \.idx/ });
  put(root, "a.dat", "");
  await assert.rejects(build(join(root, "a.dat")), { code: "ATH_NOT_FORMAT", message: /the file is empty/ });
});
