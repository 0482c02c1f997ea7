import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { crc32c } from "../../src/base/crc32c.ts";
import { encodePlan } from "../../src/formats/tfrecord/plan.ts";
import type { StoredColumn } from "../../src/formats/types.ts";
import { STATS_ENTRY, STATS_HEADER, STATS_STAMP } from "../../src/kernels/assembly/layout.ts";
import { FAULT, TABLE_BYTES, type Kernels, type KernelFault } from "../../src/kernels/kernels.ts";
import { createKernels, loadKernels } from "../../src/kernels/load.ts";
import { concat, delimited, entry, example, feature, frame, statsTable, varint, type Feature } from "./examples.ts";

const wasm = createKernels(1 << 20, "wasm");
const twin = createKernels(1 << 20, "twin");
const both: readonly Kernels[] = [wasm, twin];

const CANARY = 0xa5;
/** A range of the memory with 64 canary bytes before and behind it. */
function lay(kernels: Kernels, at: number, bytes: Uint8Array): number {
  const memory = new Uint8Array(kernels.memory.buffer);
  const from = kernels.tables + TABLE_BYTES + at + 64;
  memory.fill(CANARY, from - 64, from + bytes.length + 64);
  memory.set(bytes, from);
  return from;
}
function canaries(kernels: Kernels, from: number, length: number): void {
  const memory = new Uint8Array(kernels.memory.buffer);
  for (let i = 1; i <= 64; i++) {
    assert.equal(memory[from - i], CANARY, `byte ${i} before the range was overwritten`);
    assert.equal(memory[from + length + i - 1], CANARY, `byte ${i} behind the range was overwritten`);
  }
}

const COLUMNS: StoredColumn[] = [
  { name: "ids", feature: "ids", storage: "i32", maxLength: 21, pad: "-3", rowOffset: 32, rowBytes: 88 },
  { name: "mask", feature: "mask", storage: "prefix", maxLength: 21, pad: "0", rowOffset: 120, rowBytes: 8 },
  {
    name: "wide",
    feature: "wide",
    storage: "i64",
    maxLength: 7,
    pad: "-9223372036854775808",
    rowOffset: 128,
    rowBytes: 56,
  },
  { name: "w", feature: "w", storage: "f32", maxLength: 5, pad: "NaN", rowOffset: 184, rowBytes: 24 },
  { name: "n", feature: "ids", storage: "length", maxLength: 21, pad: "0", rowOffset: 208, rowBytes: 8 },
  { name: "t", feature: "t", storage: "length", maxLength: 3, pad: "0", rowOffset: 216, rowBytes: 8 },
];
const ROW = 224;

interface Decoded {
  rows: number;
  truncated: number;
  fault: KernelFault | undefined;
  bytes: Uint8Array[];
}

function decode(
  kernels: Kernels,
  raw: Uint8Array,
  records: number,
  options: { wanted?: boolean[]; checkCrc?: boolean; columns?: StoredColumn[] } = {},
): Decoded {
  const plan = encodePlan(options.columns ?? COLUMNS);
  const planAt = lay(kernels, 0, plan);
  const rawAt = lay(kernels, 8192, raw);
  const stride = ROW + 64;
  const rowsAt = lay(kernels, 262144, new Uint8Array(records * 4));
  const outAt = lay(kernels, 300032, new Uint8Array(records * stride).fill(CANARY));
  const view = new DataView(kernels.memory.buffer);
  for (let i = 0; i < records; i++)
    view.setUint32(rowsAt + i * 4, (options.wanted?.[i] ?? true) ? outAt + i * stride : 0, true);
  const result = kernels.decodeExamples({
    raw: rawAt,
    rawBytes: raw.length,
    firstRecord: 1000,
    records,
    rows: rowsAt,
    plan: planAt,
    shardKey: 0xfedcba9876543210n,
    checkCrc: options.checkCrc ?? true,
  });
  canaries(kernels, rawAt, raw.length);
  canaries(kernels, planAt, plan.length);
  canaries(kernels, outAt, records * stride);
  const memory = new Uint8Array(kernels.memory.buffer);
  assert.deepEqual(memory.slice(rawAt, rawAt + raw.length), raw, "the input was overwritten");
  const bytes: Uint8Array[] = [];
  for (let i = 0; i < records; i++) {
    const at = outAt + i * stride;
    for (let j = ROW; j < stride; j++) assert.equal(memory[at + j], CANARY, `row ${i} was written beyond its end`);
    bytes.push(memory.slice(at, at + ROW));
  }
  return { ...result, bytes };
}

