// What a folder should be, and whether it is.
import assert from "node:assert/strict";
import { test } from "node:test";
import { advise, useOf } from "../../src/lustre/advice.ts";
import type { AdviceInput } from "../../src/lustre/advice.ts";
import { parseGetstripe } from "../../src/lustre/getstripe.ts";
import type { Layout } from "../../src/lustre/layout.ts";
import { decodeLov } from "../../src/lustre/lov.ts";
import { recorded } from "./fixtures.ts";
import { plainLov } from "./replay.ts";

const GIB = 2 ** 30;
const plain = (count: number, size = 4 << 20, more = ""): Layout =>
  parseGetstripe(`stripe_count: ${count} stripe_size: ${size} pattern: raid0 stripe_offset: -1${more}`, "/d")[0]!
    .layout;
const file = (size: number, osts = [0]) => ({ path: `f${size}`, size, layout: decodeLov(plainLov(osts), "/f") });
const base: AdviceInput = {
  folder: "/mnt/l/d",
  use: "shards",
  files: [file(GIB)],
  count: 1000,
  osts: 16,
  current: plain(1),
  above: plain(1),
  mount: plain(1),
  slowLinks: false,
};
const command = (input: Partial<AdviceInput>): string | undefined => advise({ ...base, ...input }).change?.command;

test("shards: one OST each when there are many, four when they are few or large", () => {
  assert.equal(command({}), undefined);
  assert.equal(command({ count: 10 }), "lfs setstripe -c 4 -S 4M /mnt/l/d");
  assert.equal(command({ files: [file(20 * GIB)] }), "lfs setstripe -c 4 -S 4M /mnt/l/d");
  assert.equal(command({ count: 2, osts: 3 }), "lfs setstripe -c 3 -S 4M /mnt/l/d");
  assert.equal(command({ current: plain(16) }), "lfs setstripe -c 1 -S 4M /mnt/l/d");
  assert.equal(command({ slowLinks: true }), "lfs setstripe -c 8 -S 4M /mnt/l/d");
});

test("a default that is not far off is left alone; small stripes are not", () => {
  assert.equal(command({ current: plain(4) }), undefined);
  assert.notEqual(command({ current: plain(8) }), undefined);
  assert.notEqual(command({ current: plain(4), use: "small-files" }), undefined);
  assert.equal(command({ current: plain(2) }), undefined);
  assert.equal(command({ count: 10, current: plain(2) }), undefined);
  assert.notEqual(command({ current: plain(2, 65_536) }), undefined);
});

test("checkpoints: a layout that grows is left alone, one stripe is not", () => {
  assert.equal(
    command({ use: "checkpoints" }),
    "lfs setstripe -E 1G -c 1 -S 4M -E 16G -c 4 -S 4M -E -1 -c 8 -S 16M /mnt/l/d",
  );
  const grows = parseGetstripe(recorded("getstripe-y-pfl-dir.txt"), "/d")[0]!.layout;
  assert.equal(command({ use: "checkpoints", current: grows, osts: 8 }), undefined);
  assert.equal(command({ use: "checkpoints", osts: 1 }), undefined);
});

test("the undo gives what was there: none of its own where the whole file system has the same", () => {
  const undo = (input: Partial<AdviceInput>): string | undefined => advise({ ...base, ...input }).change?.undo;
  assert.equal(undo({ count: 10 }), "lfs setstripe -d /mnt/l/d");
  assert.equal(undo({ current: plain(16) }), "lfs setstripe -c 16 -S 4M /mnt/l/d");
  assert.equal(undo({ current: undefined }), undefined);
  // A default of the folder above was copied when this one was made: without one of its own it would have that of the file system.
  assert.equal(undo({ current: plain(16), above: plain(16) }), "lfs setstripe -c 16 -S 4M /mnt/l/d");
  assert.equal(undo({ count: 10, mount: undefined }), "lfs setstripe -c 1 -S 4M /mnt/l/d");
});

test("the pool of the folder is kept, of the one above, too", () => {
  const pooled = plain(16, 4 << 20, " pool: flash");
  assert.equal(command({ current: pooled }), "lfs setstripe -c 1 -S 4M -p flash /mnt/l/d");
  assert.equal(command({ count: 10, above: pooled }), "lfs setstripe -c 4 -S 4M -p flash /mnt/l/d");
});

test("files that are striped otherwise are named with the reason", () => {
  const wide = file(GIB, [0, 1, 2, 3, 4, 5, 6, 7]);
  const { misfits } = advise({ ...base, files: [file(GIB), wide] });
  assert.equal(misfits.length, 1);
  assert.match(misfits[0]!.why, /over 8 OSTs, 1 would do/);
});

test("what a folder is for, by names and sizes", () => {
  const many = (name: string, size: number) => Array.from({ length: 200 }, (_, i) => ({ path: `${i}${name}`, size }));
  assert.equal(useOf("/mnt/l/run/checkpoints", []), "checkpoints");
  assert.equal(useOf("/mnt/l/run", many("/mp_rank_00_model_states.pt", GIB)), "checkpoints");
  assert.equal(useOf("/mnt/l/pictures", many(".jpg", 100_000)), "small-files");
  assert.equal(useOf("/mnt/l/d", many(".tar", GIB)), "shards");
  assert.equal(useOf("/mnt/l/d", []), "shards");
});
