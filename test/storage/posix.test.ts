import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import {
  closeSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  renameSync,
  rmSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { createPosixStorage } from "../../src/storage/posix.ts";
import type { HungRequest } from "../../src/storage/io-pool.ts";

const folder = mkdtempSync(join(tmpdir(), "athanor-storage-"));
after(() => rmSync(folder, { recursive: true, force: true }));

function make(name: string, bytes: Uint8Array | string): string {
  const path = join(folder, name);
  writeFileSync(path, bytes);
  return path;
}

const pattern = Uint8Array.from({ length: 100_000 }, (_, i) => (i * 31) & 255);

test("reads ranges into shared and plain memory", async () => {
  const path = make("pattern", pattern);
  const storage = createPosixStorage();
  const object = await storage.open(path);
  assert.equal(object.size, pattern.length);
  const plain = new Uint8Array(1000);
  assert.equal(await object.readInto(plain, 99_500), 500);
  assert.deepEqual(plain.subarray(0, 500), pattern.subarray(99_500));
  assert.deepEqual(plain.subarray(500), new Uint8Array(500));
  const shared = new SharedArrayBuffer(300);
  assert.equal(await storage.readShared(path, object.version, shared, 100, 7, 100), 100);
  assert.deepEqual(new Uint8Array(shared, 100, 100).slice(), pattern.slice(7, 107));
  assert.equal(new Uint8Array(shared)[99], 0);
  assert.equal(new Uint8Array(shared)[200], 0);
  assert.equal(await object.readInto(plain, 100_000), 0);
  await storage.close();
});

test("many concurrent readers open a file once", async () => {
  const path = make("once", pattern);
  const storage = createPosixStorage({ threads: 3 });
  const { version } = await storage.open(path);
  const opens = storage.stats().opens;
  const shared = new SharedArrayBuffer(64 * 100);
  await Promise.all(
    Array.from({ length: 64 }, (_, i) => storage.readShared(path, version, shared, i * 100, i * 1000, 100)),
  );
  for (let i = 0; i < 64; i++) {
    assert.deepEqual(new Uint8Array(shared, i * 100, 100).slice(), pattern.slice(i * 1000, i * 1000 + 100));
  }
  assert.equal(storage.stats().opens, opens);
  assert.ok(storage.stats().threads <= 3);
  await storage.close();
});

test("the handle pool closes the least recently used and reopens on demand", async () => {
  const paths = Array.from({ length: 6 }, (_, i) => make(`lru-${i}`, `file ${i}`));
  const storage = createPosixStorage({ handles: 2, threads: 2 });
  const shared = new SharedArrayBuffer(6);
  for (let round = 0; round < 3; round++) {
    for (const [i, path] of paths.entries()) {
      await storage.readShared(path, undefined, shared, 0, 0, 6);
      assert.equal(Buffer.from(shared.slice(0)).toString(), `file ${i}`);
    }
  }
  assert.ok(storage.stats().handles <= 2);
  assert.equal(storage.stats().opens, 18);
  await storage.close();
});

test("a shard that was replaced is refused with both versions", async () => {
  const path = make("changed", "first");
  const storage = createPosixStorage();
  const { version } = await storage.stat(path).then((v) => ({ version: v }));
  const shared = new SharedArrayBuffer(8);
  assert.equal(await storage.readShared(path, version, shared, 0, 0, 5), 5);
  renameSync(make("changed-new", "second!"), path);
  // The open descriptor goes on with the old content.
  assert.equal(await storage.readShared(path, version, shared, 0, 0, 5), 5);
  assert.equal(Buffer.from(shared.slice(0, 5)).toString(), "first");
  // A fresh storage (another job) sees the new file.
  const other = createPosixStorage();
  await assert.rejects(other.open(path, version), (error: { code: string; message: string }) => {
    assert.equal(error.code, "ATH_SHARD_CHANGED");
    assert.match(error.message, /changed since it was indexed: found 7 bytes of .*expected 5 bytes of /);
    return true;
  });
  // Opened without a version the pooled descriptor is not used; with the new version neither.
  assert.equal((await storage.open(path)).size, 7);
  assert.equal((await storage.open(path, await storage.stat(path))).size, 7);
  await Promise.all([storage.close(), other.close()]);
});

test("a shard that became shorter while open is ATH_SHARD_TRUNCATED with file, offset, found and expected", async () => {
  const path = make("short", pattern);
  const storage = createPosixStorage();
  const object = await storage.open(path);
  truncateSync(path, 50_000);
  await assert.rejects(object.readInto(new Uint8Array(30_000), 40_000), {
    code: "ATH_SHARD_TRUNCATED",
    message: /short, byte 40000: shard is shorter than expected: found 10000 bytes at byte 40000, expected 30000/,
  });
  await storage.close();
});

test("missing files, folders and dangling links are named", async () => {
  const storage = createPosixStorage();
  await assert.rejects(storage.open(join(folder, "no-such")), { code: "ATH_NOT_FOUND" });
  await assert.rejects(storage.open(folder), { code: "ATH_NOT_A_FILE" });
  mkdirSync(join(folder, "links"));
  symlinkSync("nowhere", join(folder, "links", "a"));
  await assert.rejects(storage.names(join(folder, "links")), {
    code: "ATH_NOT_FOUND",
    message: /links\/a: a link that leads nowhere: it leads to nowhere/,
  });
  await storage.close();
});

test("a read that fails is tried three times over fresh descriptors, then named with errno and offset", async () => {
  const storage = createPosixStorage({ backoffMs: 1 });
  // Nothing is mapped at address 0: the kernel answers EIO, as a Lustre client does for a lost OST.
  const read = storage.readShared("/proc/self/mem", undefined, new SharedArrayBuffer(8), 0, 0, 8);
  await assert.rejects(read, {
    code: "ATH_STORAGE_IO",
    message: /^\/proc\/self\/mem, byte 0: the file system answered EIO 3 times/,
  });
  const { opens, retries, handles } = storage.stats();
  assert.deepEqual({ opens, retries, handles }, { opens: 3, retries: 2, handles: 0 });
  await storage.close();
});

test("a link to a folder that the folder lies in brings nothing of what is around it", async () => {
  const storage = createPosixStorage();
  const around = join(folder, "around");
  mkdirSync(join(around, "set", "below"), { recursive: true });
  mkdirSync(join(around, "other"));
  for (const name of ["set/a", "set/below/b", "other/c", "d"]) writeFileSync(join(around, name), "x");
  symlinkSync("..", join(around, "set", "up"));
  symlinkSync("../..", join(around, "set", "below", "up"));
  symlinkSync("/", join(around, "set", "root"));
  symlinkSync("../other", join(around, "set", "beside"));
  assert.deepEqual(await storage.names(join(around, "set")), ["a", "below/b", "beside/c"]);
  await storage.close();
});

test("lists in byte order, follows links once, leaves hidden names out", async () => {
  const root = join(folder, "tree");
  mkdirSync(join(root, "b", ".hidden"), { recursive: true });
  for (const name of ["z", "a", "b/c", "b-c", "\u{1F600}", "\uFFFD", ".x", "b/.hidden/y"])
    writeFileSync(join(root, name), name);
  symlinkSync("..", join(root, "b", "loop"));
  symlinkSync("z", join(root, "link"));
  const storage = createPosixStorage();
  // Byte order: "b-c" before "b/c"; U+FFFD (EF BF BD) before U+1F600 (F0 …), unlike UTF-16 order.
  assert.deepEqual(await storage.names(root), ["a", "b-c", "b/c", "link", "z", "\uFFFD", "\u{1F600}"]);
  const listed = await storage.list(root);
  assert.equal(listed[0]?.version.size, 1);
  await storage.close();
});

test("a hung target is reported and does not stop others; close does not wait for it", async () => {
  const fifo = join(folder, "hung");
  execFileSync("mkfifo", [fifo]);
  const hung: HungRequest[] = [];
  const storage = createPosixStorage({
    threads: 1,
    perTarget: 2,
    hangAfterMs: 100,
    onHang: (request) => hung.push(request),
  });
  const never = storage.open(fifo);
  const refused = assert.rejects(never, { code: "ATH_STORAGE_IO", message: /storage was closed/ });
  const other = make("alive", "alive");
  const started = performance.now();
  assert.equal((await storage.open(other)).size, 5);
  assert.ok(performance.now() - started < 20_000);
  while (hung.length === 0) await new Promise((resolve) => setTimeout(resolve, 20));
  assert.equal(hung[0]?.path, fifo);
  assert.equal(hung[0]?.op, "open");
  assert.equal(storage.hanging().length, 1);
  assert.equal(storage.stats().hung, 1);
  await storage.close();
  await refused;
  // Let the thread go, so that this test process can end.
  closeSync(openSync(fifo, "w"));
});

test("idle threads do not keep the process alive", () => {
  const module = new URL("../../src/storage/posix.js", import.meta.url).href;
  const path = make("idle", "idle");
  const code = `import { createPosixStorage } from ${JSON.stringify(module)};
    const object = await createPosixStorage().open(${JSON.stringify(path)});
    process.stdout.write(String(object.size));`;
  const { stdout, status } = spawnSync(process.execPath, [make("idle.mjs", code)], {
    encoding: "utf8",
    timeout: 50_000,
  });
  assert.equal(stdout, "4");
  assert.equal(status, 0);
});

test("a shard rewritten in place is refused by the very next read over the same descriptor", async () => {
  const path = make("in-place", "first");
  const storage = createPosixStorage();
  const indexed = await storage.stat(path);
  const buffer = new SharedArrayBuffer(5);
  await storage.readShared(path, indexed, buffer, 0, 0, 5);
  const descriptor = openSync(path, "r+");
  writeFileSync(descriptor, "other");
  closeSync(descriptor);
  utimesSync(path, 1e9, 1e9);
  for (let k = 0; k < 2; k++)
    await assert.rejects(storage.readShared(path, indexed, buffer, 0, 0, 5), /changed since it was indexed: found 5/);
  assert.equal(storage.stats().opens, 1);
  await storage.close();
});

test("a shard that another file took the name of goes on as it was, until forget()", async () => {
  const path = make("replaced", "first");
  const storage = createPosixStorage();
  const indexed = await storage.stat(path);
  const buffer = new SharedArrayBuffer(5);
  await storage.readShared(path, indexed, buffer, 0, 0, 5);
  renameSync(make("other", "other"), path);
  await storage.readShared(path, indexed, buffer, 0, 0, 5);
  assert.equal(Buffer.from(new Uint8Array(buffer)).toString(), "first");
  storage.forget();
  await assert.rejects(storage.readShared(path, indexed, buffer, 0, 0, 5), /changed since it was indexed/);
  await storage.close();
});

test("forget(sources) leaves the files of other data open", async () => {
  const storage = createPosixStorage();
  const made = ["one/a", "one/b", "two/a", "two/sub/c", "twofold"].map((name) => {
    mkdirSync(join(folder, "sets", name, ".."), { recursive: true });
    return make(`sets/${name}`, "12345");
  });
  const buffer = new SharedArrayBuffer(5);
  const reopened = async (sources: readonly string[] | undefined): Promise<string[]> => {
    for (const path of made) await storage.readShared(path, undefined, buffer, 0, 0, 5);
    storage.forget(sources?.map((source) => join(folder, "sets", source)));
    const again: string[] = [];
    for (const path of made) {
      const { opens } = storage.stats();
      await storage.readShared(path, undefined, buffer, 0, 0, 5);
      if (storage.stats().opens > opens) again.push(path.slice(folder.length + 6));
    }
    return again;
  };
  assert.deepEqual(await reopened(["two/"]), ["two/a", "two/sub/c", "twofold"]);
  assert.deepEqual(await reopened(["one/*.tfrecord"]), ["one/a", "one/b", "twofold"]);
  assert.deepEqual(await reopened(["one/a"]), ["one/a", "one/b"]);
  assert.deepEqual(await reopened(["two/s?b/**"]), ["two/a", "two/sub/c", "twofold"]);
  assert.equal((await reopened(undefined)).length, 5);
  assert.deepEqual(await reopened([]), []);
  await storage.close();
});

test("who waits for a file to come back can leave; nothing of it is read then", async () => {
  const path = make("away", "");
  truncateSync(path, 100_000);
  const never = new Promise<void>(() => undefined);
  const storage = createPosixStorage({ whenThere: () => never });
  const over = new AbortController();
  const read = storage.readShared(path, undefined, new SharedArrayBuffer(8), 0, 0, 8, over.signal);
  setTimeout(() => over.abort(new Error("the run is over")), 20);
  await assert.rejects(read, /the run is over/);
  assert.equal(storage.stats().bytesRead, 0);
  assert.equal(await storage.close(), true);
});
