// Zarr folders written by zarr-python: columns() against scan(), what is missing, what is damaged, what is refused.
import assert from "node:assert/strict";
import { readdirSync, readFileSync, rmSync } from "node:fs";
import { join, relative } from "node:path";
import { test } from "node:test";
import type { AthanorError } from "../../../src/base/errors.ts";
import type { ScannedBlock } from "../../../src/formats/types.ts";
import { zarr } from "../../../src/formats/zarr/format.ts";
import { writeZarr } from "../../feed/zarr-folder.ts";
import { checkShard, rowOf, scanShard, type TestShard } from "../blocks.ts";
import { hostile } from "../hostile.ts";
import { changed, hostileShards, withMembers } from "./samples.ts";

const [v2, v3] = hostileShards() as [TestShard, TestShard];
const WORDS = ["alpha", "", "ünï", "语言", "🔥"];

function column(blocks: readonly ScannedBlock[], name: string): ((number | bigint)[] | null)[] {
  return blocks.flatMap((block) =>
    Array.from({ length: block.records }, (_, i) => rowOf(block.columns.fields.get(name), i)),
  );
}

async function faults(shard: TestShard): Promise<{ rows: number[]; errors: AthanorError[] }> {
  const { blocks } = await checkShard(zarr, shard, { onBad: () => undefined });
  let first = 0;
  const rows: number[] = [];
  const errors: AthanorError[] = [];
  for (const block of blocks) {
    for (const [i, fault] of block.columns.faults) {
      rows.push(first + i);
      errors.push(fault);
    }
    first += block.records;
  }
  return { rows, errors };
}

test("columns() gives what scan() gives, in both versions, also field by field", async () => {
  for (const shard of [v2, v3]) {
    const { blocks, end } = await checkShard(zarr, shard);
    assert.equal(
      blocks.reduce((sum, { records }) => sum + records, 0),
      40,
    );
    const tokens = Array.from({ length: 40 }, (_, i) =>
      Array.from({ length: 16 }, (__, j) => BigInt(((i * 16 + j) * 7) % 3000)),
    );
    assert.deepEqual(column(blocks, "tokens"), tokens);
    const text = column(blocks, "text").map((bytes) => Buffer.from(bytes as number[]).toString());
    assert.deepEqual(
      text,
      Array.from({ length: 40 }, (_, i) => WORDS[i % 5]),
    );
    assert.deepEqual(
      column(blocks, "weight").flat(),
      Array.from({ length: 40 }, (_, i) => i / 8),
    );
    assert.deepEqual(end.files?.length, shard.files.length);
    assert.deepEqual(blocks[0]!.record!(2)["text"], "ünï");
  }
  const { blocks } = await scanShard(zarr, v3);
  assert.equal(column(blocks, "id")[39]![0], 2n ** 60n + 39n);
});

test("missing chunks read as fill values and are counted; without a fill value their rows are bad", async () => {
  const { blocks, end } = await checkShard(zarr, v3);
  // Rows 30 to 39 were never written.
  assert.equal(end.meta?.missingChunks, 1);
  assert.match(end.meta?.firstMissing ?? "", /array "lost", chunk lost\/c\/3\/0/);
  assert.deepEqual(column(blocks, "lost").slice(24, 26), [
    [1, 1],
    [Number.NaN, Number.NaN],
  ]);
  const gone = await checkShard(
    zarr,
    changed(v2, "tokens/2.0", () => undefined),
  );
  assert.equal(gone.end.meta?.missingChunks, 1);
  assert.deepEqual(column(gone.blocks, "tokens")[16], Array<bigint>(16).fill(0n));
  const undefinedFill = changed(
    changed(v2, "tokens/2.0", () => undefined),
    "tokens/.zarray",
    withMembers({ fill_value: null }),
  );
  const { rows, errors } = await faults(undefinedFill);
  assert.deepEqual(rows, [16, 17, 18, 19, 20, 21, 22, 23]);
  assert.equal(errors[0]!.code, "ATH_CHUNK_MISSING");
});