/** Decodes by both; their rows and faults must be equal. */
function decodeBoth(raw: Uint8Array, records: number, options: Parameters<typeof decode>[3] = {}): Decoded {
  const [a, b] = both.map((kernels) => decode(kernels, raw, records, options)) as [Decoded, Decoded];
  assert.deepEqual({ ...a, bytes: [] }, { ...b, bytes: [] });
  // Of the record with the fault only the canaries are promised.
  const whole = a.fault === undefined ? records : a.fault.record;
  assert.deepEqual(a.bytes.slice(0, whole), b.bytes.slice(0, whole));
  return a;
}

function columnOf(row: Uint8Array, name: string): (number | bigint)[] {
  const column = COLUMNS.find((c) => c.name === name)!;
  const view = new DataView(row.buffer, row.byteOffset);
  const at = column.rowOffset;
  if (column.storage === "prefix" || column.storage === "length") return [view.getUint32(at, true)];
  return Array.from({ length: column.maxLength }, (_, i) =>
    column.storage === "i32"
      ? view.getInt32(at + i * 4, true)
      : column.storage === "i64"
        ? view.getBigInt64(at + i * 8, true)
        : view.getFloat32(at + i * 4, true),
  );
}
const padded = <T>(values: readonly T[], length: number, pad: T): T[] =>
  Array.from({ length }, (_, i) => values[i] ?? pad);

test("CRC32C vectors of RFC 3720 B.4", () => {
  const up = Uint8Array.from({ length: 32 }, (_, i) => i);
  const pdu = Uint8Array.from([
    0x01,
    0xc0,
    ...Array(14).fill(0),
    0x14,
    0,
    0,
    0,
    0,
    0,
    0x04,
    0,
    0,
    0,
    0,
    0x14,
    0,
    0,
    0,
    0x18,
    0x28,
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    0x02,
    ...Array(7).fill(0),
  ]);
  const vectors: [Uint8Array, number][] = [
    [new Uint8Array(32), 0x8a9136aa],
    [new Uint8Array(32).fill(255), 0x62a8ab43],
    [up, 0x46dd794e],
    [up.slice().reverse(), 0x113fdb5c],
    [pdu, 0xd9963a56],
    [new TextEncoder().encode("123456789"), 0xe3069283],
    [new Uint8Array(0), 0],
  ];
  for (const kernels of both)
    for (const [bytes, crc] of vectors) assert.equal(kernels.crc32c(lay(kernels, 0, bytes), bytes.length), crc);
});

test("a CRC continued from a seed equals the CRC of the whole", () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 300 }), fc.nat(300), (bytes, cut) => {
      const at = Math.min(cut, bytes.length);
      const crcs = both.map((k) => {
        const from = lay(k, 0, bytes);
        const whole = k.crc32c(from, bytes.length);
        assert.equal(k.crc32c(from + at, bytes.length - at, k.crc32c(from, at)), whole);
        return whole;
      });
      assert.equal(crcs[0], crcs[1]);
    }),
  );
});

test("gather copies a column of rows, one behind the other", () => {
  for (const kernels of both) {
    const rows = [0, 1, 2].map((i) =>
      lay(
        kernels,
        1024 + i * 256,
        Uint8Array.from({ length: 24 }, (_, b) => i * 100 + b),
      ),
    );
    const table = lay(kernels, 0, new Uint8Array(Uint32Array.of(rows[2]!, rows[0]!, rows[2]!).buffer));
    const out = lay(kernels, 4096, new Uint8Array(15));
    kernels.gather(table, 3, 8, 5, out);
    assert.deepEqual(
      [...new Uint8Array(kernels.memory.buffer).slice(out, out + 15)],
      [208, 209, 210, 211, 212, 8, 9, 10, 11, 12, 208, 209, 210, 211, 212],
    );
    canaries(kernels, out, 15);
  }
});

