import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { Feistel } from "../../src/order/feistel.ts";
import { vectors } from "./vectors.ts";

test("Feistel gives the committed vectors", () => {
  for (const { seed, source, epoch, n, out } of vectors().feistel) {
    const feistel = new Feistel(BigInt(seed), source, epoch, n);
    assert.deepEqual(
      out.map((_, p) => feistel.at(p)),
      out,
    );
  }
});

test("Feistel is a permutation of any size", () => {
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 3000 }), fc.bigInt({ min: 0n, max: (1n << 64n) - 1n }), (n, seed) => {
      const feistel = new Feistel(seed, 0, 1, n);
      const seen = new Set(Array.from({ length: n }, (_, p) => feistel.at(p)));
      assert.equal(seen.size, n);
      assert.ok(Math.max(...seen) === n - 1);
    }),
    { numRuns: 40 },
  );
});

test("Feistel stays exact near 2^53 samples", () => {
  const n = 2 ** 53 - 1;
  const feistel = new Feistel(9n, 0, 0, n);
  for (const p of [0, 1, n - 1]) {
    const value = feistel.at(p);
    assert.ok(Number.isSafeInteger(value) && value >= 0 && value < n);
  }
});
