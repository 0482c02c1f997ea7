import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { Mixer, permutation } from "../../src/order/mix.ts";
import { vectors } from "./vectors.ts";

const chain = (fields: readonly (string | bigint)[]) => fields.reduce((m, f) => m.bigint(BigInt(f)), new Mixer());

const MASK = (1n << 64n) - 1n;
function plain(fields: readonly bigint[]): bigint {
  let h = 0n;
  for (const field of fields) {
    let z = ((h ^ field) + 0x9e3779b97f4a7c15n) & MASK;
    z = ((z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n) & MASK;
    z = ((z ^ (z >> 27n)) * 0x94d049bb133111ebn) & MASK;
    h = z ^ (z >> 31n);
  }
  return h;
}

test("mix gives the committed vectors", () => {
  for (const { fields, value } of vectors().mix) assert.equal(chain(fields).value, BigInt(value));
});

test("mix in 32-bit halves equals 64-bit arithmetic for any fields", () => {
  fc.assert(
    fc.property(
      fc.array(fc.bigInt({ min: 0n, max: MASK }), { maxLength: 7 }),
      fc.nat({ max: Number.MAX_SAFE_INTEGER }),
      (fields, last) => {
        assert.equal(chain(fields).number(last).value, plain([...fields, BigInt(last)]));
      },
    ),
  );
});

test("permutation gives the committed vectors", () => {
  for (const { prefix, n, perm } of vectors().permutation) assert.deepEqual([...permutation(chain(prefix), n)], perm);
});

test("permutation sorts by all 64 bits, also where the high 32 are equal", () => {
  // 300 000 numbers have some 10 pairs with equal high halves.
  const n = 300_000;
  const prefix = new Mixer().number(11);
  const perm = permutation(prefix, n);
  const seen = new Uint8Array(n);
  let equalHighs = 0;
  let before = prefix.copy().number(perm[0]!);
  seen[perm[0]!] = 1;
  for (let i = 1; i < n; i++) {
    const now = prefix.copy().number(perm[i]!);
    const [a, b] = [before.hi >>> 0, now.hi >>> 0];
    if (a === b) equalHighs++;
    assert.ok(a < b || (a === b && before.lo >>> 0 < now.lo >>> 0), `place ${i}`);
    seen[perm[i]!] = 1;
    before = now;
  }
  assert.ok(seen.every((s) => s === 1));
  assert.ok(equalHighs > 0, "the case was met");
});

test("a permutation does not disturb an earlier one", () => {
  const first = permutation(new Mixer().number(1), 50);
  const copy = [...first];
  permutation(new Mixer().number(2), 5000);
  permutation(new Mixer().number(3), 20);
  assert.deepEqual([...first], copy);
});
