// Cases 35, 37 and 39 from the field (test/fixtures/cases, each with its SOURCE): values, what is missing, strictness.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync, readdirSync } from "node:fs";
import { basename, join } from "node:path";
import { after, test } from "node:test";
import { plainValue } from "../../../src/base/json.ts";
import { buildIndex } from "../../../src/dataset/index-build.ts";
import { readRecords } from "../../../src/dataset/records.ts";
import { verify } from "../../../src/dataset/verify.ts";
import { createPosixStorage } from "../../../src/storage/posix.ts";
import { FIXTURES } from "./samples.ts";

const storage = createPosixStorage();
after(() => storage.close());

interface Case {
  input: string[];
  sha256_le_i64: string;
  per_file: Record<string, { sha256_le_i64: string }>;
  records: number[][] & Record<string, unknown[]>;
  report: { missing_chunks: Record<string, number> };
}

function load(number: string): { folder: string; expected: Case } {
  const name = readdirSync(join(FIXTURES, "cases")).find((entry) => entry.startsWith(`${number}-`))!;
  const folder = join(FIXTURES, "cases", name);
  return { folder, expected: JSON.parse(readFileSync(join(folder, "expected.json"), "utf8")) as Case };
}

/** Records of a folder that is one array. */
async function values(path: string): Promise<unknown[]> {
  const found: unknown[] = [];
  for await (const { values: record } of readRecords(path, { storage })) {
    const [value] = Object.values(record);
    found.push(plainValue(value!));
  }
  return found;
}

function sha256(rows: readonly unknown[]): string {
  return createHash("sha256")
    .update(new Uint8Array(BigInt64Array.from(rows.flat() as number[], BigInt).buffer))
    .digest("hex");
}

test("case 35: '/' and '.' between chunk numbers, said or not, give the same values", async () => {
  const { folder, expected } = load("35");
  for (const input of expected.input) {
    const rows = await values(join(folder, input));
    assert.deepEqual(rows, expected.records, input);
    assert.equal(sha256(rows), expected.sha256_le_i64);
    const { missing } = await buildIndex(join(folder, input), { storage, write: false });
    assert.equal(missing, undefined, input);
  }
});

test("case 37: missing chunks read as the fill value, NaN and infinities too, are counted, and refused when strict", async () => {
  const { folder, expected } = load("37");
  for (const [input, count] of Object.entries(expected.report.missing_chunks)) {
    const path = join(folder, input);
    const rows = (await values(path)).map((value) =>
      typeof value === "object"
        ? { float: (value as { float: string }).float.replace("Infinity", "inf").replace("NaN", "nan") }
        : value,
    );
    assert.deepEqual(rows, expected.records[input], input);
    const index = await buildIndex(path, { storage, write: false });
    assert.equal(index.missing?.chunks, count, input);
    const strict = { code: "ATH_CHUNK_MISSING", message: new RegExp(`${input}.*chunk (c/)?\\d is missing`) };
    await assert.rejects(buildIndex(path, { storage, write: false, strictChunks: true }), strict);
    const lax = await verify(path, { storage });
    assert.deepEqual([lax.missingChunks, lax.problems], [count, []], input);
    const checked = await verify(path, { storage, strictChunks: true });
    assert.deepEqual(
      checked.problems.map(({ code }) => code),
      ["ATH_CHUNK_MISSING"],
    );
  }
});

test("case 37: without a fill value a missing chunk is an error that names it, behind the records before", async () => {
  const { folder } = load("37");
  const path = join(folder, "v2-fill-null.zarr");
  const found: unknown[] = [];
  await assert.rejects(
    async () => {
      for await (const { values: record } of readRecords(path, { storage })) found.push(record["input_ids"]);
    },
    { code: "ATH_CHUNK_MISSING", where: { file: join(path, "1"), record: 4 } },
  );
  assert.deepEqual(found, [1, 2, 3, 4]);
  await assert.rejects(buildIndex(path, { storage, write: false }), { code: "ATH_CHUNK_MISSING" });
});

test("case 39: order F, big-endian, delta, bzip2 and no compressor give the same values", async () => {
  const { folder, expected } = load("39");
  for (const input of expected.input) {
    const rows = await values(join(folder, input));
    const plain =
      basename(input) === "none-uint16.zarr" ? expected.records.map((row) => row.map(Math.abs)) : expected.records;
    assert.deepEqual(rows, plain, input);
    assert.equal(sha256(rows), expected.per_file[input]!.sha256_le_i64, input);
  }
});
