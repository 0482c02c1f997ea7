// A copy of a folder as a user makes it: whole and verified, gone on with after a kill, never half a file under its name.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { randomBytes } from "node:crypto";
import {
  appendFileSync,
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import type { TestContext } from "node:test";
import { isTemporary } from "../../src/base/atomic-write.ts";
import { buildIndex } from "../../src/dataset/index-build.ts";
import { JOURNAL } from "../../src/staging/copy-plan.ts";
import { Files } from "../../src/staging/files.ts";
import { createPosixStorage } from "../../src/storage/posix.ts";
import { MAIN, athanor } from "../cli/athanor.ts";
import { remove, writeShards } from "../feed/rig.ts";

const MIB = 2 ** 20;

function folder(t: TestContext): string {
  const made = mkdtempSync(join(tmpdir(), "athanor-copy-"));
  t.after(() => rmSync(made, { recursive: true, force: true }));
  return made;
}

/** Files of random bytes, by name. */
function data(t: TestContext, sizes: Record<string, number>): { from: string; to: string } {
  const base = folder(t);
  for (const [name, size] of Object.entries(sizes)) {
    mkdirSync(join(base, "d", name, ".."), { recursive: true });
    writeFileSync(join(base, "d", name), randomBytes(size));
  }
  return { from: join(base, "d"), to: join(base, "e") };
}

function all(path: string): string[] {
  return (readdirSync(path, { recursive: true }) as string[])
    .filter((name) => statSync(join(path, name)).isFile())
    .sort();
}

function assertSame(from: string, to: string): void {
  assert.deepEqual(all(to), all(from));
  for (const name of all(from)) {
    const [a, b] = [join(from, name), join(to, name)];
    assert.ok(readFileSync(a).equals(readFileSync(b)), `${name} holds the same bytes`);
    const [s, c] = [statSync(a, { bigint: true }), statSync(b, { bigint: true })];
    assert.equal(c.mtimeNs, s.mtimeNs, `mtime of ${name}`);
    assert.equal(c.mode, s.mode, `mode of ${name}`);
    assert.equal(c.uid, s.uid, `owner of ${name}`);
  }
}

test("a set with its index: the copy has the same bytes, times and modes, and is read without indexing", async (t) => {
  const from = writeShards([40, 25], 1000);
  t.after(() => remove(from));
  const storage = createPosixStorage();
  t.after(() => storage.close());
  const before = await buildIndex(from, { storage });
  const shard = join(
    from,
    all(from).find((name) => name.endsWith(".tfrecord"))!,
  );
  chmodSync(shard, 0o440);
  if (process.geteuid?.() === 0) chownSync(shard, 12_345, 12_345);
  const to = join(folder(t), "copy");
  const would = athanor("layout", "apply", from, "--copy-to", to);
  assert.match(would.stdout, /^would copy \d+ files, .*\nnothing was changed: --apply does it\n$/);
  assert.ok(!existsSync(to));
  const ran = athanor("layout", "apply", from, "--copy-to", to, "--apply", "--json");
  assert.equal(ran.code, 0, ran.stderr);
  const { applied } = JSON.parse(ran.stdout) as { applied: { index: string; files: number; otherTimes: number } };
  assert.deepEqual([applied.index, applied.otherTimes], ["fits", 0]);
  assertSame(from, to);
  const read: string[] = [];
  const after = await buildIndex(to, { storage, onRead: (shard) => read.push(shard) });
  assert.deepEqual([after.fingerprint, read], [before.fingerprint, []]);
  for (const [target, why] of [
    [to, /is there already/],
    [join(to, all(to)[0]!), /is a file, expected a new folder/],
    [join(from, "inside"), /one of the two folders lies in the other/],
  ] as const) {
    const refused = athanor("layout", "apply", from, "--copy-to", target, "--json");
    assert.deepEqual([refused.code, refused.error().code], [2, "ATH_COPY_TARGET"]);
    assert.match(refused.error().message, why);
  }
});

/** A copy in a process of its own, slow enough to be met half way: a MiB is read for a second, and then read back. */
function begin(from: string, to: string): ChildProcess {
  return spawn(process.execPath, [MAIN, "layout", "apply", from, "--copy-to", to, "--bandwidth", "1MiB", "--apply"], {
    stdio: ["ignore", "ignore", "pipe"],
  });
}

const journaled = (to: string): number =>
  existsSync(join(to, JOURNAL)) ? readFileSync(join(to, JOURNAL), "utf8").split("\n").length - 2 : -1;

async function until(what: string, holds: () => boolean): Promise<void> {
  for (const end = Date.now() + 60_000; !holds();) {
    if (Date.now() > end) throw new Error(`never: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

const temporaries = (to: string): string[] => readdirSync(to).filter(isTemporary);

test("killed half way, twice, it goes on: every byte is there once, and nothing half ever had its name", async (t) => {
  const sizes = Object.fromEntries([1, 2, 3, 4, 5].map((i) => [`${i}.bin`, MIB + i * 4097]));
  const { from, to } = data(t, sizes);
  const first = begin(from, to);
  let said = "";
  first.stderr!.on("data", (text: Buffer) => (said += text.toString()));
  await until("a file is copied and the next one under way", () => journaled(to) >= 1 && temporaries(to).length === 1);
  const ended = new Promise((resolve) => first.once("close", (_, signal) => resolve(signal)));
  first.kill("SIGINT");
  assert.equal(await ended, "SIGINT");
  assert.match(said, /stopped; the same line goes on/);
  const second = begin(from, to);
  await until("two files are copied", () => journaled(to) >= 2 && temporaries(to).length === 1);
  second.kill("SIGKILL");
  await new Promise((resolve) => second.once("close", resolve));
  const there = readdirSync(to).filter((name) => name.endsWith(".bin"));
  assert.ok(there.length >= 2 && there.length < 5, there.join(" "));
  for (const name of there) assert.ok(readFileSync(join(to, name)).equals(readFileSync(join(from, name))), name);
  const kept = statSync(join(to, "1.bin")).ino;
  // What a kill in the middle of a write leaves, and a file that was damaged meanwhile.
  appendFileSync(join(to, JOURNAL), '{"path":"3.b');
  writeFileSync(join(to, "2.bin"), "short");
  const would = athanor("layout", "apply", from, "--copy-to", to);
  const again = `would copy ${6 - there.length} files, .*\\n {2}${there.length - 1} files?, .* there from an earlier run\\n`;
  assert.match(would.stdout, new RegExp(again));
  const last = athanor("layout", "apply", from, "--copy-to", to, "--apply");
  assert.equal(last.code, 0, last.stderr);
  assertSame(from, to);
  assert.equal(statSync(join(to, "1.bin")).ino, kept, "a file that was done is not copied again");
});

test("a source that changes is named, and leaves no copy under its name", async (t) => {
  const { from, to } = data(t, { "a.bin": 1000, "b.bin": 4 * MIB });
  const running = begin(from, to);
  let said = "";
  running.stderr!.on("data", (text: Buffer) => (said += text.toString()));
  await until("b.bin is being copied", () => journaled(to) >= 1 && temporaries(to).length === 1);
  appendFileSync(join(from, "b.bin"), "more");
  assert.equal(await new Promise((resolve) => running.once("close", resolve)), 1);
  assert.match(said, /b\.bin: changed while it was copied: found 4194308 bytes.*ATH_COPY_SOURCE_CHANGED/);
  assert.deepEqual(readdirSync(to).sort(), [JOURNAL, "a.bin"]);
  // One that was done already: two ages in one set.
  utimesSync(join(from, "a.bin"), 1e9, 1e9);
  const refused = athanor("layout", "apply", from, "--copy-to", to, "--apply", "--json");
  assert.deepEqual([refused.error().code, refused.error().file], ["ATH_COPY_SOURCE_CHANGED", join(from, "a.bin")]);
});

test("a file that was copied and is gone from the source: no copy with a shard too many", async (t) => {
  const { from, to } = data(t, { "a.bin": 1000, "b.bin": 3 * MIB });
  const running = begin(from, to);
  await until("b.bin is being copied", () => journaled(to) >= 1 && temporaries(to).length === 1);
  running.kill("SIGKILL");
  await new Promise((resolve) => running.once("close", resolve));
  rmSync(join(from, "a.bin"));
  const again = ["layout", "apply", from, "--copy-to", to, "--apply", "--json"];
  const refused = athanor(...again);
  assert.deepEqual([refused.error().code, refused.error().file], ["ATH_COPY_SOURCE_CHANGED", join(from, "a.bin")]);
  rmSync(join(to, "a.bin"));
  assert.equal(athanor(...again).code, 0);
  assertSame(from, to);
});

test("a copy that is not what was written is found when it is read back, and not kept", async (t) => {
  const { from, to } = data(t, { "a.bin": 3 * MIB });
  mkdirSync(to);
  const files = new Files();
  t.after(() => files.close());
  const { size, mtimeNs } = statSync(join(from, "a.bin"), { bigint: true });
  const expected = { size: Number(size), mtimeNs };
  const began = performance.now();
  const copy = files.call({
    op: "copy",
    from: join(from, "a.bin"),
    to: join(to, "a.bin"),
    expected,
    bandwidth: 2 * MIB,
  });
  const caught = assert.rejects(copy, /a\.bin: the copy is not what was written: read back 3145728 bytes of CRC32C/);
  await until("it writes", () => temporaries(to).some((name) => statSync(join(to, name)).size > 0));
  const path = join(to, temporaries(to)[0]!);
  // A bit of what lies there already.
  const { open } = await import("node:fs/promises");
  const handle = await open(path, "r+");
  const byte = Buffer.alloc(1);
  await handle.read(byte, 0, 1, 10);
  byte[0]! ^= 4;
  await handle.write(byte, 0, 1, 10);
  await handle.close();
  await caught;
  // 3 MiB read twice at 2 MiB/s take 3 s, but for the first piece: a limit that did nothing would take a tenth of that.
  assert.ok(performance.now() - began > 2000, "the limit is kept");
  assert.deepEqual(readdirSync(to), []);
});

test("a journal is not written through a link that somebody else may have laid", async (t) => {
  const base = folder(t);
  const files = new Files();
  t.after(() => files.close());
  symlinkSync(join(base, "elsewhere"), join(base, JOURNAL));
  await assert.rejects(files.call({ op: "append", path: join(base, JOURNAL), text: "{}\n" }), /ELOOP/);
  assert.ok(!existsSync(join(base, "elsewhere")));
});

test("folders are made one by one: where none can be, that is an error and not for ever", async (t) => {
  const base = folder(t);
  const files = new Files({ tell: () => undefined });
  t.after(() => files.close());
  mkdirSync(join(base, "m/b/c"), { recursive: true });
  chmodSync(join(base, "m/b"), 0o750);
  chmodSync(join(base, "m/b/c"), 0o500);
  await files.call({ op: "folder", path: join(base, "a/b/c"), like: join(base, "m/b/c") });
  await files.call({ op: "folder", path: join(base, "a/b/c"), like: join(base, "m/b/c") });
  assert.equal(statSync(join(base, "a/b")).mode, statSync(join(base, "m/b")).mode);
  assert.equal(statSync(join(base, "a/b/c")).mode & 0o777, 0o700, "whose owner can write");
  await assert.rejects(files.call({ op: "folder", path: "/proc/nothing/x", like: base }), { code: "ATH_COPY_WRITE" });
  symlinkSync(join(base, "gone"), join(base, "link"));
  await assert.rejects(files.call({ op: "folder", path: join(base, "link/x"), like: base }), {
    code: "ATH_COPY_WRITE",
  });
});