for (const [what, shard, path, change, code, rows] of [
  ["a compressed chunk is cut", v2, "tokens/1.0", (bytes) => bytes.subarray(0, 40), "ATH_RECORD_MALFORMED", [8, 16]],
  ["a chunk is empty", v2, "tokens/1.0", () => new Uint8Array(0), "ATH_RECORD_TRUNCATED", [8, 16]],
  ["a stored chunk is cut", v2, "weight/2", (bytes) => bytes.subarray(0, 55), "ATH_RECORD_TRUNCATED", [14, 21]],
  [
    "a stored chunk is too long",
    v2,
    "weight/2",
    (bytes) => Buffer.concat([bytes, bytes]),
    "ATH_RECORD_MALFORMED",
    [14, 21],
  ],
  ["a gzip chunk is cut", v2, "label/0", (bytes) => bytes.subarray(0, 30), "ATH_RECORD_TRUNCATED", [0, 13]],
  ["a chunk is garbage", v2, "small/0", (bytes) => bytes.map((byte) => byte ^ 0x5a), "ATH_RECORD_MALFORMED", [0, 40]],
  ["a CRC32C does not fit", v3, "weight/c/1", (bytes) => bytes.with(9, bytes[9]! ^ 1), "ATH_RECORD_CRC", [7, 14]],
  [
    "the index of a shard is damaged",
    v3,
    "tokens/c/1/0",
    (bytes) => bytes.with(bytes.length - 7, 99),
    "ATH_RECORD_CRC",
    [16, 32],
  ],
  ["a shard is cut", v3, "id/c/1", (bytes) => bytes.subarray(0, 50), "ATH_RECORD_TRUNCATED", [20, 40]],
] as [string, TestShard, string, (bytes: Uint8Array) => Uint8Array, string, [number, number]][]) {
  test(`${what}: its rows are bad, the file is named`, async () => {
    const found = await faults(changed(shard, path, change));
    const [from, to] = rows;
    assert.deepEqual(
      found.rows.toSorted((a, b) => a - b),
      Array.from({ length: to - from }, (_, i) => from + i),
    );
    assert.equal(found.errors[0]!.code, code, found.errors[0]!.message);
    assert.equal(found.errors[0]!.where.file, `/${shard.path}/${path}`);
    assert.equal(found.errors[0]!.where.record, from);
  });
}

for (const [what, shard, path, change, expected] of [
  [
    "an unknown compressor",
    v2,
    "tokens/.zarray",
    withMembers({ compressor: { id: "lzma" } }),
    /"lzma" cannot be undone/,
  ],
  [
    "an unknown filter",
    v2,
    "tokens/.zarray",
    withMembers({ filters: [{ id: "categorize" }] }),
    /"categorize" cannot be undone/,
  ],
  [
    "a filter of an unknown type",
    v2,
    "steps/.zarray",
    withMembers({ filters: [{ id: "delta", dtype: "c16" }] }),
    /delta.*types/,
  ],
  [
    "an unknown codec",
    v3,
    "mask/zarr.json",
    withMembers({ codecs: ["bytes", { name: "zfpy" }] }),
    /"zfpy" cannot be undone/,
  ],
  [
    "an irregular grid",
    v3,
    "mask/zarr.json",
    withMembers({ chunk_grid: { name: "rectilinear" } }),
    /chunk grid "rectilinear"/,
  ],
  ["metadata that is no JSON", v3, "mask/zarr.json", (bytes) => bytes.subarray(0, 99), /mask\/zarr.json.*is no JSON/],
  [
    "a wrong separator",
    v2,
    "mask/.zarray",
    withMembers({ dimension_separator: "/" }),
    /are to be named with "\/", but the files are named with "\."/,
  ],
  ["a shape far beyond what was written", v3, "lost/zarr.json", withMembers({ shape: [4e9, 2] }), undefined],
  [
    "an array that only consolidated metadata know",
    v3,
    "zarr.json",
    withMembers({ consolidated_metadata: { metadata: { gone: {} } } }),
    /"gone\/zarr.json", which is not there/,
  ],
] as [string, TestShard, string, (bytes: Uint8Array) => Uint8Array, RegExp | undefined][]) {
  test(`${what} is refused before the first value`, async () => {
    const scan = scanShard(zarr, changed(shard, path, change));
    // The array with 4e9 rows is not the token array: left out, and said.
    if (expected === undefined) assert.match((await scan).end.notColumns!["lost"]!, /has 4000000000 rows, .* 40,/);
    else await assert.rejects(scan, expected);
  });
}

