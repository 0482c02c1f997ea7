// JSON Lines and JSON arrays: what comes out is what JSON.parse finds, in blocks and spans alike.
import assert from "node:assert/strict";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import fc from "fast-check";
import type { AthanorError } from "../../../src/base/errors.ts";
import { jsonl } from "../../../src/formats/jsonl/format.ts";
import { detectFormat } from "../../../src/formats/registry.ts";
import type { BlockColumns, ScannedBlock } from "../../../src/formats/types.ts";
import { createKernels } from "../../../src/kernels/load.ts";
import { checkShard, rowOf, scanShard, shardFiles, shardOf } from "../blocks.ts";
import { generator } from "../damage.ts";
import { gzipMembers, sample } from "./samples.ts";

const utf8 = (text: string): number[] => [...Buffer.from(text.toWellFormed())];

/** What a field of a record is as a row of a column; undefined: it is none. */
function asRow(value: unknown): (number | bigint)[] | null {
  if (value === null || value === undefined) return null;
  if (typeof value === "string") return utf8(value);
  return [value].flat(99).map((one) => (typeof one === "boolean" ? BigInt(one) : (one as number)));
}

function plain(row: (number | bigint)[] | null): (number | string)[] | null {
  return row?.map((value) => (Object.is(value, -0) ? 0 : Number(value))) ?? null;
}

function rows(blocks: readonly ScannedBlock[], name: string): ((number | string)[] | null)[] {
  return blocks.flatMap(({ columns, records }) =>
    Array.from({ length: records }, (_, i) => plain(rowOf(columns.fields.get(name), i))),
  );
}

function faults(blocks: readonly ScannedBlock[]): [record: number, code: string, line: number | undefined][] {
  return blocks.flatMap(({ columns }: { columns: BlockColumns }) =>
    [...columns.faults.values()].map(({ code, where }): [number, string, number | undefined] => [
      where.record!,
      code,
      where.line,
    ]),
  );
}

const text = (...lines: string[]): Buffer => Buffer.from(lines.join("\n"));

test("lines and arrays, plain and compressed, give the records that JSON.parse gives", async () => {
  for (let seed = 0; seed < 5; seed++) {
    const { records, lines, array } = sample(150 + seed * 20, seed);
    const files = [
      shardOf("a.jsonl", lines),
      shardOf("a.json", array),
      shardOf("a.jsonl.gz", gzipMembers(lines, 1000)),
      shardOf("a.json.gz", gzipSync(array)),
    ];
    for (const file of files) {
      const { blocks } = await checkShard(jsonl, file, {}, generator(seed));
      for (const name of ["id", "input_ids", "text", "score", "flag"]) {
        assert.deepEqual(
          rows(blocks, name),
          records.map((record) => plain(asRow(record[name]))),
          `${file.path} ${name}`,
        );
      }
      const shown = blocks.flatMap(({ records: count, record }) => Array.from({ length: count }, (_, i) => record!(i)));
      assert.deepEqual(JSON.parse(JSON.stringify(shown)), records);
    }
  }
});