test("gatherHeads tells whose rows they are, writes nothing else of an identity, and counts what the flags say", () => {
  for (const kernels of both) {
    const rows = [0, 1, 2, 3].map((flags) =>
      lay(
        kernels,
        1024 + flags * 256,
        new Uint8Array(Uint32Array.of(flags, 11, 12 + flags, 13, 14, flags, 15, 16).buffer),
      ),
    );
    const order = [3, 0, 1, 3, 2];
    const table = lay(kernels, 0, new Uint8Array(Uint32Array.from(order, (flags) => rows[flags]!).buffer));
    const out = lay(kernels, 4096, new Uint8Array(order.length * 32).fill(0xee));
    assert.deepEqual(kernels.gatherHeads(table, order.length, out), { cut: 3, replaced: 3 });
    const ee = 0xeeeeeeee;
    assert.deepEqual(
      [...new Uint32Array(kernels.memory.buffer.slice(out, out + order.length * 32))],
      order.flatMap((flags) => [ee, ee, flags, 11, 12 + flags, 13, 14, ee]),
    );
    canaries(kernels, out, order.length * 32);
    assert.deepEqual(kernels.gatherHeads(table, 0, out), { cut: 0, replaced: 0 });
  }
});

test("scatter puts values at a stride into rows, and leaves out rows that are not wanted", () => {
  for (const kernels of both) {
    const rows = [0, 1].map((i) => lay(kernels, 1024 + i * 256, new Uint8Array(24)));
    const table = lay(kernels, 0, new Uint8Array(Uint32Array.of(rows[1]!, 0, rows[0]!).buffer));
    const values = lay(
      kernels,
      4096,
      Uint8Array.from({ length: 24 }, (_, b) => b + 1),
    );
    kernels.scatter(table, 3, values, 8, 10, 6);
    const bytes = new Uint8Array(kernels.memory.buffer);
    for (const [row, first] of [
      [rows[1]!, 1],
      [rows[0]!, 17],
    ] as const) {
      const expected = new Uint8Array(24);
      for (let b = 0; b < 6; b++) expected[10 + b] = first + b;
      assert.deepEqual(bytes.slice(row, row + 24), expected);
      canaries(kernels, row, 24);
    }
  }
});

test("threads on one memory share the tables that one of them made", () => {
  const other = loadKernels({ memory: wasm.memory, tables: wasm.tables });
  const from = lay(wasm, 0, new TextEncoder().encode("123456789"));
  assert.equal(other.crc32c(from, 9), 0xe3069283);
  const asTwin = loadKernels({ memory: wasm.memory, tables: wasm.tables, implementation: "twin" });
  assert.equal(asTwin.crc32c(from, 9), 0xe3069283);
});

test("a row: header, values, padding, in either order of features", () => {
  const features: [string, Feature][] = [
    ["ids", { kind: "int64", values: [1n, 300n, 70000n, 3000000n, -1n] }],
    ["mask", { kind: "int64", values: [1n, 1n, 0n, 0n] }],
    ["wide", { kind: "int64", values: [-(2n ** 63n), 2n ** 63n - 1n, 2n ** 53n + 1n] }],
    ["w", { kind: "float", values: [0.25, -2] }],
    ["t", { kind: "bytes", values: [Uint8Array.of(1), Uint8Array.of()] }],
    ["unknown", { kind: "bytes", values: [new Uint8Array(100)] }],
  ];
  const got = decodeBoth(concat(frame(example(features)), frame(example(features.toReversed()))), 2);
  assert.equal(got.fault, undefined);
  assert.equal(got.rows, 2);
  assert.equal(got.truncated, 0);
  assert.deepEqual(got.bytes[0]!.slice(16), got.bytes[1]!.slice(16));
  const header = new DataView(got.bytes[1]!.buffer, got.bytes[1]!.byteOffset);
  assert.deepEqual(
    [
      header.getBigUint64(0, true),
      header.getBigUint64(8, true),
      header.getBigUint64(16, true),
      header.getBigUint64(24, true),
    ],
    [0xfedcba9876543210n, 1001n, 0n, 0n],
  );
  const row = got.bytes[0]!;
  assert.deepEqual(columnOf(row, "ids"), padded([1, 300, 70000, 3000000, -1], 21, -3));
  assert.deepEqual(columnOf(row, "mask"), [2]);
  assert.deepEqual(columnOf(row, "wide"), padded([-(2n ** 63n), 2n ** 63n - 1n, 2n ** 53n + 1n], 7, -(2n ** 63n)));
  assert.deepEqual(columnOf(row, "w"), padded([0.25, -2], 5, NaN));
  assert.deepEqual([columnOf(row, "n"), columnOf(row, "t")], [[5], [2]]);
});

