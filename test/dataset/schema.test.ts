import assert from "node:assert/strict";
import { test } from "node:test";
import { SchemaMerge } from "../../src/dataset/schema.ts";
import { isScalar, type Field } from "../../src/formats/types.ts";

const ids: Field = {
  name: "ids",
  kind: "int64",
  present: 10,
  minLength: 2,
  maxLength: 4,
  values: 30,
  min: "-9223372036854775808",
  max: "9",
  prefixMask: true,
};

test("counts add up, bounds widen beyond 2^53, a mask stays one only if all shards hold one", () => {
  const merge = new SchemaMerge("/d");
  merge.add("a", { fields: [ids, { ...ids, name: "mask" }] });
  merge.add("b", {
    fields: [
      {
        ...ids,
        present: 1,
        minLength: 1,
        maxLength: 1,
        values: 1,
        min: "9007199254740993",
        max: "9007199254740993",
        prefixMask: false,
      },
    ],
  });
  assert.deepEqual(merge.result().fields, [
    {
      name: "ids",
      kind: "int64",
      present: 11,
      minLength: 1,
      maxLength: 4,
      values: 31,
      min: "-9223372036854775808",
      max: "9007199254740993",
      prefixMask: false,
    },
    { ...ids, name: "mask" },
  ]);
});

test("one list makes a field one of lists, whichever shard comes first, also where numbers become fractions", () => {
  const one: Field = { ...ids, minLength: 1, maxLength: 1, values: 10, loose: true };
  const list: Field = { ...one, list: true };
  const fraction: Field = {
    name: "ids",
    kind: "float",
    present: 1,
    minLength: 1,
    maxLength: 1,
    values: 1,
    loose: true,
  };
  for (const fields of [
    [one, list],
    [list, one],
    [list, fraction],
    [fraction, list],
    [{ ...list, present: 0, values: 0, minLength: 0, maxLength: 0 }, fraction],
  ]) {
    const merge = new SchemaMerge("/d");
    for (const [i, field] of fields.entries()) merge.add(`${i}`, { fields: [field] });
    assert.equal(merge.result().fields[0]!.list, true);
  }
  const merge = new SchemaMerge("/d");
  merge.add("a", { fields: [one] });
  merge.add("b", { fields: [one] });
  assert.equal(isScalar(merge.result().fields[0]!), true);
});

test("only int64 features tell of a mask", () => {
  const merge = new SchemaMerge("/d");
  const text = { name: "text", kind: "bytes" as const, present: 2, minLength: 1, maxLength: 1, values: 2 };
  merge.add("a", { fields: [text] });
  merge.add("b", { fields: [text] });
  assert.deepEqual(merge.result().fields, [{ ...text, present: 4, values: 4 }]);
});

test("two kinds under one name are an error that names both shards", () => {
  const merge = new SchemaMerge("/d");
  merge.add("a", { fields: [ids] });
  assert.throws(() => merge.add("b", { fields: [{ ...ids, kind: "float" }] }), {
    code: "ATH_SCHEMA_CONFLICT",
    message: /^\/d\/b: feature "ids" holds float values here and int64 values in \/d\/a/,
  });
});
