import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { Epochs } from "../../src/order/epochs.ts";
import { advance, skip } from "../../src/order/skip.ts";
import type { LastRule, OrderState } from "../../src/order/types.ts";

function stateAt(position: number, last: LastRule = "carry", samples = 100, G = 12, from = 0): OrderState {
  return {
    version: 1,
    seed: "7",
    position: String(position),
    sources: [
      {
        name: "data",
        view: "0123456789abcdef0123456789abcdef",
        samples: String(samples),
        L: 2,
        window: 30,
        extent: 1,
        shuffle: "window",
      },
    ],
    segments: [
      {
        from: String(from),
        sources: [0],
        weights: [65536],
        L: 2,
        last,
        G,
      },
    ],
  };
}

test("batches, samples and a range of steps give whole optimizer batches, and only the position changes", () => {
  const before = stateAt(24);
  const byBatches = skip(before, { batches: 3 });
  assert.deepEqual(byBatches.state, { ...before, position: "60" });
  assert.deepEqual([byBatches.firstStep, byBatches.lastStep, byBatches.extra, byBatches.into], [3, 5, 0, 0]);
  const bySamples = skip(before, { samples: 25 });
  assert.deepEqual([bySamples.to, bySamples.extra], [60, 11]);
  assert.equal(skip(before, { samples: 36 }).extra, 0);
  assert.equal(skip(before, { fromStep: 3, toStep: 5 }).to, 60);
  // A range that the state has begun: its rest.
  assert.equal(skip(before, { fromStep: 1, toStep: 5 }).to, 60);
  assert.deepEqual(skip(before, { batches: 7 }).epochs, [0, 1]);
});

test("a state inside an optimizer batch loses the rest of it, and says so", () => {
  const { to, extra, into, firstStep, lastStep } = skip(stateAt(30), { batches: 2 });
  assert.deepEqual([to, extra, into, firstStep, lastStep], [60, 6, 6, 3, 5]);
});

test("the short last batch of an epoch is one, with pad", () => {
  // Epochs of 100 = 8 batches of 12 and one of 4.
  assert.equal(skip(stateAt(96, "pad"), { batches: 1 }).to, 100);
  assert.equal(skip(stateAt(96, "pad"), { batches: 2 }).to, 112);
  assert.deepEqual(
    [skip(stateAt(96, "pad"), { samples: 5 }).to, skip(stateAt(96, "pad"), { samples: 4 }).to],
    [112, 100],
  );
  assert.equal(skip(stateAt(0, "pad"), { fromStep: 1, toStep: 10 }).to, 112);
});

test("what cannot be left out is refused", () => {
  const cases: [Parameters<typeof skip>[1], RegExp][] = [
    [{ fromStep: 5, toStep: 6 }, /stands after optimizer step 2: leaving out 5 to 6 would leave out 3 to 4, too/],
    [{ fromStep: 1, toStep: 2 }, /nothing to leave out/],
    [{ fromStep: 3, toStep: 2 }, /the last step must be a whole number ≥ 3/],
    [{ batches: 0 }, /batches must be/],
    [{ samples: 1.5 }, /samples must be/],
  ];
  for (const [amount, message] of cases)
    assert.throws(() => skip(stateAt(24), amount), { code: "ATH_ORDER_OPTION", message });
  assert.throws(() => skip(stateAt(24), { batches: 2 ** 52 }), { code: "ATH_ORDER_POSITION" });
  assert.throws(() => skip(stateAt(24, "carry", 100, 12, 36), { batches: 1 }), { code: "ATH_ORDER_POSITION" });
});

test("behind a ramp batches are counted by their own sizes", () => {
  const ramped = stateAt(24);
  ramped.segments.push({ ...ramped.segments[0]!, from: "36", G: 20 });
  const skipped = skip(ramped, { batches: 3 });
  assert.deepEqual([skipped.to, skipped.firstStep, skipped.lastStep], [76, 3, 5]);
  assert.equal(skip(ramped, { samples: 13 }).to, 56);
  assert.equal(skip(ramped, { fromStep: 3, toStep: 4 }).to, 56);
});

test("steps after changes of G in earlier epochs, of which a state forgets some: the wrong steps are left out", () => {
  // Between these was one of G = 20: 3 + 3 steps up to 96, not 8.
  const ramped = stateAt(640);
  ramped.segments.push({ ...ramped.segments[0]!, from: "96", G: 40 });
  const message = /does not know how many optimizer steps/;
  assert.throws(() => skip(ramped, { fromStep: 17, toStep: 18 }), { code: "ATH_ORDER_OPTION", message });
  const { from, to, counted } = skip(ramped, { batches: 1 });
  assert.deepEqual([from, (to - 96) % 40, counted], [640, 0, false]);
  assert.equal(skip(stateAt(640), { batches: 1 }).counted, true);
});

test("consumed samples become a position at a border", () => {
  assert.deepEqual(advance(stateAt(0), 0), { state: stateAt(0), extra: 0 });
  assert.deepEqual(advance(stateAt(0), 36), { state: stateAt(36), extra: 0 });
  assert.deepEqual(advance(stateAt(0), 37), { state: stateAt(48), extra: 11 });
  assert.throws(() => advance(stateAt(0), -1), { code: "ATH_ORDER_OPTION" });
});

test("every skip ends where a batch of the loader begins, and skips add up", () => {
  const rules = fc.constantFrom<LastRule>("carry", "drop", "pad");
  const size = fc.integer({ min: 1, max: 40 });
  fc.assert(
    fc.property(rules, size, size, fc.nat(200), fc.nat(100), size, size, (last, samples, g, at, from, n, m) => {
      const G = last === "drop" ? Math.min(g, samples) : g;
      const start = stateAt(from + at, last, samples, G, from);
      const once = skip(start, { batches: n + m });
      const twice = skip(skip(start, { batches: n }).state, { batches: m });
      assert.equal(once.to, twice.to);
      assert.equal(skip(start, { fromStep: once.firstStep, toStep: once.lastStep }).to, once.to);
      const length = last === "drop" ? samples - (samples % G) : samples;
      // Walking the loader's steps from the segment's beginning comes by here.
      const epochs = new Epochs([{ from, epoch: 0, into: 0, length }], [{ from, size: G }], last);
      let border = from;
      while (border < once.to) border = epochs.stepEnd(border, G);
      assert.equal(border, once.to);
      assert.ok(skip(start, { samples: n }).to >= from + at + n);
    }),
  );
});
