/**
 * Other kinds of tokenizers (WordPiece, Unigram, BPE over characters) by `@huggingface/tokenizers`, behind our interface. Each
 * thread has its own vocabulary: the library keeps it in JavaScript objects.
 */
import { Tokenizer as LibraryTokenizer } from "@huggingface/tokenizers";
import { TokenizerUnsupported } from "./errors.ts";
import type { AddedToken, CompiledTokenizer, Encoded, Tokenizer, TokenizerOptions } from "./types.ts";

type Compiled = Extract<CompiledTokenizer, { kind: "library" }>;

export class WrappedTokenizer implements Tokenizer {
  readonly before: readonly number[];
  readonly behind: readonly number[];
  private readonly tokenizer: LibraryTokenizer;

  constructor(
    compiled: Compiled,
    { parseSpecial }: TokenizerOptions,
    around: { before: readonly number[]; behind: readonly number[] },
  ) {
    this.before = around.before;
    this.behind = around.behind;
    const definition = JSON.parse(compiled.json) as { added_tokens?: AddedToken[] };
    // The library looks for all of them in a text; those that stay text must not be among them.
    if (!parseSpecial) definition.added_tokens = definition.added_tokens?.filter((token) => !token.special) ?? [];
    try {
      this.tokenizer = new LibraryTokenizer(definition, JSON.parse(compiled.config) as object);
    } catch (error) {
      throw new TokenizerUnsupported(
        "the tokenizer is of a kind that @huggingface/tokenizers does not read",
        { file: compiled.file },
        "tokenize with the Python library before",
        error,
      );
    }
  }

  encode(text: string): Encoded {
    const { ids } = this.tokenizer.encode(text, { add_special_tokens: false });
    return { ids: Int32Array.from(ids), length: ids.length };
  }
}
