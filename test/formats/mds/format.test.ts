// MDS shards as MosaicML's writer made them (test/fixtures/mds/make.py) against the values that were written; blocks, spans, damage.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { plainValue } from "../../../src/base/json.ts";
import { mds } from "../../../src/formats/mds/format.ts";
import { parseListing } from "../../../src/formats/mds/listing.ts";
import { detectFormat } from "../../../src/formats/registry.ts";
import { BLOCK_BYTES } from "../../../src/formats/types.ts";
import { AthanorError } from "../../../src/base/errors.ts";
import { checkShard, rowOf, scanShard, shardOf } from "../blocks.ts";
import { damage, generator } from "../damage.ts";
import { fixtures } from "../fixtures.ts";
import { hostile } from "../hostile.ts";
import { hostileShards, shardsOf } from "./samples.ts";
import { shardBytes } from "./writer.ts";

const MUTATIONS = Number(process.env["ATHANOR_HOSTILE"] ?? 300);
const SEED = Number(process.env["ATHANOR_SEED"] ?? 1);

const values = readFileSync(`${fixtures}/mds/values.jsonl`, "utf8")
  .trimEnd()
  .split("\n")
  .map((line) => JSON.parse(line) as Record<string, unknown>);

for (const [folder, records] of [
  ["raw", 70],
  ["gz", 20],
  ["zstd", 20],
  ["br", 20],
  ["snappy", 20],
  ["bz2", 1],
] as const) {
  test(`${folder}: all encodings give what was written, in blocks and spans`, async () => {
    const found: unknown[] = [];
    for (const shard of shardsOf(folder)) {
      assert.equal(detectFormat(shard.files[0]!.bytes.subarray(0, 4096), shard.path)?.format.name, "mds");
      const { blocks } = await checkShard(mds, shard);
      for (const block of blocks) {
        for (let i = 0; i < block.records; i++) found.push(plainValue(block.record!(i)));
      }
    }
    assert.deepEqual(found, values.slice(0, records));
  });
}

test("columns: numbers exact, arrays flattened, JSON members by name, text as bytes", async () => {
  const columns = new Map<string, unknown[]>();
  for (const shard of shardsOf("raw")) {
    const { blocks } = await scanShard(mds, shard);
    for (const { columns: found, records } of blocks) {
      for (const [name, column] of found.fields) {
        const rows = columns.get(name) ?? [];
        for (let i = 0; i < records; i++) rows.push(rowOf(column, i));
        columns.set(name, rows);
      }
    }
  }
  const big = (list: unknown): unknown => (list as (string | number)[]).flat(3).map((value) => BigInt(value));
  for (const name of ["i", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"]) {
    assert.deepEqual(
      columns.get(name),
      values.map((row) => big([row[name]])),
      name,
    );
  }
  for (const name of ["nd", "nds", "ndt"])
    assert.deepEqual(
      columns.get(name),
      values.map((row) => big(row[name])),
      name,
    );
  for (const name of ["f16", "f32", "f64"])
    assert.deepEqual(
      columns.get(name),
      values.map((row) => [row[name]]),
      name,
    );
  assert.deepEqual(
    columns.get("ndd"),
    values.map((row) => row["ndd"]),
  );
  const json = values.map((row) => row["j"] as { ids: unknown[]; x: number; t: string });
  // An empty list is none.
  assert.deepEqual(
    columns.get("j.ids"),
    json.map(({ ids }) => (ids.length === 0 ? null : big(ids))),
  );
  assert.deepEqual(
    columns.get("j.x"),
    json.map(({ x }) => [x]),
  );
  assert.deepEqual(
    columns.get("j.t"),
    json.map(({ t }) => [...Buffer.from(t)]),
  );
  assert.deepEqual(
    columns.get("s"),
    values.map((row) => [...Buffer.from(row["s"] as string)]),
  );
  assert.deepEqual(
    columns.get("si"),
    values.map((row) => [...Buffer.from(row["si"] as string)]),
  );
  assert.deepEqual(
    columns.get("j.deep")?.map((row) => JSON.parse(Buffer.from(row as number[]).toString())),
    values.map((row) => (row["j"] as { deep: unknown }).deep),
  );
});

test("pickle is refused before the first value", async () => {
  await assert.rejects(scanShard(mds, shardsOf("pickled")[0]!), { code: "ATH_FORMAT_UNSUPPORTED" });
});

test("a uint64 of 2^63 and more is the fault of its record, and others are read", async () => {
  const column = { name: "u", encoding: "uint64", size: 8 };
  const shard = shardOf(
    "a.mds",
    shardBytes(
      [column],
      [7n, 2n ** 63n, 8n].map((n) => [Buffer.from(BigUint64Array.of(n).buffer)]),
    ),
  );
  const { blocks } = await checkShard(mds, shard, { onBad: () => undefined });
  assert.equal(blocks[0]!.columns.faults.get(1)?.code, "ATH_VALUE_RANGE");
  assert.deepEqual(rowOf(blocks[0]!.columns.fields.get("u"), 2), [8n]);
});

test("blocks hold the samples that begin in their 4 MiB, with restarts; also of a sample larger than that", async () => {
  const random = generator(3);
  const columns = [
    { name: "ids", encoding: "ndarray:int32", size: null },
    { name: "text", encoding: "str", size: null },
  ];
  const samples = Array.from({ length: 900 }, (_, i) => {
    const count = i === 450 ? 2_500_000 : 1 + random(6000);
    const ids = Int32Array.from({ length: count }, (_unused, j) => i * 1000 + (j % 977));
    const shape = Buffer.alloc(5);
    shape[0] = (1 << 2) | 2;
    shape.writeUInt32LE(count, 1);
    return [Buffer.concat([shape, Buffer.from(ids.buffer)]), Buffer.from(`text ${i}`)];
  });
  const { blocks } = await checkShard(mds, shardOf("b.mds", shardBytes(columns, samples)), {}, random);
  assert.ok(blocks.length > 2);
  for (const { offsets, segments, restarts, records } of blocks) {
    const ranges = new Set(Array.from(offsets!, (offset) => Math.floor(offset / BLOCK_BYTES)));
    assert.equal(ranges.size, 1);
    assert.equal(segments[0]!.offset, offsets![0]);
    assert.equal(restarts.length, Math.ceil(records / 64));
  }
  assert.equal(
    blocks.reduce((sum, { records }) => sum + records, 0),
    900,
  );
});

test(`${MUTATIONS} damaged shards give values or coded errors`, { timeout: 3_600_000 }, async () => {
  const report = await hostile(mds, hostileShards(), MUTATIONS, { seed: SEED });
  assert.equal(report.read + report.refused, MUTATIONS);
  assert.ok(report.refused > MUTATIONS / 10 && report.read > 0, JSON.stringify(report));
});

test("a damaged index.json gives a listing or a coded error that names it", () => {
  const valid = readFileSync(`${fixtures}/mds/raw/index.json`);
  const random = generator(9);
  let refused = 0;
  for (let i = 0; i < 500; i++) {
    const { bytes, what } = damage(valid, [valid], random);
    try {
      parseListing(bytes, "/index.json", "shard.00000.mds");
    } catch (error) {
      assert.ok(error instanceof AthanorError, `${what}: ${String(error)}`);
      assert.equal(error.where.file, "/index.json");
      refused++;
    }
  }
  assert.ok(refused > 100);
});
