/**
 * Byte-level BPE (GPT-2, Llama 3, Qwen, DeepSeek): added tokens, normalizer, pre-tokenizers, merges.
 *
 * Looked at: `@huggingface/tokenizers` (pure JavaScript): 10–20 times slower on DeepSeek's tokenizer, and its `\s` is not
 * Oniguruma's; npm `tokenizers` (the Rust library): 64 MB of binaries, half as fast.
 */
import { AddedTokens } from "./added.ts";
import { Merger } from "./bpe.ts";
import { TextRunTooLong } from "./errors.ts";
import { normalizerOf } from "./normalize.ts";
import { splitterOf } from "./split.ts";
import type { CompiledTokenizer, Encoded, Tokenizer, TokenizerOptions } from "./types.ts";
import { CACHED_LENGTH, WordCache } from "./word-cache.ts";

type Compiled = Extract<CompiledTokenizer, { kind: "byte-level-bpe" }>;

/** Ids that stay allocated. */
const KEPT = 1 << 20;

export class ByteLevelTokenizer implements Tokenizer {
  readonly before: readonly number[];
  readonly behind: readonly number[];
  private readonly raw: AddedTokens;
  private readonly normalized: AddedTokens;
  private readonly normalize: ((text: string) => string) | undefined;
  private readonly split: (text: string, take: (word: string) => boolean) => boolean;
  private readonly merger: Merger;
  private readonly cache = new WordCache();
  private readonly encoder = new TextEncoder();
  private bytes = new Uint8Array(4096);
  private ids = new Int32Array(4096);
  private length = 0;
  private limit = Infinity;

  constructor(
    compiled: Compiled,
    { parseSpecial }: TokenizerOptions,
    around: { before: readonly number[]; behind: readonly number[] },
  ) {
    this.before = around.before;
    this.behind = around.behind;
    this.normalize = normalizerOf(compiled.normalizer);
    const tokens = (normalized: boolean) => compiled.added.filter((token) => token.normalized === normalized);
    this.raw = new AddedTokens(tokens(false), parseSpecial);
    this.normalized = new AddedTokens(tokens(true), parseSpecial, this.normalize);
    this.split = splitterOf(compiled.preTokenizers);
    this.merger = new Merger(compiled.tables);
  }

  encode(text: string, limit = Infinity): Encoded {
    if (this.ids.length > KEPT) this.ids = new Int32Array(4096);
    this.length = 0;
    this.limit = limit;
    try {
      this.raw.cut(text, (id, from, to) => (id >= 0 ? this.take(id) : this.piece(text.slice(from, to))));
    } catch (error) {
      // V8's regular expressions remember where to go back to, a place a character: 64 MiB of them at most.
      if (!(error instanceof RangeError)) throw error;
      throw new TextRunTooLong(
        "the text has a run of millions of characters without a word border",
        {},
        "leave such records out, or break their lines",
        error,
      );
    }
    return { ids: this.ids, length: this.length };
  }

  /** Text between tokens that are looked for before it is normalized. */
  private piece(raw: string): boolean {
    const text = this.normalize === undefined ? raw : this.normalize(raw);
    return this.normalized.cut(text, (id, from, to) =>
      id >= 0 ? this.take(id) : this.split(from === 0 && to === text.length ? text : text.slice(from, to), this.word),
    );
  }

  private take(id: number): boolean {
    this.reserve(1);
    this.ids[this.length++] = id;
    return this.length <= this.limit;
  }

  private readonly word = (word: string): boolean => {
    const { cache } = this;
    if (word.length > CACHED_LENGTH) {
      const count = this.merge(word);
      this.append(this.merger.ids, 0, count);
    } else {
      if (!cache.find(word)) {
        const count = this.merge(word);
        cache.add(word, this.merger.ids, count);
        this.append(this.merger.ids, 0, count);
      } else this.append(cache.ids, cache.from, cache.count);
    }
    return this.length <= this.limit;
  };

  private append(from: Int32Array, at: number, count: number): void {
    this.reserve(count);
    const { ids } = this;
    let to = this.length;
    // A loop: words have one to three ids, and `set` costs more than those.
    for (let i = at; i < at + count; i++) ids[to++] = from[i]!;
    this.length = to;
  }

  private merge(word: string): number {
    // At most three bytes a code unit.
    if (this.bytes.length < word.length * 3 || (this.bytes.length > KEPT && word.length * 3 <= KEPT)) {
      this.bytes = new Uint8Array(Math.max(4096, word.length * 3));
    }
    const { written } = this.encoder.encodeInto(word, this.bytes);
    return this.merger.merge(this.bytes, written);
  }

  private reserve(count: number): void {
    if (this.length + count <= this.ids.length) return;
    const more = new Int32Array(Math.max(this.ids.length * 2, this.length + count));
    more.set(this.ids.subarray(0, this.length));
    this.ids = more;
  }
}
