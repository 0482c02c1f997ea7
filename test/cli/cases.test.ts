// Cases from the field (test/fixtures/cases, each with its SOURCE) through the command line.
import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { basename } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { athanor } from "./athanor.ts";

const CASES = fileURLToPath(new URL("../../../test/fixtures/cases/", import.meta.url));

interface CaseError {
  file: string;
  record: number;
  byte_offset: number;
  cause: string;
}

interface Case {
  input: string[];
  fields: Record<string, string>;
  n: number;
  records?: Record<string, unknown>[];
  readable_before?: Record<string, unknown>[];
  error?: CaseError | CaseError[];
}

function load(number: string): { folder: string; expected: Case } {
  const name = readdirSync(CASES).find((entry) => entry.startsWith(`${number}-`));
  assert.ok(name !== undefined, `case ${number} is missing`);
  return {
    folder: `${CASES}${name}`,
    expected: JSON.parse(readFileSync(`${CASES}${name}/expected.json`, "utf8")) as Case,
  };
}

/** What `cat` prints of a record (all features are lists) in the form of the case, which knows scalars and text. */
function asInCase(printed: unknown, fields: Record<string, string>): Record<string, unknown> {
  const record = printed as Record<string, unknown[] | null>;
  return Object.fromEntries(
    Object.entries(fields).map(([name, kind]) => {
      const list = record[name] ?? null;
      if (kind.includes("decimal strings")) return [name, list?.map(String) ?? null];
      if (kind.endsWith("[]")) return [name, list];
      assert.equal(list?.length, 1);
      const value = list[0];
      return [name, kind === "bytes" ? Buffer.from((value as { b64: string }).b64, "base64").toString() : value];
    }),
  );
}

for (const number of ["01", "03"]) {
  test(`case ${number}: good records before the fault are printed, then file, record and byte offset are named`, () => {
    const { folder, expected } = load(number);
    const error = expected.error as CaseError;
    const ran = athanor("cat", `${folder}/${expected.input[0]}`, "--json");
    assert.equal(ran.code, 1);
    assert.deepEqual(
      ran.lines().map((line) => asInCase(line, expected.fields)),
      expected.readable_before,
    );
    const found = ran.error();
    assert.equal(basename(found.file ?? ""), error.file);
    assert.deepEqual([found.record, found.byteOffset], [error.record, error.byte_offset]);
    const checked = athanor("verify", `${folder}/${expected.input[0]}`, "--json");
    assert.equal(checked.code, 1);
    assert.deepEqual([checked.error().record, checked.error().byteOffset], [error.record, error.byte_offset]);
    for (const command of ["index", "inspect"]) {
      const refused = athanor(command, `${folder}/${expected.input[0]}`, "--json");
      assert.equal(refused.code, 1, command);
      assert.equal(refused.error().code, found.code, command);
    }
  });
}

test("case 01: the message says how many bytes are missing", () => {
  const { folder, expected } = load("01");
  const { message, code } = athanor("cat", `${folder}/${expected.input[0]}`, "--json").error();
  assert.equal(code, "ATH_RECORD_TRUNCATED");
  assert.match(message, /93 payload bytes, only 46 bytes remain/);
});

test("case 05: gzip, two members, zlib and an unnamed gzip give the same 50 records", () => {
  const { folder, expected } = load("05");
  for (const input of expected.input) {
    const ran = athanor("cat", `${folder}/${input}`);
    assert.equal(ran.code, 0, ran.stderr);
    assert.deepEqual(
      ran.lines().map((line) => asInCase(line, expected.fields)),
      expected.records,
      input,
    );
  }
});

test("case 06: a Git LFS pointer and an HTML page are called what they are", () => {
  const { folder, expected } = load("06");
  for (const error of expected.error as CaseError[]) {
    for (const command of ["cat", "inspect", "verify"]) {
      const ran = athanor(command, `${folder}/${error.file}`, "--json");
      const found = ran.error();
      assert.equal(ran.code, 1);
      assert.deepEqual(
        [found.code, basename(found.file ?? ""), found.record, found.byteOffset],
        ["ATH_NOT_FORMAT", error.file, 0, 0],
      );
      for (const word of ["Git LFS pointer", "150994944", "HTML"]) {
        if (error.cause.includes(word)) assert.match(found.message, new RegExp(word), command);
      }
    }
  }
});

test("case 07: exact values; null and [] are kept apart", () => {
  const { folder, expected } = load("07");
  const ran = athanor("cat", `${folder}/${expected.input[0]}`);
  assert.equal(ran.code, 0, ran.stderr);
  assert.deepEqual(
    ran.lines().map((line) => asInCase(line, expected.fields)),
    expected.records,
  );
});
