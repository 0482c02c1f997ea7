// Long packed lists and long stretches under a CRC: the kernels read four quarters side by side, or fold; the twin goes byte by byte.
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { encodePlan } from "../../src/formats/tfrecord/plan.ts";
import type { StoredColumn } from "../../src/formats/types.ts";
import { FAULT, TABLE_BYTES, type ExampleRows, type Kernels } from "../../src/kernels/kernels.ts";
import { createKernels } from "../../src/kernels/load.ts";
import { concat, delimited, entry, frame, varint } from "./examples.ts";

const wasm = createKernels(1 << 19, "wasm");
const twin = createKernels(1 << 19, "twin");
const both: readonly Kernels[] = [wasm, twin];
const CANARY = 0xa5;

type Storage = "i32" | "i64" | "prefix";

/** One record whose feature `x` holds these packed runs. The bytes end where the memory does: a read behind them would trap. */
function decode(kernels: Kernels, runs: readonly Uint8Array[], storage: Storage, maxLength: number) {
  const raw = frame(delimited(1, entry("x", delimited(3, concat(...runs.map((run) => delimited(1, run)))))));
  const bytes = storage === "prefix" ? 8 : (storage === "i32" ? 4 : 8) * maxLength;
  const column: StoredColumn = {
    name: "x",
    feature: "x",
    storage,
    maxLength,
    pad: "-1",
    rowOffset: 32,
    rowBytes: bytes,
  };
  const memory = new Uint8Array(kernels.memory.buffer);
  const from = memory.length - raw.length;
  memory.set(raw, from);
  const rows = kernels.tables + TABLE_BYTES;
  const plan = rows + 64;
  const row = plan + 192;
  memory.set(encodePlan([column]), plan);
  memory.fill(CANARY, row, row + 32 + bytes + 64);
  new DataView(memory.buffer).setUint32(rows, row, true);
  const result: ExampleRows = kernels.decodeExamples({
    raw: from,
    rawBytes: raw.length,
    firstRecord: 0,
    records: 1,
    rows,
    plan,
    shardKey: 0n,
    checkCrc: true,
  });
  const behind = memory.subarray(row + 32 + bytes, row + 32 + bytes + 64);
  assert.ok(
    behind.every((byte) => byte === CANARY),
    "the row was written beyond its end",
  );
  return { ...result, row: result.fault === undefined ? memory.slice(row, row + 32 + bytes) : undefined };
}

/** The row of both, which must agree, also about what is wrong. */
function decodeBoth(runs: readonly Uint8Array[], storage: Storage, maxLength: number) {
  const [a, b] = both.map((kernels) => decode(kernels, runs, storage, maxLength));
  assert.deepEqual(a, b);
  return a!;
}

const valuesOf = (row: Uint8Array, storage: Storage): number[] =>
  storage === "i32"
    ? [...new Int32Array(row.slice(32).buffer)]
    : [...new BigInt64Array(row.slice(32).buffer)].map(Number);
const list = (values: readonly number[]): Uint8Array => concat(...values.map((value) => varint(BigInt(value))));
const padded = (values: readonly number[], length: number): number[] =>
  Array.from({ length }, (_, i) => values[i] ?? -1);

const ids = fc.oneof(
  { weight: 6, arbitrary: fc.nat(127) },
  { weight: 3, arbitrary: fc.nat(16_383) },
  { weight: 1, arbitrary: fc.nat(2_097_151) },
);

test("long lists of ids are what was written, at any length and cut anywhere", () => {
  fc.assert(
    fc.property(
      fc.array(ids, { maxLength: 700, size: "max" }),
      fc.integer({ min: 1, max: 720 }),
      fc.constantFrom<Storage[]>("i32", "i64"),
      (values, max, storage) => {
        const got = decodeBoth([list(values)], storage, max);
        assert.equal(got.truncated, values.length > max ? 1 : 0);
        assert.deepEqual(valuesOf(got.row!, storage), padded(values.slice(0, max), max));
      },
    ),
    { numRuns: 300, endOnFailure: true }, // lists this long take minutes to shrink
  );
});

