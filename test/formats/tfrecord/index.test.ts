import assert from "node:assert/strict";
import { test } from "node:test";
import { deflateSync, gzipSync } from "node:zlib";
import fc from "fast-check";
import { AthanorError } from "../../../src/base/errors.ts";
import { index } from "../../../src/formats/tfrecord/index.ts";
import { parseRecord } from "../../../src/formats/tfrecord/records.ts";
import { BLOCK_BYTES, RESTART_EVERY, type ShardContent } from "../../../src/formats/types.ts";
import { concat, crc32c, delimited, example, frame } from "../../kernels/examples.ts";
import { memoryObject } from "./memory-object.ts";
import { all, failure, ints, many, MANY, twin, wasm } from "./shards.ts";

const indexOf = (bytes: Uint8Array): Promise<ShardContent> => index(memoryObject("x.tfrecord", bytes), wasm);

test("an empty file is a shard of no records, also compressed", async () => {
  for (const bytes of [new Uint8Array(0), gzipSync(""), deflateSync("")]) {
    const content = await indexOf(bytes);
    assert.deepEqual([content.records, content.tokens, content.table.blocks, content.schema.fields], [0, 0, 0, []]);
    assert.equal(content.crc32c, crc32c(bytes));
    assert.deepEqual([...content.table.firstRecord], [0]);
    assert.deepEqual(await all(bytes), []);
  }
});

test("schema: kinds, presence, lengths, extremes, masks, by name", async () => {
  const bytes = concat(
    ...[
      example([
        ["ids", { kind: "int64", values: [10n, 11n, 12n, 13n, 14n] }],
        ["mask", { kind: "int64", values: [1n, 1n, 0n] }],
        ["w", { kind: "float", values: [1, 2] }],
      ]),
      example([
        ["mask", { kind: "int64", values: [] }],
        ["ids", { kind: "int64", values: [-(2n ** 63n), 2n ** 63n - 1n] }],
        ["late", { kind: "bytes", values: [Uint8Array.of(1)] }],
        ["never", { kind: "none" }],
      ]),
      example([
        ["ids", { kind: "none" }],
        ["label", { kind: "int64", values: [0n, 1n] }],
      ]),
    ].map(frame),
  );
  for (const kernels of [wasm, twin]) {
    const content = await index(memoryObject("x", bytes), kernels);
    assert.deepEqual(content.schema.fields, [
      {
        name: "ids",
        kind: "int64",
        present: 2,
        minLength: 2,
        maxLength: 5,
        values: 7,
        min: "-9223372036854775808",
        max: "9223372036854775807",
        prefixMask: false,
      },
      {
        name: "label",
        kind: "int64",
        present: 1,
        minLength: 2,
        maxLength: 2,
        values: 2,
        min: "0",
        max: "1",
        prefixMask: false,
      },
      { name: "late", kind: "bytes", present: 1, minLength: 1, maxLength: 1, values: 1 },
      {
        name: "mask",
        kind: "int64",
        present: 2,
        minLength: 0,
        maxLength: 3,
        values: 3,
        min: "0",
        max: "1",
        prefixMask: true,
      },
      { name: "w", kind: "float", present: 1, minLength: 2, maxLength: 2, values: 2 },
    ]);
    assert.equal(content.tokens, 7);
  }
});

test("blocks hold the records that begin in each 4 MiB; restarts lie every 64 records; streams alike", async () => {
  const offsets: number[] = [];
  const view = new DataView(many.buffer);
  for (let at = 0; at < many.length; at += Number(view.getBigUint64(at, true)) + 16) offsets.push(at);
  const shards: [Uint8Array, boolean][] = [
    [many, false],
    [gzipSync(many, { level: 1 }), true],
  ];
  for (const [bytes, stream] of shards) {
    const { table, records, tokens, crc32c: crc, encoding } = await indexOf(bytes);
    assert.deepEqual([records, table.stream, encoding], [MANY, stream, stream ? "gzip" : "plain"]);
    assert.equal(crc, crc32c(bytes));
    assert.equal(table.blocks, Math.ceil(offsets.at(-1)! / BLOCK_BYTES));
    for (let b = 0; b < table.blocks; b++) {
      const mine = offsets.filter((o) => Math.floor(o / BLOCK_BYTES) === b);
      const first = offsets.indexOf(mine[0]!);
      assert.deepEqual([table.firstRecord[b], table.firstRecord[b + 1]], [first, first + mine.length]);
      assert.deepEqual([table.segmentStart[b], table.segmentStart[b + 1], table.segmentFile[b]], [b, b + 1, 0]);
      assert.equal(table.segmentOffset[b], mine[0]);
      assert.equal(table.segmentLength[b], (offsets[first + mine.length] ?? many.length) - mine[0]!);
      assert.deepEqual(
        [...table.restarts.subarray(table.restartStart[b], table.restartStart[b + 1])],
        mine.filter((_, i) => i % RESTART_EVERY === 0).map((o) => o - mine[0]!),
      );
      assert.equal(
        table.tokens[b],
        mine.reduce((sum, o) => sum + (offsets.indexOf(o) % 5), 0),
      );
    }
    assert.equal(
      tokens,
      table.tokens.reduce((a, n) => a + n, 0),
    );
  }
});

