// Columns of TFRecord, one record after the other: the same records are bad as the kernel finds.
import assert from "node:assert/strict";
import { test } from "node:test";
import { columns } from "../../../src/formats/tfrecord/columns.ts";
import type { BlockColumns, ValueKind } from "../../../src/formats/types.ts";
import { concat, example, frame, type Feature } from "../../kernels/examples.ts";

const VALUES: Record<ValueKind, Feature["values"]> = {
  bytes: [new TextEncoder().encode("text")],
  float: [1.5, 2],
  int64: [3n, 2n ** 40n],
};
const KINDS = ["bytes", "float", "int64"] as const;

function decode(features: readonly Feature[], kind: ValueKind): BlockColumns {
  const bytes = concat(...features.map((feature) => frame(example([["x", feature]]))));
  const segments = [{ file: 0, offset: 0, length: bytes.length, field: 0, bytes }];
  const raw = { file: "f", block: 0, firstRecord: 10, records: features.length, segments, checkCrc: true };
  return columns({ ...raw, meta: { kinds: { x: kind } } }, ["x"]);
}

test("a list of another kind than the index tells of is the fault of its record alone, wherever it stands", () => {
  for (const kind of KINDS) {
    for (const other of KINDS.filter((name) => name !== kind)) {
      for (const values of [VALUES[other], []]) {
        for (const odd of [0, 2, 4]) {
          const of = (i: number): Feature =>
            i === odd ? { kind: other, values: values! } : { kind, values: VALUES[kind]! };
          const { fields, faults } = decode([0, 1, 2, 3, 4].map(of), kind);
          const where = `${values!.length} values of ${other} for ${kind} in record ${odd}`;
          assert.deepEqual([...faults.keys()], [odd], where);
          const { code, message, where: place } = faults.get(odd)!;
          assert.deepEqual([code, place.record], ["ATH_FEATURE_KIND", 10 + odd], where);
          assert.match(message, new RegExp(`"x" holds a list of ${other}, expected ${kind}`));
          const { ends, kind: found } = fields.get("x")!;
          const each = kind === "bytes" ? 4 : 2;
          assert.equal(found, kind);
          assert.deepEqual(
            [...ends],
            [0, 1, 2, 3, 4].map((i) => each * (i + (i >= odd ? 0 : 1))),
            where,
          );
        }
      }
    }
  }
});

test("a feature of no kind is none; a block without the feature has an empty column", () => {
  const { fields, faults } = decode([{ kind: "none" }, { kind: "none" }], "int64");
  assert.equal(faults.size, 0);
  assert.deepEqual([...fields.get("x")!.ends], [0, 0]);
  assert.deepEqual([...fields.get("x")!.present!], [0, 0]);
});
