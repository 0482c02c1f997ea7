/** Ones at the head of a mask, against a plain loop. */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { prefixCounter } from "../../src/formats/prefix.ts";

const plain = (list: readonly number[]): number => {
  const ones = list.findIndex((value) => value !== 1);
  return ones < 0 ? list.length : list.slice(ones).every((value) => value === 0) ? ones : -1;
};

test("the ones of a mask are counted in every type, and what is no mask is seen, wherever it breaks", () => {
  const value = fc.constantFrom(0, 1, 1, 2, -1);
  const mask = fc
    .tuple(fc.nat({ max: 40 }), fc.nat({ max: 40 }))
    .map(([ones, zeros]) => [...(Array(ones).fill(1) as number[]), ...(Array(zeros).fill(0) as number[])]);
  const broken = fc.tuple(mask, fc.nat(), value).map(([list, at, other]) => {
    if (list.length > 0) list[at % list.length] = other;
    return list;
  });
  fc.assert(
    fc.property(fc.oneof(mask, broken, fc.array(value)), fc.nat({ max: 5 }), (list, before) => {
      const all = [...(Array(before).fill(9) as number[]), ...list, 9];
      const lists = [
        Int32Array.from(all),
        Int8Array.from(all),
        BigInt64Array.from(all, BigInt),
        Float64Array.from(all),
      ];
      for (const values of lists) {
        assert.equal(prefixCounter(values)(before, before + list.length), plain(list), values.constructor.name);
      }
    }),
    { numRuns: 500 },
  );
});

test("a mask longer than what is compared at once", () => {
  const values = new Int32Array(10_000).fill(1, 0, 6000);
  assert.equal(prefixCounter(values)(0, 10_000), 6000);
  values[9999] = 1;
  assert.equal(prefixCounter(values)(0, 10_000), -1);
});
