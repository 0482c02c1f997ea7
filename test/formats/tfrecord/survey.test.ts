// Bad records in shards: which there are, and where the good ones lie, with an index of the sound bytes and with one of
// the damaged bytes.
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { AthanorError } from "../../../src/base/errors.ts";
import { compilePlan } from "../../../src/formats/tfrecord/decode.ts";
import { index } from "../../../src/formats/tfrecord/index.ts";
import { survey } from "../../../src/formats/tfrecord/survey.ts";
import type { BlockSurvey, BlockTable, StoredColumn } from "../../../src/formats/types.ts";
import { TABLE_BYTES, type Kernels } from "../../../src/kernels/kernels.ts";
import { createKernels } from "../../../src/kernels/load.ts";
import { concat, example, frame } from "../../kernels/examples.ts";
import { memoryObject } from "./memory-object.ts";
import { failure, many, twin, wasm } from "./shards.ts";

const ids: StoredColumn = {
  name: "id",
  feature: "id",
  storage: "i64",
  maxLength: 1,
  pad: "-1",
  rowOffset: 32,
  rowBytes: 8,
};
const both = [createKernels(1 << 20, "wasm"), createKernels(1 << 20, "twin")];

/** Record i has id i and some ballast. */
const record = (i: number): Uint8Array =>
  frame(
    example([
      ["id", { kind: "int64", values: [BigInt(i)] }],
      ["text", { kind: "bytes", values: [new Uint8Array((i * 37) % 50).fill(i)] }],
    ]),
  );

/** Surveys block 0 of a table whose bytes are now `bytes`; ids of the good records by number. */
function surveyOf(kernels: Kernels, bytes: Uint8Array, table: BlockTable): { survey: BlockSurvey; ids: number[] } {
  const plan = kernels.tables + TABLE_BYTES;
  const row = plan + 1024;
  const rows = row + 64;
  const records = table.firstRecord[1]!;
  const raw = rows + Math.ceil(records / 16) * 64;
  compilePlan(kernels, plan, [ids]);
  new Uint8Array(kernels.memory.buffer).set(bytes, raw);
  const base = { firstRecord: 0, plan, shardKey: 9n, file: "/d/a", fileOffset: 0, row, rows };
  const found = survey(kernels, { ...base, raw, rawBytes: bytes.length, records, restarts: table.restarts });
  const view = new DataView(kernels.memory.buffer);
  const good = Array.from({ length: records }, (_, i) => {
    if (found.faults.has(i)) return -1;
    const length = found.end[i]! - found.begin[i]!;
    const one = { raw: raw + found.begin[i]!, rawBytes: length, records: 1, rows, plan, shardKey: 9n };
    const { fault } = kernels.decodeExamples({ ...one, firstRecord: i, checkCrc: true });
    assert.equal(fault, undefined);
    assert.equal(view.getBigUint64(row + 8, true), BigInt(i));
    return Number(view.getBigInt64(row + 32, true));
  });
  return { survey: found, ids: good };
}

interface Damage {
  record: number;
  kind: "payload" | "crc" | "length" | "length crc";
  byte: number;
}

const damage: fc.Arbitrary<Damage> = fc.record({
  record: fc.nat(299),
  kind: fc.constantFrom("payload", "crc", "length", "length crc"),
  byte: fc.nat(1000),
});

function damaged(frames: readonly Uint8Array[], damages: readonly Damage[]): Uint8Array {
  const copies = frames.map((one) => one.slice());
  for (const { record: number, kind, byte } of damages) {
    const one = copies[number % copies.length]!;
    const payload = one.length - 16;
    const at = {
      payload: 12 + (byte % payload),
      crc: 12 + payload + (byte % 4),
      length: byte % 8,
      "length crc": 8 + (byte % 4),
    };
    one[at[kind]]! ^= 1 + (byte % 255);
  }
  return concat(...copies);
}

const sound = async (bytes: Uint8Array): Promise<BlockTable> => (await index(memoryObject("a", bytes), wasm)).table;