test("any JSON object comes out as JSON.parse reads it", () => {
  const number = fc.oneof(fc.integer(), fc.double({ noNaN: true, noDefaultInfinity: true }), fc.maxSafeInteger());
  const field = fc.oneof(
    fc.string({ unit: "binary" }),
    fc.string({ unit: "grapheme" }),
    fc.array(fc.oneof(fc.integer({ min: -20, max: 300000 }), number)),
    fc.array(fc.array(fc.integer())),
    number,
    fc.boolean(),
    fc.jsonValue(),
  );
  const property = fc.asyncProperty(fc.dictionary(fc.string(), field), fc.nat(3), async (record, indent) => {
    const written = JSON.stringify([record], null, indent);
    // Beyond int64: the test of integers has those.
    fc.pre(!/\d{19}/.test(written));
    const { blocks } = await scanShard(jsonl, shardOf("a.json", Buffer.from(written)));
    const [block] = blocks;
    if (block!.columns.faults.size > 0) {
      // An integer beyond 2^53 and a fraction in one field.
      assert.deepEqual(faults(blocks), [[0, "ATH_VALUE_RANGE", undefined]]);
      return;
    }
    const shown = JSON.stringify(block!.record!(0), (_, value: unknown) =>
      typeof value === "bigint" ? Number(value) : value,
    );
    assert.deepEqual(shown, JSON.stringify(JSON.parse(written)[0]).replace(/\\ud[89a-f][0-9a-f]{2}/g, "\ufffd"));
    for (const [name, column] of block!.columns.fields) {
      const expected = Object.entries(JSON.parse(written)[0] as object).find(([key]) => key === name)?.[1] as unknown;
      if (column.json === true) {
        assert.deepEqual(JSON.parse(Buffer.from(column.values as Uint8Array).toString()), expected);
      } else assert.deepEqual(plain(rowOf(column, 0)), plain(asRow(expected)));
    }
  });
  return fc.assert(property, { numRuns: 300 });
});

test("whatever JSON.parse refuses is a bad record, and nothing else", () => {
  const valid = ['{"a":[1,-2,3.5e1],"b":"x\\u00e9\\n","c":{"d":[null,true]}}', '{"a":[[10],[]],"b":"","e":-0}', "{}"];
  const piece = fc.constantFrom(
    ...'{}[]",:\\u0123eE+-. \t\r'.split(""),
    "true",
    "null",
    "0",
    "\\n",
    '"a"',
    "\u0001",
    "é",
  );
  const property = fc.asyncProperty(
    fc.constantFrom(...valid),
    fc.nat(60),
    piece,
    fc.boolean(),
    async (base, at, put, over) => {
      const written = base.slice(0, at) + put + base.slice(over ? at + put.length : at);
      let good = true;
      try {
        const parsed = JSON.parse(written) as unknown;
        good = typeof parsed === "object" && parsed !== null && !Array.isArray(parsed);
      } catch {
        good = false;
      }
      // The first record is sound, so that the file is not refused as a whole.
      const { blocks } = await scanShard(jsonl, shardOf("a.jsonl", text('{"a":[1]}', written, '{"a":[2]}')));
      const bad = faults(blocks);
      if (written.trim() === "") return;
      assert.deepEqual(bad, good ? [] : [[1, "ATH_RECORD_MALFORMED", 2]], written);
      if (blocks[0]!.columns.fields.has("a")) assert.deepEqual(rows(blocks, "a").at(-1), [2]);
    },
  );
  return fc.assert(property, { numRuns: 2000 });
});

test("integers are exact over all of int64, and beyond are faults", async () => {
  const ids = [
    "9007199254740993",
    "-9223372036854775808",
    "9223372036854775807",
    "9223372036854775808",
    "0.5",
    "12.0",
    "1e3",
  ];
  const { blocks } = await checkShard(jsonl, shardOf("a.jsonl", text(...ids.map((id) => `{"id":[${id},1]}`))));
  assert.deepEqual(faults(blocks), [
    [3, "ATH_VALUE_RANGE", 4],
    [4, "ATH_VALUE_RANGE", 5],
  ]);
  const found = [0, 1, 2, 5, 6].map((i) => rowOf(blocks[0]!.columns.fields.get("id"), i)?.[0]);
  assert.deepEqual(found, [9007199254740993n, -9223372036854775808n, 9223372036854775807n, 12n, 1000n]);
});

test("integers become floats where a fraction comes later, also in a later block", async () => {
  const many = Array.from({ length: 70000 }, (_, i) => `{"x":${i},"e":[]}`);
  const { blocks, end } = await checkShard(jsonl, shardOf("a.jsonl", text(...many, '{"x":0.5,"e":[7]}')));
  assert.equal(blocks.length, 2);
  assert.deepEqual(end.meta?.["kinds"], { x: "float", e: "int64" });
  const shard = await shardFiles(shardOf("a.jsonl", text(...many, '{"x":0.5,"e":[7]}')));
  const content = await jsonl.index(shard, { kernels: createKernels(0) });
  const [e, x] = content.schema.fields;
  assert.deepEqual([x!.kind, x!.present, x!.min], ["float", 70001, undefined]);
  assert.deepEqual([e!.kind, e!.present, e!.minLength, e!.values], ["int64", 70001, 0, 1]);
});

