import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { findStep } from "../../src/bench/find-step.ts";

test("a serial loader is found by the first probe", async () => {
  const load = 0.004;
  const found = await findStep(65, load, async (stepMs) => (100 * stepMs) / (stepMs + load * 1000));
  assert.equal(found.probes.length, 1);
  assert.ok(Math.abs(found.au - 65) < 0.5);
});

test("a loader that works ahead is found too, and the nearest probe is returned", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.double({ min: 20, max: 95, noNaN: true }),
      fc.double({ min: 0.0001, max: 0.1, noNaN: true }),
      async (wanted, load) => {
        const found = await findStep(wanted, load, async (stepMs) => Math.min(100, (100 * stepMs) / (load * 1000)));
        const best = Math.min(...found.probes.map((probe) => Math.abs(probe.au - wanted)));
        assert.equal(Math.abs(found.au - wanted), best);
        // Its AU equals wanted at load × wanted / 100, which may lie outside a factor 4 of the serial guess only above 75 %.
        if (wanted < 70) assert.ok(best < 2, `asked ${wanted}, found ${found.au}`);
      },
    ),
  );
});
