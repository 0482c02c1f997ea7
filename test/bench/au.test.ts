import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { samplesPerSecond, serialStep, speedupBound, stepOfRatio, utilisation } from "../../src/bench/au.ts";

test("AU is compute time over running time, the mean over ranks", () => {
  assert.equal(utilisation([{ compute_s: 6.5, total_s: 10 }]), 65);
  assert.equal(
    utilisation([
      { compute_s: 5, total_s: 10 },
      { compute_s: 9, total_s: 10 },
    ]),
    70,
  );
});

test("AU is undefined without an emulated step", () => {
  assert.equal(utilisation([{ compute_s: 0, total_s: 10 }]), undefined);
  assert.equal(utilisation([]), undefined);
});

test("samples a second count all ranks over the slowest clock", () => {
  assert.equal(
    samplesPerSecond([
      { samples: 100, total_s: 1 },
      { samples: 300, total_s: 2 },
    ]),
    200,
  );
});

test("the story's bound: AU 65 % allows 1.54 x", () => {
  assert.equal(speedupBound(65).toFixed(2), "1.54");
});

test("a serial loader reaches the AU it is asked for at its serial step", () => {
  fc.assert(
    fc.property(
      fc.double({ min: 1e-5, max: 10, noNaN: true }),
      fc.double({ min: 1, max: 99, noNaN: true }),
      (load, au) => {
        const step = serialStep(load, au);
        const reached = utilisation([{ compute_s: step, total_s: step + load }]);
        assert.ok(reached !== undefined && Math.abs(reached - au) < 1e-6);
      },
    ),
  );
});

test("at the step of a ratio naive takes that ratio of our epoch", () => {
  const ratio = 120 / 35;
  fc.assert(
    fc.property(
      fc.double({ min: 1e-5, max: 10, noNaN: true }),
      fc.double({ min: 1e-6, max: 10, noNaN: true }),
      (naive, ours) => {
        const step = stepOfRatio(naive, ours, ratio);
        if (step !== undefined) assert.ok(Math.abs((step + naive) / Math.max(step, ours) - ratio) < 1e-9);
        // The quotient is greatest where the step is as long as our load.
        else assert.ok((ours + naive) / ours < ratio);
      },
    ),
  );
});