test("fields of mixed kinds are no columns, and say why", async () => {
  const lines = text('{"a":1,"b":"x","c":[1],"d":null,"e":{"f":1}}', '{"a":"x","b":2,"c":["x"],"d":[null],"e":1}');
  const { blocks, end } = await checkShard(jsonl, shardOf("a.jsonl", lines));
  assert.deepEqual(end.notColumns, {
    a: "holds int64 values and text",
    b: "holds text and numbers",
    c: "holds lists of text",
    d: "holds null in a list",
    e: "holds objects and numbers",
  });
  assert.deepEqual([...blocks[0]!.columns.fields.keys()], []);
  assert.deepEqual(blocks[0]!.record!(1), { a: "x", b: 2, c: ["x"], d: [null], e: 1 });
});

test("objects and lists of objects are columns of their JSON, as it is written", async () => {
  const chat = '[ {"role": "user", "content": "\\u00e9", "n": 9007199254740993, "x": 1.0} ]';
  const lines = text(
    `{"m":[],"o":{"a":[]}}`,
    `{"m":${chat},"o":{ }}`,
    `{"m":null}`,
    `{"m":[],"o":{"a":`,
    `{"m":[[{}]],"o":{"b":null}}`,
  );
  const { blocks, end } = await checkShard(jsonl, shardOf("a.jsonl", lines));
  const { fields } = blocks[0]!.columns;
  const written = (name: string): unknown[] =>
    [0, 1, 2, 3, 4].map((i) => {
      const row = rowOf(fields.get(name), i) as number[] | null;
      return row && Buffer.from(row).toString();
    });
  // No bytes are an empty list.
  assert.deepEqual(written("m"), ["", chat, null, null, "[[{}]]"]);
  assert.deepEqual(written("o"), ['{"a":[]}', "{ }", null, null, '{"b":null}']);
  assert.deepEqual(end.meta?.["kinds"], { m: "json", o: "json" });
  const shard = await shardFiles(shardOf("a.jsonl", text('{"m":[]}', `{"m":${chat}}`)));
  const { schema } = await jsonl.index(shard, { kernels: createKernels(0) });
  assert.deepEqual([schema.fields[0]!.kind, schema.fields[0]!.json, schema.fields[0]!.present], ["bytes", true, 2]);
});

test("objects beside other values make no column", async () => {
  const lines = text(
    '{"a":{},"b":"x","c":[{}],"d":[1],"e":[1,{}],"f":{}}',
    '{"a":1,"b":[{}],"c":"x","d":{},"e":[{}],"f":["x"]}',
  );
  const { end } = await checkShard(jsonl, shardOf("a.jsonl", lines));
  assert.deepEqual(end.notColumns, {
    a: "holds objects and numbers",
    b: "holds text and objects",
    c: "holds text and objects",
    d: "holds int64 values and objects",
    e: "holds numbers and objects in a list",
    f: "holds lists of text",
  });
});

test("a bad record says nothing of the kinds of the others", async () => {
  const lines = text('{"a":1}', '{"a":0.5,"b":"x",}', '{"a":{"x":1}', '{"a":9007199254740993,}', '{"a":2.5}');
  const { blocks, end } = await checkShard(jsonl, shardOf("a.jsonl", lines));
  assert.deepEqual(
    faults(blocks).map(([record]) => record),
    [1, 2, 3],
  );
  assert.deepEqual(end.meta?.["kinds"], { a: "float" });
  assert.deepEqual(rows(blocks, "a"), [[1], null, null, null, [2.5]]);
});

