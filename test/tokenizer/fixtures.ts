/** Tokenizers of test/fixtures/tokenizer, compiled and opened. */
import { existsSync, readFileSync } from "node:fs";
import { compileTokenizer } from "../../src/tokenizer/compile.ts";
import { openTokenizer } from "../../src/tokenizer/open.ts";
import type { CompiledTokenizer, Encoded, Tokenizer, TokenizerOptions } from "../../src/tokenizer/types.ts";

export const FIXTURES = new URL("../../../test/fixtures/tokenizer/", import.meta.url).pathname;

export function compileFile(file: string): CompiledTokenizer {
  const config = file.replace(/[^/]*$/, "tokenizer_config.json");
  return compileTokenizer({
    file,
    json: readFileSync(file),
    config: existsSync(config) ? readFileSync(config) : undefined,
  });
}

export function openFixture(name: string, options: Partial<TokenizerOptions> = {}): Promise<Tokenizer> {
  const compiled = compileFile(`${FIXTURES}${name}/tokenizer.json`);
  return openTokenizer(compiled, { parseSpecial: false, around: "none", ...options });
}

export function idsOf({ ids, length }: Encoded): number[] {
  return Array.from(ids.subarray(0, length));
}