test("a shape far beyond what was written ends with an error, not with years of fill values", async () => {
  const far = changed(v3, "tokens/zarr.json", withMembers({ shape: [4e12, 16] }));
  await assert.rejects(scanShard(zarr, far), { code: "ATH_CHUNK_MISSING", message: /no file holds records around/ });
});

test("what cannot be a column is left out by name: other rows, complex numbers, no dimensions", async () => {
  const odd = changed(
    changed(v2, "weight/.zarray", withMembers({ shape: [39] })),
    "small/.zarray",
    withMembers({ dtype: "<c8", fill_value: null }),
  );
  const { end } = await scanShard(zarr, odd);
  assert.deepEqual(end.notColumns, {
    small: 'holds values of type "<c8"',
    weight: "has 39 rows, and the arrays that records are made of 40, as tokens",
  });
});

test("damaged folders are read or refused with a code", async () => {
  const report = await hostile(zarr, [v2, v3], 300, { seed: 3 });
  assert.ok(report.read > 10 && report.refused > 50, JSON.stringify(report));
});

test("integers of 2^63 and more are no fault of records whose other fields are asked for; lists of version 2 have their own lengths", async () => {
  const wide = changed(
    v2,
    "steps/.zarray",
    withMembers({ dtype: "<u8", filters: null, compressor: null, chunks: [40, 3] }),
  );
  const values = new BigUint64Array(120).map((_, i) => BigInt(i));
  values[3 * 7 + 1] = 2n ** 63n;
  const shard = changed(wide, "steps/0.0", () => new Uint8Array(values.buffer));
  const found = (await checkShard(zarr, shard)).blocks[0]!.columns;
  const { rows, first } = found.fields.get("steps")!.unfit!;
  assert.deepEqual([found.faults.size, rows, first.code, first.where.record], [0, [7], "ATH_VALUE_RANGE", 7]);
  // numcodecs' VLenArray: u32 rows, then of each u32 bytes and the values.
  const lists = Array.from({ length: 40 }, (_, i) => Int32Array.from({ length: i % 4 }, (__, j) => i * j));
  const parts = lists.flatMap((list) => [Uint32Array.of(list.byteLength), list]);
  const bytes = Buffer.concat([Uint32Array.of(40), ...parts].map((part) => new Uint8Array(part.buffer)));
  const ragged = changed(
    changed(
      v2,
      "text/.zarray",
      withMembers({ filters: [{ id: "vlen-array", dtype: "<i4" }], compressor: null, chunks: [40], fill_value: null }),
    ),
    "text/0",
    () => bytes,
  );
  const { blocks } = await checkShard(zarr, ragged);
  assert.deepEqual(
    column(blocks, "text"),
    lists.map((list) => Array.from(list, BigInt)),
  );
});

test("integers that were made narrow do not shift the column behind them, however many there are", async () => {
  for (const rows of [7, 77]) {
    const folder = writeZarr(rows, [
      { name: "id", type: "<i8", chunkRows: rows, gzip: 6 },
      { name: "input_ids", type: "<i8", width: 3, chunkRows: rows, gzip: 6 },
      { name: "labels", type: "<i8", width: 5, chunkRows: 4, gzip: 6 },
    ]);
    try {
      const names = readdirSync(join(folder, "a.zarr"), { recursive: true, withFileTypes: true });
      const files = names
        .filter((entry) => entry.isFile())
        .map(({ parentPath, name }) => join(parentPath, name))
        .sort((a, b) => Number(b.endsWith(".zgroup")) - Number(a.endsWith(".zgroup")))
        .map((path) => ({ path: relative(folder, path), bytes: new Uint8Array(readFileSync(path)) }));
      const { blocks } = await checkShard(zarr, { path: "a.zarr", files, folder: true });
      assert.deepEqual(
        column(blocks, "labels"),
        Array.from({ length: rows }, (_, row) => Array.from({ length: 5 }, () => BigInt(row))),
      );
    } finally {
      rmSync(folder, { recursive: true });
    }
  }
});
