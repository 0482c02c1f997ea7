/** What typed columns tell the index, against counting by hand. */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { ColumnStats } from "../../src/formats/stats.ts";
import type { BlockColumns, Column } from "../../src/formats/types.ts";

type List = bigint[] | null;

function block(lists: List[], wide: boolean): BlockColumns {
  const flat = lists.flatMap((list) => list ?? []);
  let end = 0;
  const column: Column = {
    kind: "int64",
    values: wide ? BigInt64Array.from(flat) : Int32Array.from(flat, Number),
    ends: Uint32Array.from(lists, (list) => (end += list?.length ?? 0)),
    present: Uint8Array.from(lists, (list) => (list === null ? 0 : 1)),
  };
  return { fields: new Map([["ids", column]]), faults: new Map() };
}

test("schema and tokens of blocks, narrow or wide, are those of their lists", () => {
  const value = fc.oneof(fc.constantFrom(0n, 1n), fc.bigInt({ min: -(2n ** 31n), max: 2n ** 31n - 1n }));
  const list: fc.Arbitrary<List> = fc.option(fc.array(value, { maxLength: 6 }));
  fc.assert(
    fc.property(
      fc.array(fc.tuple(fc.array(list, { minLength: 1, maxLength: 8 }), fc.boolean()), { minLength: 1 }),
      (blocks) => {
        const stats = new ColumnStats("f");
        for (const [lists, wide] of blocks) stats.add(block(lists, wide), lists.length);
        const { schema, tokens, total } = stats.finish();
        const held = blocks.flatMap(([lists]) => lists).filter((one) => one !== null);
        const values = held.flat();
        const lengths = held.map((one) => one.length);
        const field = schema.fields[0]!;
        assert.equal(field.present, held.length);
        assert.equal(field.values, values.length);
        assert.equal(total, values.length);
        assert.deepEqual(
          [...tokens],
          blocks.map(([lists]) => (values.length === 0 ? 0 : lists.flatMap((one) => one ?? []).length)),
        );
        assert.equal(field.minLength, held.length === 0 ? 0 : Math.min(...lengths));
        assert.equal(field.maxLength, Math.max(0, ...lengths));
        const least = (a: bigint, b: bigint): bigint => (b < a ? b : a);
        const most = (a: bigint, b: bigint): bigint => (b > a ? b : a);
        assert.equal(field.min, values.length === 0 ? undefined : String(values.reduce(least)));
        assert.equal(field.max, values.length === 0 ? undefined : String(values.reduce(most)));
        assert.equal(field.prefixMask, values.length > 0 && held.every((one) => /^1*0*$/.test(one.join(""))));
      },
    ),
  );
});

test("two kinds under one name are an error that names it", () => {
  const stats = new ColumnStats("f");
  stats.add(block([[1n]], false), 1);
  const text: Column = { kind: "bytes", values: new Uint8Array(1), ends: Uint32Array.of(1) };
  assert.throws(() => stats.add({ fields: new Map([["ids", text]]), faults: new Map() }, 1), {
    code: "ATH_FEATURE_KIND",
    message: /"ids" holds a list of bytes, expected int64/,
  });
});
