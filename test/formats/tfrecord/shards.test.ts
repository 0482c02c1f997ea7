import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { deflateSync, gzipSync } from "node:zlib";
import fc from "fast-check";
import { AthanorError } from "../../../src/base/errors.ts";
import { index } from "../../../src/formats/tfrecord/index.ts";
import { parseRecord, readRecords, type RawRecord } from "../../../src/formats/tfrecord/records.ts";
import { InflateStream } from "../../../src/formats/tfrecord/stream.ts";
import { BLOCK_BYTES, RESTART_EVERY, type ShardContent } from "../../../src/formats/types.ts";
import { createKernels } from "../../../src/kernels/load.ts";
import { concat, crc32c, delimited, example, frame, type Feature } from "../../kernels/examples.ts";
import { fixtures } from "../fixtures.ts";
import { memoryObject } from "./memory-object.ts";

const wasm = createKernels(0, "wasm");
const twin = createKernels(0, "twin");

const indexOf = (bytes: Uint8Array, file = "x.tfrecord"): Promise<ShardContent> =>
  index(memoryObject(file, bytes), wasm);

async function failure(run: () => Promise<unknown>): Promise<AthanorError> {
  try {
    await run();
  } catch (error) {
    assert.ok(error instanceof AthanorError, String(error));
    return error;
  }
  throw new Error("expected an error");
}

async function all(bytes: Uint8Array, range = {}, kernels = wasm): Promise<RawRecord[]> {
  const out: RawRecord[] = [];
  for await (const record of readRecords(memoryObject("x.tfrecord", bytes), kernels, range)) out.push(record);
  return out;
}

const ints = (n: number, from = 0): Feature => ({
  kind: "int64",
  values: Array.from({ length: n }, (_, i) => BigInt(from + i)),
});

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
        ["ids", ints(5, 10)],
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

// 1400 records of 1 to 20 KB: some 14 MB in 4 blocks, more than one read of 8 MiB.
const MANY = 1400;
const tokensOf = (i: number): number => 500 + ((i * 7919) % 9500);
const many = concat(
  ...Array.from({ length: MANY }, (_, i) =>
    frame(
      example([
        ["ids", { kind: "bytes", values: [new Uint8Array(tokensOf(i) * 2).fill(i)] }],
        ["n", ints(i % 5)],
      ]),
    ),
  ),
);

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

test("records come out whole, in order, across reads; ranges too", async () => {
  const records = await all(many, { from: 3, to: 1398 });
  assert.equal(records.length, 1395);
  assert.deepEqual([records[0]!.record, records.at(-1)!.record], [3, 1397]);
  for (const { record, payload } of records) {
    if (record % 100 !== 3) continue;
    assert.equal(parseRecord("x", { record, byteOffset: 0, payload }).get("n")!.values.length, record % 5);
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

test("compressed streams cut at any byte are errors", async () => {
  const body = concat(...Array.from({ length: 20 }, (_, i) => frame(example([["ids", ints(i)]]))));
  for (const bytes of [gzipSync(body), deflateSync(body)]) {
    for (let cut = 40; cut < bytes.length; cut += 3) {
      const error = await failure(() => all(bytes.subarray(0, cut)));
      assert.equal(error.code, "ATH_STREAM_CORRUPT", `cut at ${cut} of ${bytes.length}`);
      assert.equal(error.where.byteOffset, cut);
    }
  }
});

test("a damaged compressed stream names its compressed byte", async () => {
  const body = concat(
    ...Array.from({ length: 3000 }, (_, i) =>
      frame(example([["b", { kind: "bytes", values: [Buffer.from(String(i * i * 7919).repeat(9))] }]])),
    ),
  );
  const bytes = gzipSync(body);
  const trailer = bytes.slice();
  trailer[bytes.length - 6]! ^= 1;
  const error = await failure(() => all(trailer));
  assert.equal(error.code, "ATH_STREAM_CORRUPT");
  assert.match(error.message, /from compressed byte \d+/);
});

test("many gzip members, also with borders inside records and at chunk borders; zeros behind; other bytes refused", async () => {
  const members = Buffer.concat(
    Array.from({ length: Math.ceil(many.length / 500_000) }, (_, i) =>
      gzipSync(many.subarray(i * 500_000, (i + 1) * 500_000), { level: 1 }),
    ),
  );
  assert.equal((await indexOf(members)).records, MANY);
  assert.equal((await indexOf(Buffer.concat([members, Buffer.alloc(2_000_000)]))).records, MANY);
  const tail = Buffer.concat([members, Buffer.alloc(1_500_000), Buffer.from("x")]);
  const error = await failure(() => indexOf(tail));
  assert.equal(error.code, "ATH_STREAM_CORRUPT");
  assert.equal(error.where.byteOffset, members.length + 1_500_000);
  assert.equal(
    (await failure(() => indexOf(Buffer.concat([deflateSync(many.subarray(0, 0)), Buffer.from("x")])))).code,
    "ATH_STREAM_CORRUPT",
  );
});

test("InflateStream gives the same bytes for any chunks, skips and reads", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.uint8Array({ maxLength: 3000 }),
      fc.integer({ min: 1, max: 700 }),
      fc.integer({ min: 1, max: 900 }),
      fc.nat(500),
      fc.boolean(),
      async (body, chunk, read, skip, gzip) => {
        const cut = body.length >> 1;
        const packed = gzip
          ? Buffer.concat([gzipSync(body.subarray(0, cut)), gzipSync(body.subarray(cut))])
          : deflateSync(body);
        let at = 0;
        const stream = new InflateStream(gzip ? "gzip" : "zlib", "x", () => {
          const part = packed.subarray(at, at + chunk);
          at += part.length;
          setImmediate(() => stream.push(part, at >= packed.length));
        });
        const from = Math.min(skip, body.length);
        await stream.skip(from);
        const out: Uint8Array[] = [];
        for (;;) {
          const target = new Uint8Array(new SharedArrayBuffer(read));
          const n = await stream.readSome(target);
          if (n === 0) break;
          out.push(target.slice(0, n));
        }
        assert.deepEqual(concat(...out), body.slice(from));
        await assert.rejects(stream.readInto(new Uint8Array(1)), { code: "ATH_STREAM_CORRUPT" });
      },
    ),
    { numRuns: 60 },
  );
});

