// Byte ranges → OSTs, against the same rule byte by byte.
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { parseGetstripe } from "../../src/lustre/getstripe.ts";
import { END_OF_FILE, emptyComponent, ostAt, readComponents, spreadOf } from "../../src/lustre/layout.ts";
import type { Component, Layout } from "../../src/lustre/layout.ts";
import { recorded, sampled } from "./fixtures.ts";

const layoutOf = (text: string): Layout => parseGetstripe(text, "/f")[0]!.layout;

test("stripes count from the beginning of the file, not of the component", () => {
  const layout = layoutOf(recorded("getstripe-y-pfl.txt"));
  const at = (mib: number): unknown => ostAt(layout, BigInt(mib) << 20n);
  assert.deepEqual([at(0), at(63), at(64), at(68), at(72), at(76), at(80)], [1, 1, 1, 0, 2, 3, 1]);
  assert.equal(at(1024), undefined, "never written");
});

test("a range over DoM and OSTs", () => {
  const { osts, mdt, none } = spreadOf(layoutOf(recorded("getstripe-y-dom.txt")), 0n, 3n << 20n);
  assert.deepEqual(
    [[...osts], mdt, none],
    [
      [
        [1, 1n << 20n],
        [2, 1n << 20n],
      ],
      1n << 20n,
      0n,
    ],
  );
});

test("damaged: a component on the metadata server that names OSTs, too, counts once", () => {
  const both = { ...emptyComponent(), pattern: ["mdt"], stripeCount: 1, stripeSize: 4096, osts: [3] };
  const layout = { composite: false, generation: 1, mirrors: 1, components: [both], foreign: undefined };
  assert.deepEqual(spreadOf(layout, 0n, 10_000n), { osts: new Map(), mdt: 10_000n, none: 0n });
});

test("of mirrors the one that is read: preferred, never stale", () => {
  const mirrors = layoutOf(sampled("getstripe-y-flr-stale.yaml"));
  assert.deepEqual(
    readComponents(mirrors).map(({ osts }) => osts),
    [[0, 1]],
  );
  const swapped = {
    ...mirrors,
    components: mirrors.components.map((c) => ({ ...c, flags: c.flags.includes("stale") ? ["init"] : ["stale"] })),
  };
  assert.deepEqual(
    readComponents(swapped).map(({ osts }) => osts),
    [[8, 9]],
  );
});

test("the sums of a range equal its bytes one by one", () => {
  const component = fc.record({
    osts: fc.array(fc.nat(5), { maxLength: 5 }),
    stripeSize: fc.integer({ min: 1, max: 7 }),
  });
  const layouts = fc
    .array(fc.tuple(fc.integer({ min: 0, max: 40 }), component), { minLength: 1, maxLength: 3 })
    .map((parts) => {
      let start = 0n;
      const components = parts.map(([length, { osts, stripeSize }], i): Component => {
        const end = i === parts.length - 1 ? END_OF_FILE : start + BigInt(length);
        const told = { id: i + 1, flags: ["init"], pattern: ["raid0"], stripeCount: osts.length, stripeSize, osts };
        const made = { ...emptyComponent(), ...told, start, end };
        start = end;
        return made;
      });
      return { composite: true, generation: 1, mirrors: 1, components, foreign: undefined };
    });
  fc.assert(
    fc.property(layouts, fc.nat(100), fc.nat(100), (layout, offset, length) => {
      const counted = new Map<number, bigint>();
      let none = 0n;
      for (let at = offset; at < offset + length; at++) {
        const ost = ostAt(layout, BigInt(at));
        if (typeof ost === "number") counted.set(ost, (counted.get(ost) ?? 0n) + 1n);
        else none++;
      }
      const spread = spreadOf(layout, BigInt(offset), BigInt(length));
      assert.deepEqual(
        [...spread.osts],
        [...counted].sort(([a], [b]) => a - b),
      );
      assert.equal(spread.none, none);
    }),
  );
});
