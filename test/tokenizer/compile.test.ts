// What is no tokenizer.json, and what is one that we do not read, is an error with a code and the file.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { AthanorError } from "../../src/base/errors.ts";
import { compileTokenizer } from "../../src/tokenizer/compile.ts";
import { openTokenizer } from "../../src/tokenizer/open.ts";
import { compileFile, FIXTURES, idsOf, openFixture } from "./fixtures.ts";

type Json = Record<string, unknown>;
const valid = (): Json => JSON.parse(readFileSync(`${FIXTURES}deepseek/tokenizer.json`, "utf8")) as Json;
const compile = (json: string) =>
  compileTokenizer({ file: "/m/tokenizer.json", json: Buffer.from(json), config: undefined });
const codeOf = (run: () => unknown): string => {
  try {
    run();
  } catch (error) {
    if (!(error instanceof AthanorError)) throw error;
    assert.equal(error.where.file, "/m/tokenizer.json");
    return error.code;
  }
  return "none";
};

test("files that are no tokenizer.json", () => {
  for (const json of ["", "{", "null", "[]", "{}", '{"model": null}', '{"model": {"vocab": 1}}']) {
    assert.equal(
      codeOf(() => compile(json)),
      "ATH_TOKENIZER_UNREADABLE",
      json,
    );
  }
  const model = valid()["model"] as Json;
  const merges = model["merges"] as string[];
  for (const wrong of ["a", "a b c", "nonsense token", 7]) {
    const changed = { ...valid(), model: { ...model, merges: [wrong, ...merges] } };
    assert.equal(
      codeOf(() => compile(JSON.stringify(changed))),
      "ATH_TOKENIZER_UNREADABLE",
      String(wrong),
    );
  }
});

test("parts that are not read are refused when the tokenizer is compiled", () => {
  const bytes = { type: "ByteLevel", add_prefix_space: false, use_regex: false };
  const pre = (part: Json): Json => ({ ...valid(), pre_tokenizer: { type: "Sequence", pretokenizers: [part, bytes] } });
  const split = { type: "Split", behavior: "Isolated", invert: false };
  const wrong = [
    pre({ type: "Nonsense" }),
    pre({ ...split, pattern: { Regex: "^a" } }),
    pre({ ...split, pattern: { String: "a" }, behavior: "Nonsense" }),
    { ...valid(), normalizer: { type: "Nonsense" } },
    { ...valid(), post_processor: { type: "Nonsense" } },
  ];
  for (const json of wrong)
    assert.equal(
      codeOf(() => compile(JSON.stringify(json))),
      "ATH_TOKENIZER_UNSUPPORTED",
    );
});

test("damaged files give a tokenizer or an error with a code", () => {
  const text = JSON.stringify(valid());
  for (let at = 0; at < text.length; at += 97) {
    const damaged = `${text.slice(0, at)}${text.slice(at + 3)}`;
    const code = codeOf(() => compile(damaged));
    assert.ok(code === "none" || code.startsWith("ATH_TOKENIZER"), code);
  }
});

test("tokens around a text", async () => {
  const bos = await openFixture("deepseek", { around: "bos" });
  assert.deepEqual([bos.before, bos.behind], [[0], []]);
  const both = await openFixture("deepseek", { around: "both" });
  assert.deepEqual([both.before, both.behind], [[0], [1]]);
  const template = await openFixture("llama", { around: "template" });
  assert.deepEqual([template.before, template.behind], [[0], []]);
  assert.equal(compileFile(`${FIXTURES}deepseek/tokenizer.json`).pad, 2);
  await assert.rejects(openFixture("llama", { around: "eos" }), { code: "ATH_TOKENIZER_UNSUPPORTED" });
});

test("tables are shared between threads, and what is compiled can be sent to them", async () => {
  const compiled = compileFile(`${FIXTURES}llama/tokenizer.json`);
  assert.ok(compiled.kind === "byte-level-bpe");
  assert.ok(compiled.tables.merges.buffer instanceof SharedArrayBuffer);
  const sent = structuredClone({ ...compiled, tables: {} });
  const options = { parseSpecial: false, around: "none" } as const;
  const there = await openTokenizer({ ...sent, tables: compiled.tables }, options);
  assert.deepEqual(
    idsOf(there.encode("zzz furnace")),
    idsOf((await openTokenizer(compiled, options)).encode("zzz furnace")),
  );
});
