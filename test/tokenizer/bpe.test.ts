// Merges: long words (heap) as short ones (all pairs), and both as the plain rule; long runs without a word border.
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { Merger } from "../../src/tokenizer/bpe.ts";
import { buildTables, BYTE_CHARS } from "../../src/tokenizer/tables.ts";
import { idsOf, openFixture } from "./fixtures.ts";

/** A vocabulary over the letters a–d with random merges. */
const models = fc.array(fc.tuple(fc.nat(), fc.nat()), { minLength: 1, maxLength: 40 }).map((choices) => {
  const tokens = ["a", "b", "c", "d"];
  const merges: [string, string][] = [];
  for (const [x, y] of choices) {
    const pair: [string, string] = [tokens[x % tokens.length]!, tokens[y % tokens.length]!];
    if (pair.join("").length > 12 || tokens.includes(pair.join(""))) continue;
    merges.push(pair);
    tokens.push(pair.join(""));
  }
  return { tokens, merges };
});

function plainRule(word: string, merges: readonly [string, string][]): string[] {
  let symbols = Array.from(word);
  for (;;) {
    const ranks = symbols.slice(1).map((right, i) => merges.findIndex(([a, b]) => a === symbols[i] && b === right));
    const possible = ranks.filter((rank) => rank >= 0);
    if (possible.length === 0) return symbols;
    const at = ranks.indexOf(Math.min(...possible));
    symbols = [...symbols.slice(0, at), symbols[at]! + symbols[at + 1]!, ...symbols.slice(at + 2)];
  }
}

test("words of any length are merged by the plain rule", () => {
  fc.assert(
    fc.property(
      models,
      fc.string({ unit: fc.constantFrom("a", "b", "c", "d"), minLength: 1, maxLength: 160 }),
      ({ tokens, merges }, word) => {
        const vocab = Object.fromEntries(tokens.map((token, id) => [token, id]));
        const merger = new Merger(buildTables(vocab, merges, false, "model"));
        const bytes = new TextEncoder().encode(word);
        const count = merger.merge(bytes, bytes.length);
        const found = Array.from(merger.ids.subarray(0, count), (id) => tokens[id]);
        assert.deepEqual(found, plainRule(word, merges));
      },
    ),
    { numRuns: 400 },
  );
});

test("each byte has a character of its own", () => {
  assert.equal(new Set(BYTE_CHARS).size, 256);
  assert.equal(BYTE_CHARS[0x20], "Ġ");
  assert.equal(BYTE_CHARS[0x41], "A");
});

test("a megabyte without a word border", { timeout: 120_000 }, async () => {
  const tokenizer = await openFixture("deepseek");
  for (const unit of ["a", "ab", " ", "\n", "-", "1", "龥", "😀", "\u0001", "e\u0301"]) {
    const text = unit.repeat(1_000_000 / unit.length);
    const { length } = tokenizer.encode(text);
    assert.ok(length > 0, unit);
  }
});

test("a run too long for the regular expressions is an error with a code", { timeout: 120_000 }, async () => {
  const tokenizer = await openFixture("deepseek");
  assert.throws(() => tokenizer.encode("é".repeat(40_000_000)), { code: "ATH_TEXT_RUN_TOO_LONG" });
  assert.deepEqual(idsOf(tokenizer.encode("1")), idsOf(tokenizer.encode("1")));
});

test("stops soon behind the limit, with the same ids up to there", async () => {
  for (const name of ["deepseek", "nfc", "wordpiece"]) {
    const tokenizer = await openFixture(name);
    const text = "The furnace feeds itself, evenly. ".repeat(2000);
    const all = idsOf(tokenizer.encode(text));
    const some = idsOf(tokenizer.encode(text, 100));
    assert.ok(some.length > 100, name);
    if (name !== "wordpiece") assert.ok(some.length < 200, name);
    assert.deepEqual(some, all.slice(0, some.length), name);
  }
});
