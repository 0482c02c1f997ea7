// Cases of JSON Lines and JSON arrays (test/fixtures/cases, each with its SOURCE) through the command line.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync, readdirSync } from "node:fs";
import { basename } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { athanor, type Ran } from "./athanor.ts";

const CASES = fileURLToPath(new URL("../../../test/fixtures/cases/", import.meta.url));

type Row = Record<string, unknown>;
interface Case<Record = Row> {
  input: string[];
  n: number;
  records: Record[];
}

function load<Expected>(number: string): { file: (name: string) => string; expected: Expected } {
  const name = readdirSync(CASES).find((entry) => entry.startsWith(`${number}-`));
  assert.ok(name !== undefined, `case ${number} is missing`);
  const expected = JSON.parse(readFileSync(`${CASES}${name}/expected.json`, "utf8")) as Expected;
  return { file: (input) => `${CASES}${name}/${input}`, expected };
}

function records(path: string): Row[] {
  const ran = athanor("cat", path);
  assert.equal(ran.code, 0, ran.stderr);
  return ran.lines() as Row[];
}

function refused(ran: Ran, path: string): ReturnType<Ran["error"]> & { line?: number } {
  assert.equal(ran.code, 1);
  const error = ran.error();
  assert.equal(basename(error.file ?? ""), basename(path));
  return error;
}

/** As the cases hash text: for each record the length of its UTF-8 as u64, then the bytes. */
function textHash(texts: readonly string[]): string {
  const hash = createHash("sha256");
  for (const text of texts) {
    const bytes = Buffer.from(text);
    const length = Buffer.alloc(8);
    length.writeBigUInt64LE(BigInt(bytes.length));
    hash.update(length).update(bytes);
  }
  return hash.digest("hex");
}

function idHash(ids: readonly (number | string)[]): string {
  const bytes = Buffer.alloc(ids.length * 8);
  ids.forEach((id, i) => bytes.writeBigInt64LE(BigInt(id), i * 8));
  return createHash("sha256").update(bytes).digest("hex");
}

test("case 09: null for 400 lines, then text", () => {
  type Expected = Case & { records_sample: Record<string, Row>; text_sha256: string; license_nulls: number };
  const { file, expected } = load<Expected & { license_sha256_of_nonnull: string }>("09");
  const found = records(file("data.jsonl"));
  assert.equal(found.length, expected.n);
  for (const [i, record] of Object.entries(expected.records_sample)) assert.deepEqual(found[Number(i)], record);
  assert.equal(textHash(found.map(({ text }) => text as string)), expected.text_sha256);
  const licenses = found.map(({ license }) => license as string | null).filter((license) => license !== null);
  assert.equal(found.length - licenses.length, expected.license_nulls);
  assert.equal(textHash(licenses), expected.license_sha256_of_nonnull);
  const shown = athanor("inspect", file("data.jsonl"), "--json");
  assert.match(shown.stdout, /"license"[^}]*"kind":"bytes"/);
});

test("case 11: integers are exact, and those beyond int64 are errors that name the line", () => {
  type Expected = Case<{ id: string; tokens: string[] }> & { int64_errors: { line: number; value: string }[] };
  const { file, expected } = load<Expected>("11");
  const ran = athanor("cat", file("data.jsonl"), "--json");
  const shown = ran.lines() as { id: unknown; tokens: unknown[] }[];
  const first = expected.int64_errors[0]!.line - 1;
  assert.deepEqual(
    shown.map(({ id, tokens }) => ({ id: String(id), tokens: tokens.map(String) })),
    expected.records.slice(0, first),
  );
  const error = refused(ran, "data.jsonl");
  assert.deepEqual([error.code, error.line, error.record], ["ATH_VALUE_RANGE", first + 1, first]);
  assert.match(error.message, /9223372036854775808 does not fit int64/);
  const checked = athanor("verify", file("data.jsonl"), "--json");
  const problems = checked.stdout + checked.stderr;
  for (const { line, value } of expected.int64_errors) {
    assert.match(problems, new RegExp(`${value.replace(".", "\\.")} does not fit int64[^}]*"line":${line}\\b`));
  }
});

