// Patterns of Oniguruma as JavaScript's: what is translated, and that the rest is refused rather than read otherwise.
import assert from "node:assert/strict";
import { test } from "node:test";
import { AthanorError } from "../../src/base/errors.ts";
import { compilePattern, literalPattern } from "../../src/tokenizer/pattern.ts";

const matches = (source: string, text: string): string[] =>
  [...text.matchAll(compilePattern(source, "g"))].map(([m]) => m);

test("white space is Unicode's: with U+0085, without U+FEFF", () => {
  assert.deepEqual(matches(String.raw`\s+`, "a\u0085\u00a0b\ufeffc\u180e"), ["\u0085\u00a0"]);
  assert.deepEqual(matches(String.raw`[^\s]+`, "a\u0085b\ufeffc"), ["a", "b\ufeffc"]);
});

const cases: [source: string, text: string, found: string[]][] = [
  [String.raw`(?i:'s|'re)`, "'S'ſ'Re's'x", ["'S", "'ſ", "'Re", "'s"]],
  [String.raw`(?i)k[a-c]`, "KAkaKB", ["KA", "ka", "KB"]],
  [String.raw`\d+`, "12٣a", ["12٣"]],
  [String.raw`a.b`, "a\nba\u2028b", ["a\u2028b"]],
  [String.raw`\s+$`, "x  \ny ", ["  ", " "]],
  [String.raw`a++b?`, "aaab", ["aaab"]],
  [String.raw`(?>a+)ab`, "aaab", []],
  [String.raw`x{,2}y`, "xxxy", ["xxy"]],
  [String.raw`[\]\-a&~]+`, "a]-&~b", ["a]-&~"]],
  [String.raw`[!-/]+`, "a!(/b", ["!(/"]],
  [String.raw`\x41\u0042\x{1F600}`, "AB😀", ["AB😀"]],
  [String.raw`\p{^L}+`, "ab1,c", ["1,"]],
  [String.raw`\P{L}+`, "ab1,c", ["1,"]],
  [String.raw`\p{Han}+`, "a漢字b", ["漢字"]],
  [String.raw`\h+`, "xAf0g", ["Af0"]],
];
for (const [source, text, found] of cases) {
  test(`${source} on ${JSON.stringify(text)}`, () => assert.deepEqual(matches(source, text), found));
}

test("any text as a pattern", () => {
  const all = Array.from({ length: 0x7e }, (_, i) => String.fromCharCode(i + 1)).join("");
  assert.deepEqual(matches(literalPattern(all), `x${all}y`), [all]);
});

const refused = [
  "^a",
  String.raw`\bword\b`,
  "a**",
  "a{2}+",
  "[a&&b]",
  "[[:alpha:]]",
  "[a[b]]",
  "(?<name>a)",
  String.raw`(a)\1`,
  "(?m:a)",
  String.raw`\G`,
  String.raw`\p{Nonsense}`,
  "(a",
  "a)",
  "[a",
  "a{",
  "*a",
  "\\",
  String.raw`\xff`,
];
for (const source of refused) {
  test(`refuses ${source}`, () => {
    assert.throws(
      () => compilePattern(source, "g"),
      (error: unknown) => error instanceof AthanorError && error.code === "ATH_TOKENIZER_UNSUPPORTED",
    );
  });
}