test("missing, empty and kindless features give length 0 and padding", () => {
  const raw = concat(
    frame(new Uint8Array(0)),
    frame(example(["ids", "mask", "wide"].map((n) => [n, { kind: "int64" }]))),
    frame(
      example([
        ["ids", { kind: "none" }],
        ["w", { kind: "float", values: [] }],
      ]),
    ),
  );
  const got = decodeBoth(raw, 3);
  assert.equal(got.fault, undefined);
  for (const row of got.bytes) {
    assert.deepEqual(columnOf(row, "ids"), Array(21).fill(-3));
    assert.deepEqual([columnOf(row, "n"), columnOf(row, "mask"), columnOf(row, "t")], [[0], [0], [0]]);
  }
});

test("lists longer than maxLength are cut, flagged and counted once a row", () => {
  for (const packed of [true, false]) {
    const ids = Array.from({ length: 100 }, (_, i) => BigInt(i * 37));
    const raw = frame(
      example([
        ["ids", { kind: "int64", values: ids, packed }],
        ["w", { kind: "float", values: [1, 2, 3, 4, 5, 6], packed }],
      ]),
    );
    const got = decodeBoth(concat(raw, frame(new Uint8Array(0))), 2);
    assert.equal(got.truncated, 1);
    assert.deepEqual(columnOf(got.bytes[0]!, "ids"), ids.slice(0, 21).map(Number));
    assert.deepEqual(columnOf(got.bytes[0]!, "w"), [1, 2, 3, 4, 5]);
    assert.deepEqual(columnOf(got.bytes[0]!, "n"), [21]);
    assert.equal(got.bytes[0]![20], 1);
    assert.equal(got.bytes[1]![20], 0);
  }
});

test("of two features of one name the last wins; lists of one kind in a feature are joined", () => {
  const long: Feature = { kind: "int64", values: Array(50).fill(9n) };
  const joined = concat(
    feature({ kind: "float", values: [1] }),
    feature({ kind: "int64", values: [5n] }),
    feature({ kind: "int64", values: [6n], packed: false }),
  );
  const raw = frame(delimited(1, concat(entry("ids", feature(long)), entry("ids", joined))));
  const got = decodeBoth(raw, 1);
  assert.equal(got.fault, undefined);
  assert.deepEqual(columnOf(got.bytes[0]!, "ids"), padded([5, 6], 21, -3));
});

test("rows that are not wanted are passed over unread, and stay untouched", () => {
  const bad = frame(Uint8Array.of(0xff, 0xff));
  bad[12] = 0x77; // neither protobuf nor its CRC
  const good = frame(example([["ids", { kind: "int64", values: [4n] }]]));
  const got = decodeBoth(concat(bad, good), 2, { wanted: [false, true] });
  assert.equal(got.rows, 1);
  assert.ok(got.bytes[0]!.every((byte) => byte === CANARY));
  assert.deepEqual(columnOf(got.bytes[1]!, "ids"), padded([4], 21, -3));
});

test("unknown fields of every wire type are passed over", () => {
  const unknown = concat(
    Uint8Array.of(0x50, 0x96, 0x01), // 10: varint
    Uint8Array.of(0x59, 1, 2, 3, 4, 5, 6, 7, 8), // 11: 64 bit
    delimited(12, new Uint8Array(3)),
    Uint8Array.of(0x6d, 1, 2, 3, 4), // 13: 32 bit
    Uint8Array.of(0x73, 0x08, 0x01, 0x74), // 14: a group
  );
  const list = delimited(3, concat(unknown, delimited(1, varint(7n)), unknown));
  const raw = frame(
    concat(
      unknown,
      delimited(
        1,
        concat(
          unknown,
          delimited(
            1,
            concat(
              unknown,
              delimited(1, new TextEncoder().encode("ids")),
              unknown,
              delimited(2, concat(unknown, list)),
            ),
          ),
        ),
      ),
      unknown,
    ),
  );
  const got = decodeBoth(raw, 1);
  assert.equal(got.fault, undefined);
  assert.deepEqual(columnOf(got.bytes[0]!, "ids"), padded([7], 21, -3));
});

