import assert from "node:assert/strict";
import { test } from "node:test";
import { SchemaMerge } from "../../src/dataset/schema.ts";
import type { Field } from "../../src/formats/types.ts";

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
