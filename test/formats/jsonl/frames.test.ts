// JSON in Zstandard files of many frames: blocks that can be read by themselves, with the records that the plain file gives.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import fc from "fast-check";
import { AthanorError } from "../../../src/base/errors.ts";
import { frameGroups } from "../../../src/formats/codecs/zstd-groups.ts";
import { jsonl } from "../../../src/formats/jsonl/format.ts";
import type { ScannedBlock } from "../../../src/formats/types.ts";
import { checkShard, indexShard, rowOf, scanShard, shardOf } from "../blocks.ts";
import { skippableFrame, zstdFrame, type FrameShape } from "../codecs/zstd-writer.ts";
import { generator } from "../damage.ts";
import { fixtures } from "../fixtures.ts";
import { memoryObject } from "../tfrecord/memory-object.ts";
import { sample } from "./samples.ts";

/** Ends a group of frames: larger than what lies inside of one. */
const APART = skippableFrame(64 * 1024);

/** Pieces of [0, length) at the given places, as frames. `between`: what stands in front of each. */
function framed(
  bytes: Uint8Array,
  cuts: readonly number[],
  between: (i: number) => Uint8Array,
  shape: FrameShape = {},
): Buffer {
  const places = [0, ...cuts.map((cut) => cut % (bytes.length + 1)).toSorted((a, b) => a - b), bytes.length];
  return Buffer.concat(
    places.slice(1).flatMap((to, i) => [between(i), zstdFrame(bytes.subarray(places[i], to), shape)]),
  );
}

function values(blocks: readonly ScannedBlock[]): unknown[] {
  return blocks.flatMap(({ columns, records, offsets }) =>
    Array.from({ length: records }, (_, i) => [
      offsets![i],
      columns.faults.get(i)?.toRecord().byteOffset,
      ...["id", "input_ids", "text"].map((name) => rowOf(columns.fields.get(name), i)),
    ]),
  );
}

test("frames cut anywhere, in groups of any kind, give the records of the plain file", async () => {
  const kinds = ["", "", "skippable", "empty", "apart", "apart"] as const;
  await fc.assert(
    fc.asyncProperty(
      fc.integer({ min: 1, max: 200 }),
      fc.boolean(),
      fc.array(fc.nat(), { minLength: 1, maxLength: 30 }),
      fc.array(fc.constantFrom(...kinds), { minLength: 31, maxLength: 31 }),
      fc.record({ block: fc.integer({ min: 1, max: 3000 }), sized: fc.boolean(), checksum: fc.boolean() }),
      async (count, array, cuts, between, shape) => {
        const whole = sample(count, count);
        const bytes = array ? whole.array : whole.lines;
        const file = framed(bytes, cuts, (i) => betweenOf(between[i]!), shape);
        const name = array ? "a.json" : "a.jsonl";
        const random = generator(count);
        const plain = await scanShard(jsonl, shardOf(name, bytes));
        const { blocks, end } = await checkShard(jsonl, shardOf(`${name}.zst`, file), {}, random);
        assert.equal(end.encoding, "zstd-frames");
        assert.deepEqual(values(blocks), values(plain.blocks));
      },
    ),
    { numRuns: 400 },
  );
});

function betweenOf(kind: string): Uint8Array {
  if (kind === "apart") return APART;
  if (kind === "skippable") return skippableFrame(5);
  return kind === "empty" ? zstdFrame(new Uint8Array(0)) : new Uint8Array(0);
}

test("a block is its group of frames and what it needs of the next one", async () => {
  const line = (i: number): string => `{"id":${i},"text":"${"x".repeat(90)}"}\n`;
  const bytes = Buffer.from(Array.from({ length: 1000 }, (_, i) => line(i)).join(""));
  const file = framed(bytes, [30_050, 60_000], (i) => (i === 0 ? new Uint8Array(0) : APART), { block: 500 });
  const { blocks } = await checkShard(jsonl, shardOf("a.jsonl.zst", file));
  assert.equal(blocks.length, 3);
  const groups = (await frameGroups(memoryObject("a", file)))!;
  const stored = groups.begin.map((begin, g) => groups.end[g]! - begin);
  for (const [g, { segments, origin, restarts, records }] of blocks.entries()) {
    assert.deepEqual(segments[0], { file: 0, offset: groups.begin[g], length: stored[g], field: 0 });
    assert.equal(restarts.length, Math.ceil(records / 64) + 1);
    assert.equal(origin, [0, 30_050, 60_000][g]);
    if (g === 2) assert.equal(segments.length, 1);
    // One or two of the next frame's blocks of 500 bytes.
    else assert.ok(segments.length === 2 && segments[1]!.length < 1100, JSON.stringify(segments));
  }
  assert.equal(
    blocks.reduce((sum, { records }) => sum + records, 0),
    1000,
  );
});