test("byte order mark, CRLF, blank lines and a last line without end", async () => {
  const lines = Buffer.from('\ufeff\r\n{"a":1}\r\n\r\n \t\n{"a":2} \r\n{"a":,}\n{"a":3}');
  const { blocks } = await checkShard(jsonl, shardOf("a.jsonl", lines));
  assert.deepEqual(rows(blocks, "a"), [[1], [2], null, [3]]);
  assert.deepEqual(faults(blocks), [[2, "ATH_RECORD_MALFORMED", 6]]);
  assert.equal(lines.subarray(blocks[0]!.offsets![1]).toString().slice(0, 7), '{"a":2}');
});

test("text that is no UTF-8 is a bad record, a key may be escaped, the last of two keys counts", async () => {
  const bad = Buffer.concat([
    text('{"a":"x"}', '{"a":"'),
    Buffer.from([0xed, 0xa0, 0x80]),
    text('"}', '{"\\u0061":"1","a":"22"}'),
  ]);
  const { blocks } = await checkShard(jsonl, shardOf("a.jsonl", bad));
  assert.deepEqual(rows(blocks, "a"), [[0x78], null, [0x32, 0x32]]);
  assert.deepEqual(faults(blocks), [[1, "ATH_RECORD_MALFORMED", 2]]);
});

test("blocks begin at multiples of 4 MiB of the bytes, and long records are whole", async () => {
  const long = Array.from({ length: 9 }, (_, i) => `{"i":${i},"t":"${"é".repeat(500_000 + i * 100_000)}"}`);
  for (const bytes of [text(...long), Buffer.from(`[${long.join(" , ")}]`)]) {
    const { blocks } = await checkShard(jsonl, shardOf("a.json", bytes));
    const starts = blocks.map(({ segments }) => Math.floor(segments[0]!.offset / (4 << 20)));
    assert.ok(blocks.length > 2 && new Set(starts).size === starts.length, String(starts));
    assert.deepEqual(
      rows(blocks, "i"),
      long.map((_, i) => [i]),
    );
    const lengths = blocks.flatMap(({ columns }) =>
      [...columns.fields.get("t")!.ends].map((end, i, ends) => end - (ends[i - 1] ?? 0)),
    );
    assert.deepEqual(
      lengths,
      long.map((_, i) => 2 * (500_000 + i * 100_000)),
    );
  }
});

test("names beyond 512 are left out, without growing memory", async () => {
  const lines = Array.from({ length: 600 }, (_, i) => `{"k${i}":${i},"a":1}`);
  const { blocks } = await checkShard(jsonl, shardOf("a.jsonl", text(...lines)));
  assert.equal(blocks[0]!.columns.fields.size, 512);
});

test("an empty file that was compressed is of the format of its name, as one that was not: it was TFRecord beside JSON Lines", () => {
  for (const [name, format] of [
    ["a.jsonl.gz", "jsonl"],
    ["a.json.gz", "jsonl"],
    ["a.tfrecord.gz", "tfrecord"],
    ["a", "tfrecord"],
  ] as const) {
    assert.equal(detectFormat(gzipSync(""), name)?.format.name, format, name);
    assert.equal(detectFormat(new Uint8Array(0), name.replace(".gz", ""))?.format.name, format, name);
  }
});

test("what is wrong between the elements of an array is of the record behind those before: it named none", async () => {
  for (const [json, record, byteOffset] of [
    ['[{"a":1},{"a":2}, ,{"a":3}]', 2, 18],
    ['[{"a":1} {"a":2}]', 1, 9],
    ['[{"a":1},{"a":2}', 2, 16],
    ['[{"a":1},{"a":2}] x', 2, 18],
  ] as const) {
    await assert.rejects(scanShard(jsonl, shardOf("a.json", Buffer.from(json))), (error: AthanorError) => {
      assert.deepEqual([error.where.record, error.where.byteOffset], [record, byteOffset], json);
      return true;
    });
  }
});
