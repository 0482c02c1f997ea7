/**
 * Byte-level BPE (GPT-2, Llama 3, Qwen, DeepSeek): added tokens, normalizer, pre-tokenizers, merges.
 *
 * Looked at: `@huggingface/tokenizers` (pure JavaScript): 10–20 times slower on DeepSeek's tokenizer, and its `\s` is not
 * Oniguruma's; npm `tokenizers` (the Rust library): 64 MB of binaries, half as fast.
 */
import { AddedTokens } from "./added.ts";
import { Merger } from "./bpe.ts";
import { TextRunTooLong, TokenizerUnsupported } from "./errors.ts";
import { normalizerOf } from "./normalize.ts";
import { splitterOf } from "./split.ts";
import { PieceSpans, type Spans } from "./spans.ts";
import type { CompiledTokenizer, Encoded, SpanTokenizer, TokenizerOptions } from "./types.ts";
import { CACHED_LENGTH, WordCache } from "./word-cache.ts";

type Compiled = Extract<CompiledTokenizer, { kind: "byte-level-bpe" }>;

/** Ids that stay allocated. */
const KEPT = 1 << 20;

export class ByteLevelTokenizer implements SpanTokenizer {
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
  /** Of ids, while spans are asked for. */
  private marked = new Uint8Array(0);
  /** Spans of the piece in work, while they are asked for. */
  private spans: PieceSpans | undefined;
  private readonly lengths: Uint16Array;
  /** A space comes before a text that has none. */
  private readonly prefixes: boolean;

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
    this.lengths = compiled.tables.lengths;
    this.prefixes = compiled.preTokenizers.some((part) => part["add_prefix_space"] === true);
  }

  encode(text: string, limit = Infinity): Encoded {
    this.begin(limit);
    this.guarded(() => {
      this.raw.cut(text, (id, from, to) => (id >= 0 ? this.take(id) : this.piece(text.slice(from, to))));
    });
    return { ids: this.ids, length: this.length };
  }

  encodeSpans(
    text: string,
    literal: ReadonlySet<number>,
    spans: Spans,
    limit = Infinity,
  ): Encoded & { marked: Uint8Array } {
    this.begin(limit);
    const whole = new PieceSpans(spans, literal);
    try {
      this.guarded(() => {
        this.raw.cut(
          text,
          (id, from, to) =>
            id >= 0
              ? this.takeMarked(id, whole.touches(from, to))
              : this.markedPiece(text.slice(from, to), whole, from),
          (at) => literal.has(at),
        );
      });
    } finally {
      this.spans = undefined;
    }
    return { ids: this.ids, length: this.length, marked: this.marked };
  }

  private begin(limit: number): void {
    if (this.ids.length > KEPT) this.ids = new Int32Array(4096);
    if (this.marked.length > KEPT) this.marked = new Uint8Array(0);
    this.length = 0;
    this.limit = limit;
  }

  private guarded(work: () => void): void {
    try {
      work();
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
  }

  /** Text between tokens that are looked for before it is normalized. */
  private piece(raw: string): boolean {
    const text = this.normalize === undefined ? raw : this.normalize(raw);
    return this.normalized.cut(text, (id, from, to) =>
      id >= 0 ? this.take(id) : this.split(from === 0 && to === text.length ? text : text.slice(from, to), this.word),
    );
  }

  /** The same, at `at` of the text whose spans are `whole`. */
  private markedPiece(raw: string, whole: PieceSpans, at: number): boolean {
    const { normalize } = this;
    const text = normalize === undefined ? raw : normalize(raw);
    const moved =
      normalize === undefined || text === raw
        ? (place: number): number => place
        : (place: number): number => (place === raw.length ? text.length : normalize(raw.slice(0, place)).length);
    const spans = whole.piece(at, at + raw.length, moved);
    return this.normalized.cut(
      text,
      (id, from, to) => (id >= 0 ? this.takeMarked(id, spans.touches(from, to)) : this.words(text, spans, from, to)),
      (place) => spans.literal.has(place),
    );
  }

  private words(text: string, spans: PieceSpans, from: number, to: number): boolean {
    this.spans = spans;
    spans.at = from - (this.prefixes && text[from] !== " " ? 1 : 0);
    const goesOn = this.split(from === 0 && to === text.length ? text : text.slice(from, to), this.word);
    if (goesOn && spans.at !== to) {
      throw new TokenizerUnsupported(
        "the pre-tokenizer adds or drops characters: what the assistant said cannot be told apart",
      );
    }
    return goesOn;
  }

  private takeMarked(id: number, marked: boolean): boolean {
    const before = this.length;
    const goesOn = this.take(id);
    this.mark(before, this.length, marked);
    return goesOn;
  }

  /** Marks of the ids of the word that comes next. */
  private markWord(word: string, first: number): void {
    const spans = this.spans as PieceSpans;
    const from = spans.at;
    const to = from + word.length;
    spans.at = to;
    const touched = spans.touches(from, to);
    if (!touched || spans.holds(from, to)) return this.mark(first, this.length, touched);
    let bytes = 0;
    let seen = 0;
    let unit = 0;
    for (let i = first; i < this.length; i++) {
      const begin = unit;
      bytes += this.lengths[this.ids[i]!]!;
      for (;;) {
        const code = word.codePointAt(unit);
        if (code === undefined) break;
        const behind = seen + (code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4);
        if (behind > bytes) break;
        seen = behind;
        unit += code > 0xffff ? 2 : 1;
      }
      // A token of a part of a character stands for the whole of it.
      this.mark(i, i + 1, spans.touches(from + begin, from + Math.max(unit, begin + 1)));
    }
  }

  private mark(from: number, to: number, marked: boolean): void {
    if (this.marked.length < to) {
      const more = new Uint8Array(Math.max(4096, to, this.marked.length * 2));
      more.set(this.marked);
      this.marked = more;
    }
    this.marked.fill(marked ? 1 : 0, from, to);
  }

  private take(id: number): boolean {
    this.reserve(1);
    this.ids[this.length++] = id;
    return this.length <= this.limit;
  }

  private readonly word = (word: string): boolean => {
    const { cache } = this;
    const first = this.length;
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
    if (this.spans !== undefined) this.markWord(word, first);
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