test("small frames are grouped up to 4 MiB stored or 16 MiB decoded", async () => {
  // 128 KiB of newlines are 4 bytes; 64 KiB of text that does not repeat are stored as they are.
  const newlines = zstdFrame(new Uint8Array(1 << 17).fill(10));
  const text = Buffer.from(`{"text":"${"ab".repeat(32_750)}"}\n`);
  const file = Buffer.concat([
    ...Array.from({ length: 300 }, () => newlines),
    ...Array.from({ length: 150 }, () => zstdFrame(text)),
  ]);
  const groups = (await frameGroups(memoryObject("a", file)))!;
  assert.deepEqual(groups.begin.slice(0, 3), [0, 128 * newlines.length, 256 * newlines.length]);
  const lengths = groups.begin.map((begin, g) => groups.end[g]! - begin);
  assert.ok(Math.max(...lengths) < 4.2 * 2 ** 20 && lengths.length === 5, String(lengths));
  const { records, table } = await indexShard(jsonl, shardOf("a.jsonl.zst", file));
  assert.equal(records, 150);
  // No record begins in the first two groups.
  assert.equal(table.blocks, 3);
  assert.equal(table.stream, false);
});

test("a record over several groups belongs to the one that it begins in", async () => {
  const bytes = Buffer.from(`{"id":1,"text":"${"y".repeat(5000)}"}\n{"id":2,"text":"z"}\n`);
  const file = framed(bytes, [10, 1000, 2000, 4000, 5018], () => APART, { block: 100 });
  const { blocks } = await checkShard(jsonl, shardOf("a.jsonl.zst", file));
  assert.deepEqual(
    blocks.map(({ records, origin, segments }) => [records, origin, segments.length]),
    [
      [1, 0, 6],
      [1, 5018, 1],
    ],
  );
});

test("more than 65,536 records in one frame are several blocks of it", async () => {
  const bytes = Buffer.from('{"id":7}\n'.repeat(150_000));
  const file = framed(bytes, [1_000_003], () => new Uint8Array(0));
  const { blocks } = await checkShard(jsonl, shardOf("a.jsonl.zst", file));
  assert.deepEqual(
    blocks.map(({ records }) => records),
    [65_536, 65_536, 150_000 - 2 * 65_536],
  );
  assert.ok(blocks.every(({ segments }) => segments[0]!.offset === 0));
});

test("one frame, frames too large, and a dictionary stay streams", async () => {
  const { lines } = sample(300, 3);
  const large = new Uint8Array(64 * 2 ** 20 + 1).fill(10);
  for (const shape of [{}, { sized: false }]) {
    const file = Buffer.concat([zstdFrame(lines), zstdFrame(large, shape)]);
    assert.equal(await frameGroups(memoryObject("a", file)), undefined);
  }
  const dictionary = zstdFrame(lines, { sized: false });
  dictionary[4]! |= 1;
  assert.equal(await frameGroups(memoryObject("a", Buffer.concat([zstdFrame(lines), dictionary]))), undefined);
  for (const file of [zstdFrame(lines), Buffer.concat([skippableFrame(5), zstdFrame(lines), skippableFrame(9)])]) {
    const { blocks, end } = await checkShard(jsonl, shardOf("a.jsonl.zst", file));
    assert.equal(end.encoding, "zstd");
    assert.equal(blocks[0]!.origin, undefined);
  }
});

test("frames of libzstd, sized and not, with checksums and without", async () => {
  const file = readFileSync(`${fixtures}/zstd/records.zst`);
  const { blocks, end } = await checkShard(jsonl, shardOf("a.jsonl.zst", file));
  assert.equal(end.encoding, "zstd-frames");
  assert.equal(
    blocks.reduce((sum, { records }) => sum + records, 0),
    400,
  );
});

test("a damaged frame: all before it comes out, then the error with its compressed byte", async () => {
  const line = (i: number): string => `{"id":${i}}\n`;
  const bytes = Buffer.from(Array.from({ length: 2000 }, (_, i) => line(i)).join(""));
  const first = zstdFrame(bytes.subarray(0, 10_000));
  const file = Buffer.concat([first, zstdFrame(bytes.subarray(10_000), { block: 1000 })]);
  // A digit of a late block: only the checksum tells.
  const changed = Buffer.from(file);
  changed[first.length + 7000]! ^= 1;
  const records: number[] = [];
  const failed = await failureOf(async () => {
    const { blocks } = await scanShard(jsonl, shardOf("a.jsonl.zst", changed));
    records.push(...blocks.map((block) => block.records));
  });
  assert.equal(failed.code, "ATH_STREAM_CORRUPT");
  assert.match(failed.message, /checksum/);
  // A block header that cannot be: the file is read as a stream, which says where.
  const broken = Buffer.from(file);
  broken[first.length + 14 + 1003]! |= 6;
  const other = await failureOf(() => scanShard(jsonl, shardOf("a.jsonl.zst", broken)));
  assert.equal(other.code, "ATH_STREAM_CORRUPT");
  assert.equal(other.where.byteOffset, first.length + 14 + 1003);
});

async function failureOf(run: () => Promise<unknown>): Promise<AthanorError> {
  try {
    await run();
  } catch (error) {
    assert.ok(error instanceof AthanorError, String(error));
    return error;
  }
  throw new Error("expected an error");
}