test("any damage: no bad record passes for a good one, and the good ones are themselves", async () => {
  await fc.assert(
    fc.asyncProperty(fc.integer({ min: 1, max: 300 }), fc.array(damage, { maxLength: 6 }), async (count, damages) => {
      const frames = Array.from({ length: count }, (_, i) => record(i));
      const table = await sound(concat(...frames));
      const bytes = damaged(frames, damages);
      const hit = new Set(frames.flatMap((one, i) => (damagedAt(bytes, frames, i, one) ? [i] : [])));
      const [a, b] = both.map((kernels) => surveyOf(kernels, bytes, table)) as [
        ReturnType<typeof surveyOf>,
        ReturnType<typeof surveyOf>,
      ];
      assert.deepEqual(a.ids, b.ids);
      assert.deepEqual(text(a.survey), text(b.survey));
      a.ids.forEach((id, i) => assert.ok(hit.has(i) ? id === -1 : id === i || id === -1, `record ${i}: ${id}`));
      // What is lost beside the damage itself lies between two damaged lengths of one stretch of 64.
      const lengths = damages.filter(({ kind }) => kind.startsWith("length")).map((d) => d.record % count);
      for (const [i, id] of a.ids.entries()) {
        if (id === i || hit.has(i)) continue;
        const same = lengths.filter((n) => Math.floor(n / 64) === Math.floor(i / 64));
        assert.ok(Math.min(...same) <= i && i <= Math.max(...same) + 1, `record ${i} of ${lengths.join()}`);
      }
      for (const [i, fault] of a.survey.faults) assert.deepEqual([fault.where.file, fault.where.record], ["/d/a", i]);
    }),
    { numRuns: 150 },
  );
});

function damagedAt(bytes: Uint8Array, frames: readonly Uint8Array[], i: number, one: Uint8Array): boolean {
  const at = frames.slice(0, i).reduce((sum, before) => sum + before.length, 0);
  return Buffer.compare(bytes.subarray(at, at + one.length), one) !== 0;
}

function text({ begin, end, faults }: BlockSurvey): unknown {
  return [
    [...begin],
    [...end],
    [...faults].map(([i, fault]) => [i, fault.toRecord()] as const).sort(([a], [b]) => a - b),
  ];
}

test("an index of damaged bytes: each bad piece is one record, told of once, and a survey finds the same", async () => {
  await fc.assert(
    fc.asyncProperty(fc.integer({ min: 1, max: 300 }), fc.array(damage, { maxLength: 6 }), async (count, damages) => {
      const frames = Array.from({ length: count }, (_, i) => record(i));
      const bytes = damaged(frames, damages);
      const bad: AthanorError[] = [];
      const object = memoryObject("/d/a", bytes);
      // A shard whose first length is damaged is of no format that we know. Two damages of one byte may undo each other.
      if (Buffer.compare(bytes.subarray(0, 12), frames[0]!.subarray(0, 12)) !== 0) {
        assert.equal(
          (await failure(() => index(object, wasm, undefined, (fault) => bad.push(fault)))).code,
          "ATH_NOT_FORMAT",
        );
        return;
      }
      const content = await index(object, wasm, undefined, (fault) => bad.push(fault));
      assert.deepEqual(content, await index(object, twin, undefined, () => undefined));
      const found = surveyOf(both[0]!, bytes, content.table);
      assert.deepEqual(
        [...found.survey.faults.keys()].sort((a, b) => a - b),
        bad.map(({ where }) => where.record),
      );
      assert.deepEqual(
        bad.map(({ where }) => where.byteOffset),
        bad.map(({ where }) => found.survey.begin[where.record!]),
      );
      // Every record that was not hit, and does not lie behind a damaged length that swallowed it, is there, in order.
      const whole = frames.flatMap((one, i) => (damagedAt(bytes, frames, i, one) ? [] : [i]));
      const good = found.ids.filter((id) => id >= 0);
      assert.deepEqual(good, whole);
      if (bad.length > 0)
        assert.equal((await failure(() => index(memoryObject("/d/a", bytes), wasm))).code, bad[0]!.code);
    }),
    { numRuns: 150 },
  );
});

test("damage over borders of reads and blocks, and a shard cut inside its last record", async () => {
  const bytes = many.slice();
  bytes.fill(0x5a, 3_000_000, 9_500_000); // over two block borders and one of reads
  const cut = bytes.subarray(0, bytes.length - 3);
  const bad: AthanorError[] = [];
  const content = await index(memoryObject("a", cut), wasm, undefined, (fault) => bad.push(fault));
  const sane = await index(memoryObject("a", many), wasm);
  // The record in whose payload the damage begins, the hole behind it (its own length is gone), and the last one.
  assert.deepEqual(
    bad.map(({ code }) => code),
    ["ATH_RECORD_CRC", "ATH_RECORD_CRC", "ATH_RECORD_TRUNCATED"],
  );
  assert.equal(content.table.blocks, sane.table.blocks - 1);
  assert.equal(bad[2]!.where.record, content.records - 1);
  assert.equal(
    content.table.segmentLength.reduce((sum, n) => sum + n, 0),
    cut.length,
  );
  const lost = sane.records - content.records;
  assert.ok(lost > 500 && lost < 800, `${lost}`);
});

test("a SequenceExample is no bad record: the shard is of another form", async () => {
  const sequence = frame(Uint8Array.of(0x12, 0x00));
  const bytes = concat(record(0), sequence, record(1));
  const error = await failure(() => index(memoryObject("a", bytes), wasm, undefined, () => undefined));
  assert.equal(error.code, "ATH_FORMAT_UNSUPPORTED");
});
