// The calls of `bench storage` on files: bytes, links, short files, and what is written.
import assert from "node:assert/strict";
import {
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import type { TestContext } from "node:test";
import { gzipSync } from "node:zlib";
import { doJob } from "../../src/bench/storage-io.ts";
import type { Job, Listed, Moved } from "../../src/bench/storage-jobs.ts";

const MIB = 1 << 20;
const nothing = (): void => undefined;
const moved = (job: Job): Moved => (doJob(job, nothing) as { moved: Moved }).moved;

function folder(t: TestContext): string {
  const made = mkdtempSync(join(tmpdir(), "athanor-bench-io-"));
  t.after(() => rmSync(made, { recursive: true, force: true }));
  return made;
}

test("bytes counted are bytes on disk; no block is like another one, and none can be compressed", (t) => {
  const path = join(folder(t), "a");
  // More than the buffer: it is written from twice.
  const bytes = 20 * MIB;
  const spans = [{ path, offset: 0, length: bytes }];
  const write: Job = { do: "write", spans, chunk: 16 * MIB, fresh: true, sync: "within" };
  const wrote = moved(write);
  assert.equal(wrote.bytes, bytes);
  assert.ok(wrote.syncMs > 0 && wrote.syncMs <= wrote.end - wrote.begin && wrote.times.length === 1);
  const found = statSync(path);
  assert.equal(found.size, bytes);
  assert.ok(found.blocks * 512 >= bytes, "it has all its blocks");
  const stored = readFileSync(path);
  const blocks = new Set(
    Array.from({ length: bytes / 4096 }, (_, i) => stored.toString("latin1", 4096 * i, 4096 * (i + 1))),
  );
  assert.equal(blocks.size, bytes / 4096);
  assert.ok(gzipSync(stored.subarray(0, MIB)).length > MIB * 0.99);
  assert.equal(moved({ do: "read", spans, chunk: 8 * MIB, direct: false }).bytes, bytes);
  moved({ ...write, fresh: false });
  assert.notDeepEqual(readFileSync(path).subarray(0, 4096), stored.subarray(0, 4096));
});

test("a file that ends early and one behind a link are errors, never fewer bytes", (t) => {
  const at = folder(t);
  writeFileSync(join(at, "a"), Buffer.alloc(5000));
  symlinkSync(join(at, "a"), join(at, "link"));
  const read = (name: string): Job => ({
    do: "read",
    spans: [{ path: join(at, name), offset: 0, length: 5001 }],
    chunk: MIB,
    direct: false,
  });
  assert.throws(() => doJob(read("a"), nothing), { code: "ENODATA" });
  assert.throws(() => doJob(read("link"), nothing), { code: "ELOOP" });
  const write: Job = {
    do: "write",
    spans: [{ path: join(at, "link"), offset: 0, length: 4096 }],
    chunk: MIB,
    fresh: false,
    sync: "within",
  };
  assert.throws(() => doJob(write, nothing), { code: "ELOOP" });
  assert.equal(statSync(join(at, "a")).size, 5000);
});

test("the list has files below, no links and nothing hidden; removing follows no link", (t) => {
  const at = folder(t);
  const outside = folder(t);
  writeFileSync(join(outside, "kept"), "x");
  mkdirSync(join(at, "d/.athanor"), { recursive: true });
  for (const name of ["b", "d/c", "d/.athanor/manifest.json", ".x"]) writeFileSync(join(at, name), "12345");
  symlinkSync(outside, join(at, "d/out"));
  const { files, cut } = doJob({ do: "list", path: at, most: 100 }, nothing) as { files: Listed[]; cut: boolean };
  assert.deepEqual(
    files.map(({ path, size }) => [path, size]),
    [
      [join(at, "b"), 5],
      [join(at, "d/c"), 5],
    ],
  );
  assert.equal(cut, false);
  assert.equal((doJob({ do: "list", path: at, most: 1 }, nothing) as { cut: boolean }).cut, true);
  doJob({ do: "remove", paths: [join(at, "d"), join(at, "none")] }, nothing);
  assert.deepEqual(readdirSync(at), [".x", "b"]);
  assert.deepEqual(readdirSync(outside), ["kept"]);
});
