import assert from "node:assert/strict";
import { test } from "node:test";
import { AthanorError } from "../../../src/base/errors.ts";
import { compilePlan, decode } from "../../../src/formats/tfrecord/decode.ts";
import { encodePlan } from "../../../src/formats/tfrecord/plan.ts";
import type { StoredColumn } from "../../../src/formats/types.ts";
import { TABLE_BYTES } from "../../../src/kernels/kernels.ts";
import { createKernels } from "../../../src/kernels/load.ts";
import { concat, example, frame } from "../../kernels/examples.ts";

const column: StoredColumn = {
  name: "input_ids",
  feature: "ids",
  storage: "i32",
  maxLength: 4,
  pad: "0",
  rowOffset: 32,
  rowBytes: 16,
};

test("a fault becomes an error with file, record, byteOffset, feature and remedy", () => {
  const kernels = createKernels(65536);
  const base = kernels.tables + TABLE_BYTES;
  const good = frame(example([["ids", { kind: "int64", values: [1n] }]]));
  const raw = concat(good, frame(example([["ids", { kind: "int64", values: [2n ** 40n] }]])));
  new Uint8Array(kernels.memory.buffer).set(raw, base);
  const rows = base + 4096;
  new Uint32Array(kernels.memory.buffer, rows, 2).set([base + 8192, base + 8256]);
  const plan = base + 2048;
  compilePlan(kernels, plan, [column]);
  const request = {
    raw: base,
    rawBytes: raw.length,
    firstRecord: 70,
    records: 2,
    rows,
    plan,
    shardKey: 1n,
    checkCrc: true,
    file: "/d/a",
    fileOffset: 9000,
  };
  assert.throws(
    () => decode(kernels, request),
    (error: unknown) => {
      assert.ok(error instanceof AthanorError);
      assert.equal(error.code, "ATH_VALUE_RANGE");
      assert.deepEqual(error.where, { file: "/d/a", record: 71, byteOffset: 9000 + good.length });
      assert.match(error.message, /feature "ids": value 1099511627776 at byte \d+ does not fit int32/);
      assert.ok(error.remedy);
      return true;
    },
  );
  assert.deepEqual(decode(kernels, { ...request, records: 1 }), { rows: 1, truncated: 0 });
});

const wrong: [string, Partial<StoredColumn>, RegExp][] = [
  ["too few bytes", { rowBytes: 12 }, /needs 16 bytes/],
  ["inside the row header", { rowOffset: 24 }, /rowOffset must be a multiple of 8 from 32/],
  ["not aligned", { rowOffset: 36 }, /rowOffset/],
  ["no length", { maxLength: 0 }, /maxLength/],
  ["a pad beyond int32", { pad: "2147483648" }, /does not fit i32/],
  ["a pad that is no number", { pad: "x" }, /pad is no number/],
];
for (const [name, change, words] of wrong) {
  test(`a plan refuses: ${name}`, () => assert.throws(() => encodePlan([{ ...column, ...change }]), words));
}
test("a plan takes 64 columns at most, 1 at least", () => {
  assert.throws(() => encodePlan([]), RangeError);
  assert.throws(() => encodePlan(Array.from({ length: 65 }, () => column)), RangeError);
});