test("a closed stream wakes its reader", async () => {
  const stream = new InflateStream("gzip", "x", () => {});
  const read = stream.readInto(new Uint8Array(1));
  stream.destroy();
  await assert.rejects(read, /closed/);
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

// ---- golden loop: every binary fixture has a JSON twin -------------------------------------------------------------

type Json = null | number | string | Json[] | { [key: string]: Json };

function jsonOf(value: bigint | number | Uint8Array, like: Json): Json {
  if (value instanceof Uint8Array)
    return typeof like === "string" ? new TextDecoder().decode(value) : { b64: Buffer.from(value).toString("base64") };
  if (typeof value === "bigint") return typeof like === "number" ? Number(value) : value.toString();
  return Number.isFinite(value) ? value : { float: Number.isNaN(value) ? "NaN" : value > 0 ? "inf" : "-inf" };
}

/** A record in the form of the expected values: a list, or its only value where a scalar is expected. */
function shaped(record: RawRecord, expected: Record<string, Json>): Record<string, Json> {
  const features = parseRecord("x", record);
  return Object.fromEntries(
    Object.entries(expected).map(([name, like]) => {
      const list = features.get(name) ?? null;
      if (list === null) return [name, null];
      const values: readonly (bigint | number | Uint8Array)[] = list.values;
      if (Array.isArray(like)) return [name, values.map((v, i) => jsonOf(v, like[i] ?? null))];
      assert.equal(values.length, 1);
      return [name, jsonOf(values[0]!, like)];
    }),
  );
}

interface Expected {
  input: string[];
  n: number;
  records?: Record<string, Json>[];
  readable_before?: Record<string, Json>[];
  error?: Fault | Fault[];
}
interface Fault {
  file: string;
  record: number;
  byte_offset: number;
  cause: string;
}

const folders = [
  ...readdirSync(join(fixtures, "cases"))
    .filter((name) => name.includes("-tfrecord-"))
    .map((name) => join(fixtures, "cases", name)),
  join(fixtures, "tfrecord"),
];
for (const folder of folders) {
  const expected = JSON.parse(readFileSync(join(folder, "expected.json"), "utf8")) as Expected;
  for (const input of expected.input) {
    test(`golden: ${folder.slice(fixtures.length + 1)}/${input}`, async () => {
      const object = memoryObject(input, new Uint8Array(readFileSync(join(folder, input))));
      const good = expected.records ?? expected.readable_before ?? [];
      const read: RawRecord[] = [];
      const reading = async (): Promise<void> => {
        for await (const record of readRecords(object, wasm)) read.push(record);
      };
      const fault = [expected.error ?? []].flat().find((error) => error.file === input);
      if (fault === undefined) {
        await reading();
        assert.equal((await index(object, wasm)).records, expected.n);
      } else {
        for (const error of [await failure(reading), await failure(() => index(object, wasm))]) {
          assert.deepEqual(error.where, { file: input, record: fault.record, byteOffset: fault.byte_offset });
          const words = fault.cause.replace(/ \(one bit flipped.*/, "").replace(" mismatch", "");
          assert.ok(error.what.replace(" mismatch", "").includes(words), `${error.what}\nshould say: ${words}`);
        }
      }
      assert.equal(read.length, expected.n);
      good.forEach((record, i) => assert.deepEqual(shaped(read[i]!, record), record));
    });
  }
}
