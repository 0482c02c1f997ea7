/**
 * Runs texts of python/tests/test_tokenizer.py through our tokenizers: a JSON list of {file, parseSpecial, texts} on stdin, for each
 * text its ids on stdout, as JSON. With patterns as arguments: for each the characters that it matches, as ranges of code
 * points. No test by itself.
 */
import { readFileSync } from "node:fs";
import { compilePattern } from "../../src/tokenizer/pattern.ts";
import { openTokenizer } from "../../src/tokenizer/open.ts";
import { compileFile, idsOf } from "./fixtures.ts";

interface Case {
  file: string;
  parseSpecial: boolean;
  texts: string[];
}

function ranges(pattern: string): [number, number][] {
  const regex = compilePattern(`(?:${pattern})+`, "g");
  const all = Array.from({ length: 0x110000 }, (_, code) => code).filter((code) => code < 0xd800 || code >= 0xe000);
  const text = all.map((code) => String.fromCodePoint(code)).join("");
  return [...text.matchAll(regex)].map(({ index, 0: run }) => [
    text.codePointAt(index)!,
    Array.from(run.slice(-2)).at(-1)!.codePointAt(0)!,
  ]);
}

async function ids(): Promise<number[][][]> {
  const answers: number[][][] = [];
  for (const { file, parseSpecial, texts } of JSON.parse(readFileSync(0, "utf8")) as Case[]) {
    const tokenizer = await openTokenizer(compileFile(file), { parseSpecial, around: "none" });
    answers.push(texts.map((text) => idsOf(tokenizer.encode(text))));
  }
  return answers;
}

const patterns = process.argv.slice(2);
process.stdout.write(JSON.stringify(patterns.length > 0 ? patterns.map((pattern) => ranges(pattern)) : await ids()));
