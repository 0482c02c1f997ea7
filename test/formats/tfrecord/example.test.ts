import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { AthanorError } from "../../../src/base/errors.ts";
import { PayloadFault, readExample } from "../../../src/formats/tfrecord/example.ts";
import { index } from "../../../src/formats/tfrecord/index.ts";
import { concat, delimited, entry, example, feature, frame, type Feature } from "../../kernels/examples.ts";
import { memoryObject } from "./memory-object.ts";
import { wasm } from "./shards.ts";

test("values are exact, packed or not; null and [] are kept apart", () => {
  for (const packed of [true, false]) {
    const read = readExample(
      example([
        ["ids", { kind: "int64", values: [-(2n ** 63n), 2n ** 63n - 1n, -1n], packed }],
        ["w", { kind: "float", values: [0.1, -0], packed }],
        ["t", { kind: "bytes", values: [Uint8Array.of(0, 255), new Uint8Array(0)] }],
        ["empty", { kind: "float" }],
        ["none", { kind: "none" }],
      ]),
    );
    assert.deepEqual(
      [...read],
      [
        ["ids", { kind: "int64", values: [-(2n ** 63n), 2n ** 63n - 1n, -1n] }],
        ["w", { kind: "float", values: [Math.fround(0.1), -0] }],
        ["t", { kind: "bytes", values: [Uint8Array.of(0, 255), new Uint8Array(0)] }],
        ["empty", { kind: "float", values: [] }],
        ["none", null],
      ],
    );
  }
});

test("the last of two features of one name wins, the last kind in a feature too", () => {
  const joined = concat(
    feature({ kind: "float", values: [1] }),
    feature({ kind: "int64", values: [5n] }),
    feature({ kind: "int64", values: [6n] }),
  );
  const read = readExample(delimited(1, concat(entry("a", feature({ kind: "bytes" })), entry("a", joined))));
  assert.deepEqual(read.get("a"), { kind: "int64", values: [5n, 6n] });
});

test("a SequenceExample and names that are no UTF-8 are faults with an offset", () => {
  assert.throws(
    () => readExample(delimited(2, new Uint8Array(0))),
    (error) => error instanceof PayloadFault && error.sequenceExample && error.offset === 0,
  );
  const name = delimited(1, delimited(1, delimited(1, Uint8Array.of(0xc0))));
  assert.throws(
    () => readExample(name),
    (error) => error instanceof PayloadFault && error.offset === 6,
  );
});

test("the slow reader and the index refuse the same payloads, and find the same features", async () => {
  const some: fc.Arbitrary<Feature> = fc.oneof(
    fc.record({
      kind: fc.constant("int64" as const),
      values: fc.array(fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }), { maxLength: 5 }),
      packed: fc.boolean(),
    }),
    fc.record({
      kind: fc.constant("float" as const),
      values: fc.array(fc.float(), { maxLength: 5 }),
      packed: fc.boolean(),
    }),
    fc.record({
      kind: fc.constant("bytes" as const),
      values: fc.array(fc.uint8Array({ maxLength: 9 }), { maxLength: 3 }),
    }),
  );
  const changes = fc.array(fc.tuple(fc.nat(), fc.nat(255)), { maxLength: 3 });
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.tuple(fc.constantFrom("a", "b", "long name of a feature"), some), { maxLength: 4 }),
      changes,
      async (features, bytes) => {
        const payload = example(features).slice();
        for (const [at, byte] of bytes) payload[at % payload.length] = byte;
        let slow: string[] | undefined;
        try {
          slow = [...readExample(payload)]
            .filter(([, list]) => list !== null)
            .map(([name, list]) => `${name} ${list!.kind} ${list!.values.length}`);
        } catch (error) {
          assert.ok(error instanceof PayloadFault);
        }
        let fast: string[] | undefined;
        try {
          const { schema } = await index(memoryObject("x", frame(payload)), wasm);
          fast = schema.fields.map((field) => `${field.name} ${field.kind} ${field.values}`);
        } catch (error) {
          assert.ok(error instanceof AthanorError);
        }
        assert.deepEqual(fast, slow?.toSorted());
      },
    ),
    { numRuns: 500 },
  );
});