test("a record longer than the read buffer", async () => {
  const long = new Uint8Array(21 * 1024 * 1024);
  for (let i = 0; i < long.length; i += 4096) long[i] = i >> 12;
  const bytes = concat(
    frame(example([["t", ints(1)]])),
    frame(
      example([
        ["t", ints(2)],
        ["b", { kind: "bytes", values: [long] }],
      ]),
    ),
    frame(example([["t", ints(3)]])),
  );
  for (const shard of [bytes, gzipSync(bytes, { level: 1 })]) {
    const content = await indexOf(shard);
    // Blocks 1 to 4 of the file hold no record's beginning, so they are not listed.
    assert.deepEqual([content.records, content.table.blocks, content.tokens], [3, 2, 6]);
    const records = await all(shard);
    const list = parseRecord("x", records[1]!).get("b")!;
    assert.ok(list.kind === "bytes" && Buffer.compare(list.values[0]!, long) === 0);
  }
});

test("cut at any byte: an error with record and offset, or a whole shard; never fewer records in silence", async () => {
  const frames = [1, 0, 5].map((n) => frame(example([["ids", ints(n)]])));
  const bytes = concat(...frames);
  const borders = [0, frames[0]!.length, frames[0]!.length + frames[1]!.length, bytes.length];
  for (let cut = 0; cut < bytes.length; cut++) {
    const whole = borders.filter((b) => b <= cut).length - 1;
    const part = bytes.subarray(0, cut);
    if (borders.includes(cut)) assert.equal((await indexOf(part)).records, whole);
    else {
      const error = await failure(() => indexOf(part));
      assert.equal(error.code, cut < 12 ? "ATH_NOT_FORMAT" : "ATH_RECORD_TRUNCATED", `cut at ${cut}`);
      assert.deepEqual([error.where.record, error.where.byteOffset], [whole, borders[whole]]);
    }
  }
});

test("SequenceExample, other payloads and changing kinds are refused with record and offset", async () => {
  const good = frame(example([["ids", ints(3)]]));
  const cases: [Uint8Array, string, RegExp][] = [
    [
      concat(delimited(1, new Uint8Array(0)), delimited(2, new Uint8Array(0))),
      "ATH_FORMAT_UNSUPPORTED",
      /SequenceExample/,
    ],
    [new TextEncoder().encode('{"text": "no protobuf"}'), "ATH_RECORD_MALFORMED", /not protobuf/],
    [
      example([["ids", { kind: "float", values: [1] }]]),
      "ATH_FEATURE_KIND",
      /"ids" holds a list of float, expected int64/,
    ],
    [delimited(1, delimited(1, delimited(1, Uint8Array.of(0xff)))), "ATH_RECORD_MALFORMED", /not protobuf at byte/],
  ];
  for (const [payload, code, message] of cases) {
    for (const kernels of [wasm, twin]) {
      const error = await failure(() => index(memoryObject("x.tfrecord", concat(good, frame(payload), good)), kernels));
      assert.equal(error.code, code);
      assert.match(error.message, message);
      assert.deepEqual(error.where, { file: "x.tfrecord", record: 1, byteOffset: good.length });
    }
  }
});

test("hostile bytes: an error or a result, never a hang, and the same from both kernels", async () => {
  const base = concat(
    ...[0, 3, 9].map((n) =>
      frame(
        example([
          ["ids", ints(n)],
          ["w", { kind: "float", values: [n] }],
        ]),
      ),
    ),
  );
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.tuple(fc.nat(base.length - 1), fc.nat(255)), { minLength: 1, maxLength: 3 }),
      async (changes) => {
        const bytes = base.slice();
        for (const [at, byte] of changes) bytes[at] = byte;
        const results = await Promise.all(
          [wasm, twin].map((kernels) =>
            index(memoryObject("x", bytes), kernels).catch(
              (error: unknown) => (assert.ok(error instanceof AthanorError, String(error)), error.toRecord()),
            ),
          ),
        );
        assert.deepEqual(results[0], results[1]);
      },
    ),
    { numRuns: 200 },
  );
});

test("a file that shrinks while it is read is an error", async () => {
  const object = memoryObject("x", many);
  const error = await failure(() =>
    index({ ...object, size: many.length + 100, readInto: object.readInto.bind(object) }, wasm),
  );
  assert.equal(error.code, "ATH_RECORD_TRUNCATED");
});