test("case 13: only 0x0A ends a record", () => {
  const { file, expected } = load<Case<string>>("13");
  const found = records(file("data.jsonl"));
  assert.deepEqual(
    found.map(({ text }) => text),
    expected.records,
  );
});

test("case 14: all members of a gzip file", () => {
  const { file, expected } = load<Case & { text_sha256: string; id_sha256: string }>("14");
  for (const input of expected.input) {
    const found = records(file(input));
    assert.equal(found.length, expected.n, input);
    assert.equal(textHash(found.map(({ text }) => text as string)), expected.text_sha256, input);
    assert.equal(idHash(found.map(({ id }) => id as number)), expected.id_sha256, input);
  }
});

test("case 16: cut and damaged compressed files are refused, behind all whole records", () => {
  type Fault = { file: string; byte_offset?: number; cause: string; whole_records_before?: number };
  const { file, expected } = load<Case & { error: Fault[] }>("16");
  for (const fault of expected.error) {
    const ran = athanor("cat", file(fault.file), "--json");
    const error = refused(ran, fault.file);
    assert.equal(error.code, "ATH_STREAM_CORRUPT", fault.file);
    if (fault.byte_offset !== undefined) assert.equal(error.byteOffset, fault.byte_offset, fault.file);
    const whole = ran.lines() as { id: number }[];
    if (fault.whole_records_before !== undefined) assert.equal(whole.length, fault.whole_records_before, fault.file);
    whole.forEach(({ id }, i) => assert.equal(id, i));
    if (fault.file.includes("wrong-checksum")) assert.match(error.message, /checksum/);
    assert.equal(refused(athanor("inspect", file(fault.file), "--json"), fault.file).code, "ATH_STREAM_CORRUPT");
  }
});

test("case 18: lone surrogates become U+FFFD, NUL stays, the last of two keys counts", () => {
  const { file, expected } = load<Case<string> & { utf8_hex: string[] }>("18");
  const found = records(file("data.jsonl"));
  assert.deepEqual(
    found.map(({ text }) => text),
    expected.records,
  );
  assert.deepEqual(
    found.map(({ text }) => Buffer.from(text as string).toString("hex")),
    expected.utf8_hex,
  );
});

test("case 19: a line of 187 KB is whole", () => {
  const { file, expected } = load<Case<string | { utf8_bytes: number; sha256: string }>>("19");
  const found = records(file("data.jsonl")).map(({ text }) => Buffer.from(text as string));
  const shown = expected.records.map((record, i) => {
    if (typeof record === "string") return found[i]!.toString();
    return { utf8_bytes: found[i]!.length, sha256: createHash("sha256").update(found[i]!).digest("hex") };
  });
  assert.deepEqual(shown, expected.records);
});

test("case 73: arrays are read, what is neither lines nor an array is one clear error", () => {
  type Fault = { file: string; line?: number; byte_offset?: number };
  const { file, expected } = load<Case & { per_file: Record<string, number>; error: Fault[] }>("73");
  for (const [name, count] of Object.entries(expected.per_file)) {
    assert.deepEqual(records(file(name)), expected.records.slice(0, count), name);
  }
  const what: Record<string, RegExp> = {
    "wrapped.json": /one object that holds the records in "data"/,
    "pretty-concatenated.jsonl": /a record spans several lines \(indented JSON\)/,
    "array-cut.json": /the JSON array is not closed: the file is cut short/,
  };
  for (const fault of expected.error) {
    for (const command of ["cat", "verify"]) {
      const error = refused(athanor(command, file(fault.file), "--json"), fault.file);
      assert.match(error.message, what[fault.file]!);
      if (fault.line !== undefined) assert.deepEqual([error.line, error.byteOffset], [fault.line, fault.byte_offset]);
    }
  }
});
