import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { Schedule, WEIGHT_SUM, wholeWeights } from "../../src/order/schedule.ts";

const weights = fc
  .array(fc.double({ min: 0.001, max: 1, noNaN: true }), { minLength: 1, maxLength: 6 })
  .map(wholeWeights);

test("weights are rounded by largest remainder to a sum of 65536", () => {
  assert.deepEqual(wholeWeights([0.7, 0.2, 0.1]), [45875, 13107, 6554]);
  assert.deepEqual(wholeWeights([1, 1, 1]), [21846, 21845, 21845]);
  assert.deepEqual(wholeWeights([3, 0, 1]), [49152, 0, 16384]);
  for (const wrong of [[], [0, 0], [1, -1], [Number.NaN], [1, Number.POSITIVE_INFINITY], [1, 1e-9]]) {
    assert.throws(() => wholeWeights(wrong), { code: "ATH_ORDER_OPTION" });
  }
});

test("in every prefix of the schedule each source is within 1 of its share, and the period is exact", () => {
  fc.assert(
    fc.property(weights, (w) => {
      const schedule = new Schedule(w);
      const counts = w.map(() => 0);
      for (let row = 0; row < WEIGHT_SUM; row++) {
        const source = schedule.at(row);
        if (row % 997 === 0) assert.equal(schedule.rank(row), counts[source]);
        counts[source]!++;
        for (const [i, count] of counts.entries()) {
          assert.ok(Math.abs(count - ((row + 1) * w[i]!) / WEIGHT_SUM) < 1, `source ${i} after row ${row}`);
        }
      }
      assert.deepEqual(counts, w);
    }),
    { numRuns: 8 },
  );
});

test("count, nth and rank say what at says, over many periods", () => {
  fc.assert(
    fc.property(weights, fc.nat({ max: 3 * WEIGHT_SUM }), fc.nat({ max: 500 }), (w, from, length) => {
      const schedule = new Schedule(w);
      const counts = w.map((_, i) => schedule.count(i, from));
      assert.equal(
        counts.reduce((a, b) => a + b, 0),
        from,
      );
      for (let row = from; row < from + length; row++) {
        const source = schedule.at(row);
        assert.equal(schedule.nth(source, counts[source]!), row);
        assert.equal(schedule.rank(row), counts[source]);
        counts[source]!++;
        assert.equal(schedule.count(source, row + 1), counts[source]);
      }
    }),
    { numRuns: 30 },
  );
});