const faults: [string, number, Uint8Array, number][] = [
  ["an int64 beyond int32", FAULT.range, example([["ids", { kind: "int64", values: [2n ** 31n] }]]), 0],
  [
    "an int64 below int32",
    FAULT.range,
    example([["ids", { kind: "int64", values: [-(2n ** 31n) - 1n], packed: false }]]),
    0,
  ],
  ["a mask with a hole", FAULT.notPrefix, example([["mask", { kind: "int64", values: [1n, 0n, 1n] }]]), 1],
  [
    "a mask with a hole among 32",
    FAULT.notPrefix,
    example([["mask", { kind: "int64", values: [...Array(17).fill(1n), 0n, ...Array(13).fill(0n), 1n] }]]),
    1,
  ],
  [
    "a mask with a two",
    FAULT.notPrefix,
    example([["mask", { kind: "int64", values: [...Array(15).fill(1n), 2n] }]]),
    1,
  ],
  ["floats where int64 is expected", FAULT.kind, example([["ids", { kind: "float", values: [1] }]]), 0],
  ["int64 where floats are expected", FAULT.kind, example([["w", { kind: "int64", values: [1n] }]]), 3],
  [
    "a varint that does not end",
    FAULT.malformed,
    delimited(1, entry("ids", delimited(3, delimited(1, Uint8Array.of(1, 0x80))))),
    0,
  ],
  [
    "a varint of eleven bytes",
    FAULT.malformed,
    delimited(1, entry("ids", delimited(3, delimited(1, new Uint8Array(11).fill(0x81))))),
    0,
  ],
  [
    "three bytes of floats",
    FAULT.malformed,
    delimited(1, entry("w", delimited(2, delimited(1, new Uint8Array(3))))),
    3,
  ],
  ["a length that passes the end", FAULT.malformed, Uint8Array.of(0x0a, 0x05, 0), -1],
  ["a length of 2^63", FAULT.malformed, concat(Uint8Array.of(0x0a), varint(2n ** 63n)), -1],
  ["field number 0", FAULT.malformed, Uint8Array.of(0x02, 0), -1],
  ["wire type 7", FAULT.malformed, Uint8Array.of(0x0f), -1],
  ["a group without end", FAULT.malformed, Uint8Array.of(0x73, 0x08, 0x01), -1],
  [
    "two values in one map entry",
    FAULT.malformed,
    delimited(1, delimited(1, concat(delimited(2, feature({ kind: "none" })), delimited(2, new Uint8Array(0))))),
    -1,
  ],
];
for (const [name, code, payload, column] of faults) {
  test(`fault: ${name}`, () => {
    const good = frame(example([["ids", { kind: "int64", values: [1n] }]]));
    const { fault, rows } = decodeBoth(concat(good, frame(payload), good), 3);
    assert.equal(fault?.code, code);
    assert.deepEqual([fault.record, fault.recordOffset, fault.column, rows], [1, good.length, column, 1]);
  });
}

test("an int32 fault carries the exact value", () => {
  const { fault } = decodeBoth(frame(example([["ids", { kind: "int64", values: [5n, -(2n ** 62n) - 1n] }]])), 1);
  assert.equal(fault?.found, -(2n ** 62n) - 1n);
});

test("CRC faults: in the length always, in the payload when asked", () => {
  const good = frame(example([["ids", { kind: "int64", values: [1n] }]]));
  const flipped = good.slice();
  flipped[good.length - 5]! ^= 4; // the value 1 becomes 5
  const raw = concat(good, flipped);
  assert.equal(decodeBoth(raw, 2).fault?.code, FAULT.payloadCrc);
  assert.equal(decodeBoth(raw, 2, { checkCrc: false }).fault?.code, undefined);
  const length = good.slice();
  length[3] = 1;
  assert.equal(decodeBoth(concat(good, length), 2, { checkCrc: false }).fault?.code, FAULT.lengthCrc);
});

