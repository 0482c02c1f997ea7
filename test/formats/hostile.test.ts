// The harness for damaged shards finds what it is there to find: a toy format, and the same with planted defects.
import assert from "node:assert/strict";
import { test } from "node:test";
import { RecordMalformed } from "../../src/formats/errors.ts";
import { indexColumns } from "../../src/formats/index-columns.ts";
import type { BlockColumns, ColumnFormat, RawBlock, ScannedBlock } from "../../src/formats/types.ts";
import { checkShard, shardOf } from "./blocks.ts";
import { hostile } from "./hostile.ts";

type Decode = (bytes: Uint8Array, records: number) => BlockColumns;

/** Every byte is a record with one value; 0xff is a bad one. */
const bytesAsInts: Decode = (bytes, records) => {
  const faults = new Map(
    [...bytes].flatMap((byte, i) => (byte === 0xff ? [[i, new RecordMalformed("0xff", { record: i })]] : [])),
  );
  const values = Int32Array.from(bytes);
  const ends = Uint32Array.from({ length: records }, (_, i) => i + 1);
  return { fields: new Map([["n", { kind: "int64", values, ends }]]), faults };
};

function toy(scan: Decode, columns: Decode = scan): ColumnFormat {
  const blocks: ColumnFormat["scan"] = async function* ({ object }) {
    const bytes = new Uint8Array(object.size);
    await object.readInto(bytes, 0);
    const restarts = Array.from({ length: Math.ceil(bytes.length / 64) }, (_, i) => i * 64);
    const segments = [{ file: 0, offset: 0, length: bytes.length, field: 0 }];
    yield { records: bytes.length, segments, restarts, columns: scan(bytes, bytes.length) } satisfies ScannedBlock;
    return { encoding: "plain", crc32c: 0 };
  };
  return {
    name: "toy",
    kind: "columns",
    detect: () => ({ encoding: "plain" }),
    scan: blocks,
    index: (shard, options) => indexColumns(blocks(shard, options), shard, options),
    columns: ({ segments, records }: RawBlock) => columns(segments[0]!.bytes.slice(), records),
  };
}

const shard = shardOf(
  "toy",
  Uint8Array.from({ length: 200 }, (_, i) => i % 200),
);

test("damaged shards of a sound format are read or refused, the same way for the same seed", async () => {
  const report = await hostile(toy(bytesAsInts), [shard], 200, { seed: 7 });
  assert.ok(report.read > 50 && report.refused > 5, JSON.stringify(report));
  assert.equal(report.read + report.refused, 200);
  assert.deepEqual(Object.keys(report.codes), ["ATH_RECORD_MALFORMED"]);
  assert.deepEqual(await hostile(toy(bytesAsInts), [shard], 200, { seed: 7 }), report);
});

test("an exception without a code is found, and named by seed and mutation", async () => {
  const crash: Decode = (bytes, records) => {
    if (bytes.includes(0xfe)) throw new RangeError("Invalid typed array length");
    return bytesAsInts(bytes, records);
  };
  await assert.rejects(
    hostile(toy(crash), [shard], 200, { seed: 7 }),
    /toy seed 7 mutation \d+: .*\n*.*RangeError: Invalid typed/,
  );
});

test("columns() that differ from scan() are found, in a whole block and in a span", async () => {
  const other: Decode = (bytes, records) => {
    const block = bytesAsInts(bytes, records);
    block.fields.get("n")!.values[records - 1] = 1000;
    return block;
  };
  await assert.rejects(checkShard(toy(bytesAsInts, other), shard), /record 199, field n/);
  const inSpans: Decode = (bytes, records) => (records === 200 ? bytesAsInts : other)(bytes, records);
  await assert.rejects(checkShard(toy(bytesAsInts, inSpans), shard), /records \d+ to \d+/);
});

test("memory over the bound is found", async () => {
  const hoard: Decode = (bytes, records) => {
    if (bytes.length !== 200) new Uint8Array(768 * 1024 * 1024).fill(1);
    return bytesAsInts(bytes, records);
  };
  await assert.rejects(hostile(toy(hoard), [shard], 50, { seed: 7 }), /memory grew by/);
});
