import assert from "node:assert/strict";
import { test } from "node:test";
import { contenders } from "../../src/bench/contenders.ts";
import { windowMemory } from "../../src/bench/passes.ts";

test("athanor appears once a mode, in the order of the table", () => {
  const names = contenders("athanor,naive", "both").map((contender) => contender.name);
  assert.deepEqual(names, ["naive", "athanor window", "athanor global"]);
});

test("an unknown contender is named", () => {
  assert.throws(() => contenders("memmap,tfdata", "both"), /"tfdata"/);
});

test("a view that fits gets a quarter of its nominal bytes, so that window means window", () => {
  assert.deepEqual(windowMemory(100_000, 512), { bytes: 102_400_000, lowered: true });
  assert.deepEqual(windowMemory(10_000_000, 512), { bytes: 2 ** 30, lowered: false });
});