test("a length of 2 GiB with a right CRC is refused, not allocated", () => {
  const raw = frame(new Uint8Array(0));
  new DataView(raw.buffer).setBigUint64(0, 2n ** 31n, true);
  const crc = frame(raw.slice(0, 8)); // CRC of these 8 bytes, as a payload
  raw.set(crc.subarray(20, 24), 8);
  assert.equal(decodeBoth(raw, 1).fault?.code, FAULT.tooLong);
  raw[7] = 0xff;
  raw.set(frame(raw.slice(0, 8)).subarray(20, 24), 8);
  assert.equal(decodeBoth(raw, 1).fault?.code, FAULT.tooLong);
});

test("scanFrames cut at every byte: whole records, then how much is needed, never a fault", () => {
  const payloads = [3, 0, 40, 7].map((n) => new Uint8Array(n).fill(n));
  const frames = payloads.map(frame);
  const all = concat(...frames);
  const before = crc32c(Buffer.from("what lies before"));
  for (const kernels of both) {
    for (let cut = 0; cut <= all.length; cut++) {
      const from = lay(kernels, 0, all.subarray(0, cut));
      const offsets = lay(kernels, 4096, new Uint8Array(16));
      const lengths = lay(kernels, 8192, new Uint8Array(16));
      const scan = kernels.scanFrames(from, cut, 4, offsets, lengths, before);
      let consumed = 0;
      let records = 0;
      while (records < 4 && consumed + frames[records]!.length <= cut) consumed += frames[records++]!.length;
      const needed = consumed === cut ? 0 : cut - consumed < 12 ? 16 : frames[records]!.length;
      assert.deepEqual(scan, {
        records,
        consumed,
        needed,
        crc32c: crc32c(all.subarray(0, consumed), before),
        fault: undefined,
      });
      canaries(kernels, offsets, 16);
      canaries(kernels, lengths, 16);
    }
  }
});

test("addresses beyond 2 GiB: rows and faults are the same", () => {
  const high = createKernels(2 ** 31 + 2 ** 20, "wasm");
  const from = 2 ** 31 + 4096;
  const good = frame(example([["ids", { kind: "int64", values: [1n, 2n, 3n] }]]));
  const raw = concat(good, frame(example([["ids", { kind: "float", values: [1] }]])));
  new Uint8Array(high.memory.buffer).set(raw, from);
  const plan = from + 4096;
  new Uint8Array(high.memory.buffer).set(encodePlan(COLUMNS), plan);
  const rows = from + 8192;
  new Uint32Array(high.memory.buffer, rows, 2).set([from + 16384, from + 20480]);
  const got = high.decodeExamples({
    raw: from,
    rawBytes: raw.length,
    firstRecord: 0,
    records: 2,
    rows,
    plan,
    shardKey: 1n,
    checkCrc: true,
  });
  assert.equal(got.rows, 1);
  assert.deepEqual([got.fault?.code, got.fault?.record, got.fault?.recordOffset], [FAULT.kind, 1, good.length]);
  assert.deepEqual(
    columnOf(new Uint8Array(high.memory.buffer).slice(from + 16384, from + 16384 + ROW), "ids"),
    padded([1, 2, 3], 21, -3),
  );
  const scan = high.scanFrames(from, raw.length, 2, from + 24576, from + 28672, 0);
  assert.deepEqual(scan, { records: 2, consumed: raw.length, needed: 0, crc32c: crc32c(raw), fault: undefined });
});

// ---- twin against WebAssembly, on good, odd and hostile bytes ----------------------------------------------------

const int64 = fc.oneof(
  fc.bigInt({ min: 0n, max: 127n }),
  fc.bigInt({ min: 0n, max: 130000n }),
  fc.bigInt({ min: -(2n ** 31n), max: 2n ** 31n - 1n }),
  fc.constantFrom(-(2n ** 63n), 2n ** 63n - 1n, 2n ** 31n, -1n, 2n ** 21n - 1n, 2n ** 21n, 0n, 1n),
);
const small = fc.array(fc.bigInt({ min: 0n, max: 2n ** 21n }), { maxLength: 60 });
const mask = fc
  .tuple(fc.nat(40), fc.nat(40))
  .map(([ones, zeros]) => [...Array<bigint>(ones).fill(1n), ...Array<bigint>(zeros).fill(0n)]);