test("lists whose quarters differ as much as they can are what was written", () => {
  const sizes = [5, 300, 40_000];
  for (const storage of ["i32", "i64"] as const)
    for (let mix = 0; mix < 81; mix++) {
      const values = Array.from({ length: 400 }, (_, i) => sizes[Math.floor(mix / 3 ** Math.floor(i / 100)) % 3]! + i);
      for (const max of [399, 400, 403])
        assert.deepEqual(
          valuesOf(decodeBoth([list(values)], storage, max).row!, storage),
          padded(values.slice(0, max), max),
        );
    }
});

test("a value that is too wide, and a list that is cut, are told alike wherever they are", () => {
  const values = Array.from({ length: 160 }, (_, i) => (i * 37) % 300);
  for (let at = 0; at < values.length; at++) {
    const wide = [...values];
    wide[at] = 2 ** 31;
    assert.equal(decodeBoth([list(wide)], "i32", 512).fault?.code, FAULT.range);
    assert.equal(Number(valuesOf(decodeBoth([list(wide)], "i64", 512).row!, "i64")[at]), 2 ** 31);
  }
  const bytes = list(values);
  for (let length = 100; length < bytes.length; length++) {
    const cut = bytes.slice(0, length);
    assert.equal(decodeBoth([cut], "i32", 512).fault?.code, cut.at(-1)! < 0x80 ? undefined : FAULT.malformed);
  }
});

test("twin and WebAssembly agree on long lists of any bytes, in several runs", () => {
  const any = fc.array(fc.oneof(fc.nat(127), fc.nat(255), fc.constant(255), fc.constant(128)), {
    maxLength: 500,
    size: "max",
  });
  const good = fc.array(ids, { maxLength: 300, size: "max" }).map(list);
  const run = fc.oneof(
    good,
    any.map((bytes) => Uint8Array.from(bytes)),
    fc.tuple(good, fc.nat(), fc.nat(255)).map(([bytes, at, byte]) => {
      if (bytes.length > 0) bytes[at % bytes.length] = byte;
      return bytes;
    }),
  );
  fc.assert(
    fc.property(
      fc.array(run, { minLength: 1, maxLength: 3 }),
      fc.integer({ min: 1, max: 700 }),
      fc.constantFrom<Storage[]>("i32", "i64"),
      (runs, max, storage) => void decodeBoth(runs, storage, max),
    ),
    { numRuns: 500, endOnFailure: true },
  );
});

test("a mask is ones, then zeros, at any length; any other byte is told where it is", () => {
  for (const length of [63, 64, 65, 128, 200])
    for (let ones = 0; ones <= length; ones++) {
      const mask = Uint8Array.from({ length }, (_, i) => Number(i < ones));
      const got = decodeBoth([mask], "prefix", 512);
      assert.equal(new DataView(got.row!.buffer).getUint32(32, true), ones);
      mask[(ones * 7) % length]! ^= 2;
      assert.equal(decodeBoth([mask], "prefix", 512).fault?.code, FAULT.notPrefix);
    }
});

test("the CRC of any length, from any seed, up to the end of the memory", () => {
  const bytes = Uint8Array.from({ length: 700 }, (_, i) => (Math.imul(i + 1, 2654435761) >>> 13) & 255);
  for (let length = 0; length <= bytes.length; length++) {
    const [a, b] = both.map((kernels) => {
      const memory = new Uint8Array(kernels.memory.buffer);
      memory.set(bytes.subarray(0, length), memory.length - length);
      return kernels.crc32c(memory.length - length, length, Math.imul(length, 0x9e3779b1) >>> 0);
    });
    assert.equal(a, b, `${length} bytes`);
  }
});
