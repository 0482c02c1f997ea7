// Cases 40, 42, 43 and 45 (MDS, WebDataset) of test/fixtures/cases through the command line.
import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { relative } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { athanor } from "./athanor.ts";

const CASES = fileURLToPath(new URL("../../../test/fixtures/cases/", import.meta.url));

interface CaseError {
  file: string;
  record?: number;
  record_in_shard?: number;
  byte_offset?: number;
  cause: string;
}

interface Case {
  input: string[];
  n: number;
  records: Record<string, unknown>[];
  others: Record<string, Record<string, unknown>[]>;
  shards: number[];
  error: CaseError[];
  if_rebuilt: Record<string, { n: number }>;
}

function load(number: string): { folder: string; expected: Case } {
  const name = readdirSync(CASES).find((entry) => entry.startsWith(`${number}-`));
  assert.ok(name !== undefined, `case ${number} is missing`);
  const folder = `${CASES}${name}`;
  return { folder, expected: JSON.parse(readFileSync(`${folder}/expected.json`, "utf8")) as Case };
}

test("case 40: 40 samples of the good set", () => {
  const { folder, expected } = load("40");
  const ran = athanor("cat", `${folder}/good`);
  assert.equal(ran.code, 0, ran.stderr);
  assert.deepEqual(ran.lines(), expected.records);
});

test("case 40: a cut shard, a wrong count, a wrong offset and a lost shard are named", () => {
  const { folder, expected } = load("40");
  for (const error of expected.error) {
    const set = error.file.split("/")[0]!;
    const ran = athanor("cat", `${folder}/${set}`, "--json");
    assert.equal(ran.code, 1, set);
    const found = ran.error();
    assert.equal(relative(folder, found.file ?? ""), error.file);
    assert.deepEqual([found.record, found.byteOffset], [error.record_in_shard, error.byte_offset], set);
    if (error.record !== undefined) {
      // The number in the whole set, too, and every sample before it.
      assert.match(found.message, new RegExp(`\\b${error.record} of all`));
      assert.deepEqual(ran.lines(), expected.records.slice(0, error.record));
    }
    for (const number of error.cause.match(/\d+/g) ?? [])
      assert.match(found.message, new RegExp(`\\b${number}\\b`), set);
    const checked = athanor("verify", `${folder}/${set}`, "--json").error();
    assert.deepEqual([checked.code, checked.file], [found.code, found.file]);
  }
});

test("case 42: index.json is checked where it is there, and not needed where it is not", () => {
  const { folder, expected } = load("42");
  const causes: Record<string, RegExp> = {
    "empty-index": /is empty \(0 bytes\)/,
    "half-index": /is cut short/,
    "no-shards-key": /lists no shards, although shard\.00000\.mds is there/,
    "new-version": /MDS version 3 is not known, 2 is/,
    "extra-shard": /not in index\.json, which lists 1 shard of 23 samples/,
  };
  for (const set of expected.input) {
    const ran = athanor("cat", `${folder}/${set}`, "--json");
    const cause = causes[set];
    if (cause === undefined) {
      assert.equal(ran.code, 0, ran.stderr);
      assert.deepEqual(
        (ran.lines() as { id: number }[]).map(({ id }) => id),
        Array.from({ length: expected.if_rebuilt["no-index"]!.n }, (_, id) => id),
        set,
      );
      continue;
    }
    const found = ran.error();
    assert.equal(ran.code, 1, set);
    assert.match(found.message, cause);
    const error = expected.error.find(({ file }) => file.split("/")[0] === set);
    assert.equal(found.byteOffset, error?.byte_offset);
    const file = set === "extra-shard" ? "extra-shard/shard.00001.mds" : `${set}/index.json`;
    assert.equal(relative(folder, found.file ?? ""), file);
    if (set !== "new-version") assert.match(found.remedy ?? "", /take it away: without it/);
  }
});

for (const number of ["43", "45"]) {
  test(`case ${number}: samples are grouped by the key before the first dot, names are whole`, () => {
    const { folder, expected } = load(number);
    for (const input of expected.input) {
      const ran = athanor("cat", `${folder}/${input}`);
      assert.equal(ran.code, 0, ran.stderr);
      assert.deepEqual(ran.lines(), expected.others?.[input] ?? expected.records, input);
    }
  });
}
