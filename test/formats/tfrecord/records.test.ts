import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { index } from "../../../src/formats/tfrecord/index.ts";
import { parseRecord, readRecords, type RawRecord } from "../../../src/formats/tfrecord/records.ts";
import { fixtures } from "../fixtures.ts";
import { memoryObject } from "./memory-object.ts";
import { all, failure, many, wasm } from "./shards.ts";

test("records come out whole, in order, across reads; ranges too", async () => {
  const records = await all(many, { from: 3, to: 1398 });
  assert.equal(records.length, 1395);
  assert.deepEqual([records[0]!.record, records.at(-1)!.record], [3, 1397]);
  for (const { record, payload } of records) {
    if (record % 100 !== 3) continue;
    assert.equal(parseRecord("x", { record, byteOffset: 0, payload }).get("n")!.values.length, record % 5);
  }
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