const someFeature: fc.Arbitrary<Feature> = fc.oneof(
  fc.record({
    kind: fc.constant("int64" as const),
    values: fc.oneof(small, mask, fc.array(int64, { maxLength: 40 })),
    packed: fc.boolean(),
  }),
  fc.record({
    kind: fc.constant("float" as const),
    values: fc.array(fc.float(), { maxLength: 12 }),
    packed: fc.boolean(),
  }),
  fc.record({
    kind: fc.constant("bytes" as const),
    values: fc.array(fc.uint8Array({ maxLength: 9 }), { maxLength: 5 }),
  }),
  fc.constant({ kind: "none" as const }),
);
const fitting = fc
  .tuple(small, mask, fc.array(int64, { maxLength: 12 }), fc.boolean(), fc.uint8Array({ maxLength: 3 }))
  .map(([ids, ones, wide, packed, odd]): [string, Feature][] => [
    ["ids", { kind: "int64", values: ids, packed }],
    ["mask", { kind: "int64", values: ones, packed }],
    ["wide", { kind: "int64", values: wide, packed: !packed }],
    ["w", { kind: "float", values: [...odd] }],
  ]);
const anyFeatures = fc.array(fc.tuple(fc.constantFrom("ids", "mask", "wide", "w", "t", "other"), someFeature), {
  maxLength: 6,
});

test("the CRC that a scan joins of payloads is that of the bytes, also of payloads above 64 KiB and of any length", () => {
  const sizes = fc.array(fc.oneof(fc.nat(600), fc.integer({ min: 65_000, max: 140_000 })), {
    minLength: 1,
    maxLength: 3,
  });
  const larger = [createKernels(1 << 20, "twin"), createKernels(1 << 20, "wasm")];
  fc.assert(
    fc.property(sizes, fc.nat(2 ** 32 - 1), fc.integer(), (lengths, seed, fill) => {
      const raw = concat(...lengths.map((n) => frame(Uint8Array.from({ length: n }, (_, i) => (i * fill) >>> 5))));
      for (const kernels of larger) {
        const from = kernels.tables + TABLE_BYTES;
        new Uint8Array(kernels.memory.buffer).set(raw, from + 64);
        const scan = kernels.scanFrames(from + 64, raw.length, lengths.length, from, from + 32, seed);
        assert.deepEqual([scan.records, scan.crc32c], [lengths.length, crc32c(raw, seed)]);
      }
    }),
    { numRuns: 60 },
  );
});

test("twin and WebAssembly agree on valid records", () => {
  fc.assert(
    fc.property(
      fc.array(fitting, { minLength: 1, maxLength: 4 }),
      fc.array(fc.boolean(), { maxLength: 4 }),
      (records, wanted) => {
        const got = decodeBoth(concat(...records.map((r) => frame(example(r)))), records.length, { wanted });
        assert.equal(got.fault, undefined);
        records.forEach((record, i) => {
          if (wanted[i] === false) return;
          const values = (n: number): bigint[] => record[n]![1].values as bigint[];
          assert.deepEqual(columnOf(got.bytes[i]!, "ids"), padded(values(0).map(Number), 21, -3));
          assert.deepEqual(columnOf(got.bytes[i]!, "mask"), [Math.min(21, values(1).filter((v) => v === 1n).length)]);
          assert.deepEqual(columnOf(got.bytes[i]!, "wide"), padded(values(2), 7, -(2n ** 63n)));
          assert.deepEqual(columnOf(got.bytes[i]!, "n"), [Math.min(21, values(0).length)]);
        });
      },
    ),
    { numRuns: 300 },
  );
});

test("twin and WebAssembly agree on features of any kind", () => {
  fc.assert(
    fc.property(
      fc.array(anyFeatures, { minLength: 1, maxLength: 3 }),
      (records) => void decodeBoth(concat(...records.map((r) => frame(example(r)))), records.length),
    ),
    { numRuns: 500 },
  );
});

const mutations = fc.array(fc.tuple(fc.nat(), fc.integer({ min: 0, max: 255 })), { maxLength: 4 });

