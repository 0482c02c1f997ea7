/** Open: a tokenizer of one thread, over tables that all threads share. */
import { ByteLevelTokenizer } from "./byte-level.ts";
import { TokenizerUnsupported } from "./errors.ts";
import type { CompiledTokenizer, Tokenizer, TokenizerOptions } from "./types.ts";

export async function openTokenizer(compiled: CompiledTokenizer, options: TokenizerOptions): Promise<Tokenizer> {
  const around = compiled.around[options.around];
  if (around === undefined) {
    throw new TokenizerUnsupported(
      `the tokenizer does not name the tokens that add_special_tokens=${JSON.stringify(options.around)} asks for`,
      { file: compiled.file },
      "put tokenizer_config.json with bos_token and eos_token beside tokenizer.json, or set add_special_tokens=False",
    );
  }
  if (compiled.kind === "byte-level-bpe") return new ByteLevelTokenizer(compiled, options, around);
  const { WrappedTokenizer } = await import("./library.ts");
  return new WrappedTokenizer(compiled, options, around);
}
