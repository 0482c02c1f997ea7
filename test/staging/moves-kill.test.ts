// Moves whose end nobody wrote down, and files that are no plain ones of the folder.
import assert from "node:assert/strict";
import { readFileSync, renameSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { MOVES_JOURNAL } from "../../src/staging/moves.ts";
import type { MoveResult } from "../../src/staging/moves.ts";
import { WELL, plainLov, replay, shards } from "../lustre/replay.ts";

const LFS = { ...WELL, migrate: { migrates: "well" as const } };

test("killed behind a move and before its line: the next run says that it was moved, and its undo", (t) => {
  const here = replay(t, { files: shards([[0], [3], [3], [3]]), lfs: LFS });
  const folder = join(here.folder, "d");
  const { size, mtimeNs } = statSync(join(folder, "train-000.tar"), { bigint: true });
  const facts = { size: Number(size), mtimeNs: String(mtimeNs), crc32c: null };
  const begin = { state: "begin", path: "train-000.tar", from: 3, to: 0, undo: "lfs migrate -o 3 X", ...facts };
  const lines = [{ athanor: "moves", version: 1, from: folder }, begin].map((line) => `${JSON.stringify(line)}\n`);
  writeFileSync(join(folder, MOVES_JOURNAL), lines.join(""));
  const done = here.run("apply", "d", "--migrate", "--apply", "--json");
  assert.equal(done.code, 0, done.stderr);
  const { notes } = JSON.parse(done.stdout) as MoveResult;
  assert.match(
    notes.join(),
    /train-000\.tar was being moved .*: size and mtime are as before; it was moved, undo: lfs/,
  );
  const [, , end] = readFileSync(join(folder, MOVES_JOURNAL), "utf8").split("\n");
  assert.deepEqual(JSON.parse(end!), { state: "moved", path: "train-000.tar" });
});

test("a link stays: who reads what it leads to knows that by another name", (t) => {
  const here = replay(t, { files: shards([[3], [3], [3], [3]]), lfs: LFS });
  const [name, elsewhere] = ["d/train-000.tar", "shared.tar"].map((path) => join(here.folder, path));
  renameSync(name!, elsewhere!);
  symlinkSync(elsewhere!, name!);
  const done = here.run("apply", "d", "--migrate", "--apply", "--json");
  const { moved, stayed } = JSON.parse(done.stdout) as MoveResult;
  assert.deepEqual(
    stayed.map(({ path }) => path),
    ["train-000.tar"],
  );
  assert.match(stayed[0]!.why, /it is a link/);
  assert.ok(moved.length > 0);
  assert.deepEqual(here.ostsOf(["shared.tar"]), [3]);
});

test("several stripes on one OST stay: no option of lfs lays them on one OST again", (t) => {
  const files = { ...shards([[3], [3], [3], [3]]), "d/train-001.tar": { size: 64 << 20, lov: plainLov([3, 3]) } };
  const here = replay(t, { files, lfs: LFS });
  const done = here.run("apply", "d", "--migrate", "--apply", "--json");
  const { moved, stayed } = JSON.parse(done.stdout) as MoveResult;
  assert.deepEqual(stayed, []);
  assert.ok(moved.length > 0 && moved.every(({ path }) => path !== "train-001.tar"));
});

test("others are found behind hundreds of files that HSM has an archive of", async (t) => {
  const osts = Array.from({ length: 260 }, () => [3]);
  const files = shards(osts);
  // The largest gain first: those come last.
  const names = Object.keys(files).sort();
  const free = new Set(names.slice(-3));
  const each = Object.fromEntries(
    names.map((name) => [`/mnt/lustre/${name}`, free.has(name) ? ": (0x00000000)" : ": (0x00000009) exists archived"]),
  );
  const here = replay(t, { files, lfs: { ...LFS, hsm_state: { each: { "*": "", ...each } } } });
  const told = await here.report("d", { advise: true });
  for (const name of free) assert.ok(told.includes(`/mnt/lustre/${name}`), name);
});
