import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { median, ratios, spread } from "../../src/bench/statistics.ts";

test("median of odd and even counts", () => {
  assert.equal(median([3, 1, 2]), 2);
  assert.equal(median([4, 1, 3, 2]), 2.5);
  assert.throws(() => median([]), RangeError);
});

test("median leaves its input as it was and lies between least and greatest", () => {
  fc.assert(
    fc.property(
      fc.array(fc.double({ noNaN: true, noDefaultInfinity: true, min: -1e9, max: 1e9 }), { minLength: 1 }),
      (values) => {
        const before = [...values];
        const { median: middle, min, max } = spread(values);
        assert.deepEqual(values, before);
        assert.ok(min <= middle && middle <= max);
        assert.ok(values.filter((value) => value <= middle).length * 2 >= values.length);
      },
    ),
  );
});

test("ratios are formed inside a pass: a slow pass of both moves nothing", () => {
  const value = new Map([
    [0, 300],
    [1, 30],
    [2, 150],
  ]);
  const base = new Map([
    [0, 100],
    [1, 10],
    [2, 100],
  ]);
  assert.deepEqual(ratios(value, base), { median: 3, min: 1.5, max: 3 });
});

test("passes that only one of both ran are left out", () => {
  assert.deepEqual(
    ratios(
      new Map([
        [0, 4],
        [3, 9],
      ]),
      new Map([[0, 2]]),
    ),
    { median: 2, min: 2, max: 2 },
  );
  assert.equal(ratios(new Map([[5, 1]]), new Map([[0, 1]])), undefined);
});
