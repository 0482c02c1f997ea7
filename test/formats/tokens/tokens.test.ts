// `.npy` and Megatron: values of every type by columns() as by scan(), damage, and names.
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { groupFiles } from "../../../src/formats/groups.ts";
import { megatron } from "../../../src/formats/megatron/format.ts";
import { npy } from "../../../src/formats/npy/format.ts";
import { parseLiteral } from "../../../src/formats/npy/literal.ts";
import { detectFormat } from "../../../src/formats/registry.ts";
import { createKernels } from "../../../src/kernels/load.ts";
import { checkShard, rowOf, shardFiles, shardOf } from "../blocks.ts";
import { hostile } from "../hostile.ts";
import { hostileShards as megatronShards } from "../megatron/samples.ts";
import { hostileShards as npyShards } from "../npy/samples.ts";
import { npyFile, pair } from "./write.ts";

const kernels = createKernels(0);
const RANGE: Record<string, bigint> = {
  u1: 255n,
  i1: 127n,
  u2: 65535n,
  i2: 32767n,
  u4: 2n ** 32n - 1n,
  i4: 2n ** 31n - 1n,
  u8: 2n ** 63n - 1n,
  i8: 2n ** 63n - 1n,
};

const typed = (types: readonly string[]): fc.Arbitrary<{ type: string; values: bigint[] }> =>
  fc.constantFrom(...types).chain((type) => {
    return fc.array(fc.bigInt(0n, RANGE[type]!), { maxLength: 200 }).map((values) => ({ type, values }));
  });

test("npy of every integer type and both byte orders gives its values, and the index least and greatest", async () => {
  await fc.assert(
    fc.asyncProperty(typed(Object.keys(RANGE)), fc.boolean(), async ({ type, values }, big) => {
      const shard = shardOf("a.npy", npyFile(values, type, big));
      const { blocks } = await checkShard(npy, shard);
      const found = blocks.flatMap(({ columns, records }) => {
        return Array.from({ length: records }, (_, i) => rowOf(columns.fields.get("input_ids"), i));
      });
      assert.deepEqual(
        found,
        values.map((value) => [value]),
      );
      const { schema, records, tokens } = await npy.index(await shardFiles(shard), { kernels });
      const [field] = schema.fields;
      const sorted = values.toSorted((a, b) => (a < b ? -1 : 1));
      const range = values.length === 0 ? [undefined, undefined] : [String(sorted[0]), String(sorted.at(-1))];
      assert.deepEqual([records, tokens, field?.min, field?.max], [values.length, values.length, ...range]);
    }),
    { numRuns: 200 },
  );
});

test("Megatron pairs of every type give their documents, however they are stored", async () => {
  const documents = fc.array(fc.array(fc.integer({ min: 0, max: 127 }), { maxLength: 30 }), { maxLength: 20 });
  await fc.assert(
    fc.asyncProperty(
      documents,
      fc.constantFrom("u1", "i1", "u2", "i2", "i4", "i8"),
      fc.array(fc.nat(20)),
      fc.boolean(),
      async (given, type, cuts, modes) => {
        const shard = pair("d/a", given, type, cuts, modes);
        const { blocks } = await checkShard(megatron, shard);
        const found = blocks.flatMap(({ columns, records }) => {
          return Array.from({ length: records }, (_, i) => rowOf(columns.fields.get("input_ids"), i)!.map(Number));
        });
        assert.deepEqual(found, given);
        const { records, tokens, files } = await megatron.index(await shardFiles(shard), { kernels });
        assert.deepEqual([records, tokens, files?.length], [given.length, given.flat().length, 1]);
      },
    ),
    { numRuns: 200 },
  );
});

test("damaged shards give values or errors with a code", async () => {
  const found = await hostile(megatron, megatronShards(), 300, { seed: 47 });
  assert.ok(found.read > 0 && found.refused > 0);
  const seen = await hostile(npy, npyShards(), 300, { seed: 48 });
  assert.ok(seen.read > 0 && seen.refused > 0);
});

test("a pair is one shard, by the names of its files", () => {
  assert.deepEqual(groupFiles(["a.bin", "a.idx", "b.bin", "c.idx", "d/a.idx"]), [
    { path: "a.bin", beside: ["a.idx"] },
    { path: "b.bin", beside: [] },
    { path: "c.idx", beside: [] },
    { path: "d/a.idx", beside: [] },
  ]);
  const head = new Uint8Array(16).fill(3);
  assert.equal(detectFormat(head, "a.bin", ["a.idx"])?.format.name, "megatron");
  assert.equal(detectFormat(head, "a.bin")?.format.name, "megatron"); // half of one
  assert.equal(detectFormat(head, "a"), undefined);
  assert.equal(detectFormat(npyFile([1], "u2"), "a.bin")?.format.name, "npy");
});

test("headers are Python literals", () => {
  const header = parseLiteral(" {'a': (1, ), \"b\": (2), 'c': 12L, 'd': [True, None, -3], } ") as Map<string, unknown>;
  assert.deepEqual(
    [...header].map(([name, value]) => [name, Array.isArray(value) ? [...value] : value]),
    [
      ["a", [1]],
      ["b", 2],
      ["c", 12],
      ["d", [true, null, -3]],
    ],
  );
  for (const text of ["", "{", "(1", "f()", "{'a' 1}", "'a", "1 2", "[1 2]", "(".repeat(100), "'\\x41'", "os"]) {
    assert.equal(parseLiteral(text), undefined, text);
  }
});

test("an array of fractions is told to be saved as integers; the advice was to save it again", async () => {
  const bytes = Buffer.from(npyFile([1], "i4"));
  bytes.write("<f4", bytes.indexOf("<i4"));
  await assert.rejects(checkShard(npy, shardOf("a.npy", bytes)), {
    code: "ATH_FORMAT_UNSUPPORTED",
    message: /"<f4" are no token ids.*astype\(numpy\.int32\)/,
  });
});