test("twin and WebAssembly agree on damaged payloads, and write nothing outside rows", () => {
  fc.assert(
    fc.property(fc.oneof(fitting, anyFeatures), mutations, fc.nat(), (features, changes, cut) => {
      let payload = example(features).slice();
      for (const [at, byte] of changes) if (payload.length > 0) payload[at % payload.length] = byte;
      if (cut % 3 === 0) payload = payload.slice(0, cut % (payload.length + 1));
      decodeBoth(frame(payload), 1);
    }),
    { numRuns: 1000 },
  );
});

test("twin and WebAssembly agree on damaged files", () => {
  fc.assert(
    fc.property(
      fc.array(fitting, { minLength: 1, maxLength: 2 }),
      mutations,
      fc.boolean(),
      (records, changes, checkCrc) => {
        const raw = concat(...records.map((r) => frame(example(r)))).slice();
        for (const [at, byte] of changes) raw[at % raw.length] = byte;
        decodeBoth(raw, records.length + 1, { checkCrc });
      },
    ),
    { numRuns: 300 },
  );
});

test("twin and WebAssembly agree on noise", () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 80 }), (bytes) => void (decodeBoth(frame(bytes), 1), decodeBoth(bytes, 1))),
    { numRuns: 1000 },
  );
});

function stats(
  kernels: Kernels,
  payloads: readonly Uint8Array[],
  names: readonly string[],
): { scan: unknown; table: Uint8Array[] } {
  const table = statsTable(names);
  const raw = concat(...payloads.map(frame));
  const from = lay(kernels, 8192, raw);
  const tableAt = lay(kernels, 0, table);
  const offsets = lay(kernels, 300032, new Uint8Array(payloads.length * 4));
  const lengths = lay(kernels, 304128, new Uint8Array(payloads.length * 4));
  kernels.scanFrames(from, raw.length, payloads.length, offsets, lengths, 0);
  const scan = kernels.statsExamples(from, offsets, lengths, payloads.length, tableAt);
  canaries(kernels, tableAt, table.length);
  const memory = new Uint8Array(kernels.memory.buffer);
  // Without the scratch of the record at hand, which is the kernel's own.
  const entryAt = (f: number): number => tableAt + STATS_HEADER + f * STATS_ENTRY;
  return { scan, table: names.map((_, f) => memory.slice(entryAt(f), entryAt(f) + STATS_STAMP)) };
}

test("twin and WebAssembly gather the same statistics, also of damaged payloads", () => {
  const names = ["ids", "mask", "wide", "w", "t"];
  fc.assert(
    fc.property(
      fc.array(fc.oneof(fitting, anyFeatures), { minLength: 1, maxLength: 5 }),
      mutations,
      (records, changes) => {
        const payloads = records.map((r) => example(r));
        const victim = payloads.at(-1)!;
        for (const [at, byte] of changes) if (victim.length > 0) victim[at % victim.length] = byte;
        assert.deepEqual(stats(wasm, payloads, names), stats(twin, payloads, names));
      },
    ),
    { numRuns: 500 },
  );
});

test("a required column without a value is a fault of its record, the last of two features counts: it was padding, a zero", () => {
  const one: StoredColumn = { ...COLUMNS[0]!, maxLength: 1, required: true };
  const column = { ...one, name: "w", feature: "w", rowOffset: 40 };
  const ids = (...values: bigint[]): [string, { kind: "int64"; values: bigint[] }] => [
    "ids",
    { kind: "int64", values },
  ];
  const w: typeof ids = (...values) => ["w", { kind: "int64", values }];
  const good = example([ids(5n), w(6n)]);
  for (const [bad, number] of [
    [example([w(6n)]), 0],
    [example([ids(5n)]), 1],
    [example([ids(), w(6n)]), 0],
    [example([ids(5n), w(6n), ids()]), 0],
  ] as const) {
    const { fault, rows } = decodeBoth(concat(frame(good), frame(bad), frame(good)), 3, { columns: [one, column] });
    assert.deepEqual([rows, fault?.code, fault?.record, fault?.column], [1, FAULT.missing, 1, number]);
    assert.equal(fault?.recordOffset, frame(good).length);
  }
  const again = decodeBoth(frame(example([ids(), ids(5n), w(6n)])), 1, { columns: [one, column] });
  assert.deepEqual([again.rows, again.fault], [1, undefined]);
});
