import assert from "node:assert/strict";
import { test } from "node:test";
import { TargetClocks } from "../../src/storage/target-clocks.ts";

const MIB = 1 << 20;

function clocks(pace: Record<string, number>, reads = 20): TargetClocks {
  const made = new TargetClocks();
  for (let k = 0; k < reads; k++) {
    for (const [target, ms] of Object.entries(pace)) made.add([target], 8 * MIB, 8 * ms);
  }
  return made;
}

test("a target that is slower than the median of its file system is named with how much", () => {
  const slow = clocks({ "x-OST0000": 1, "x-OST0001": 1.2, "x-OST0002": 12, "x-OST0003": 0.9, "y-OST0000": 100 });
  assert.equal(slow.slower("x-OST0002"), 12);
  assert.equal(slow.slower("x-OST0001"), undefined);
  assert.equal(slow.slower("y-OST0000"), undefined, "nobody to compare with");
  assert.deepEqual(
    slow.stats().map(({ target, slower }) => [target, slower]),
    [
      ["x-OST0000", undefined],
      ["x-OST0001", undefined],
      ["x-OST0002", 12],
      ["x-OST0003", undefined],
      ["y-OST0000", undefined],
    ],
  );
  assert.equal(clocks({ "x-OST0000": 1, "x-OST0001": 1, "x-OST0002": 12 }, 7).slower("x-OST0002"), undefined);
  assert.equal(clocks({ "device 1": 1, "device 2": 1, "device 3": 12 }).slower("device 3"), undefined);
});

test("a target that was slow is forgiven, one that becomes slow is noticed", () => {
  const made = clocks({ "x-OST0000": 1, "x-OST0001": 1, "x-OST0002": 10 });
  for (let k = 0; k < 30; k++) {
    made.add(["x-OST0002"], MIB, 1);
    made.add(["x-OST0001"], MIB, 10);
  }
  assert.equal(made.slower("x-OST0002"), undefined);
  assert.ok(made.slower("x-OST0001")! > 5);
});

test("reads over several targets are counted, small ones tell nothing of pace", () => {
  const made = clocks({ "x-OST0000": 1, "x-OST0001": 1, "x-OST0002": 1 });
  for (let k = 0; k < 50; k++) made.add(["x-OST0002"], 2048, 5);
  made.add(["x-OST0000", "x-OST0001"], MIB, 1e6);
  const [first, , third] = made.stats();
  assert.deepEqual(first, { target: "x-OST0000", reads: 20, bytes: 160 * MIB, seconds: 0.16, slowestMs: 8, shared: 1 });
  assert.equal(third!.reads, 70);
  assert.equal(third!.slower, undefined);
});
