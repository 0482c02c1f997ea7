/**
 * Tokenizers: text to ids, as Hugging Face's `tokenizers` gives them. `compile.ts` makes tables of a `tokenizer.json`, once
 * a process; `open.ts` makes a tokenizer of the tables, once a thread: the tables are shared, only the cache of words is not.
 */
import type { Spans } from "./spans.ts";

/** How one text is encoded; part of what a sample is, so of the view's fingerprint. */
export interface TokenizerOptions {
  /** Special tokens that are spelled out in the text become themselves. @default false: they stay text */
  parseSpecial: boolean;
  /** Tokens around each text. @default "template": what the tokenizer's post-processor adds */
  around: Around;
}

/** `template`: as the post-processor of `tokenizer.json` says; the others add the model's BOS and EOS tokens. */
export type Around = "template" | "none" | "bos" | "eos" | "both";

/** Ids of one text; they are overwritten by the next call. */
export interface Encoded {
  ids: Int32Array;
  length: number;
}

export interface Tokenizer {
  /** Ids that stand before and behind those of a text. */
  readonly before: readonly number[];
  readonly behind: readonly number[];
  /**
   * Ids of a text without those around it. May stop as soon as there are more than `limit`.
   * A lone surrogate counts as U+FFFD.
   */
  encode(text: string, limit?: number): Encoded;
}

/** A tokenizer that tells which of its tokens stand for parts of a text. */
export interface SpanTokenizer extends Tokenizer {
  /**
   * Ids of a text in which no added token begins at a place of `literal`, with 1 for each token that has a character in one of `spans`
   * (rising). May stop as soon as there are more ids than `limit`. Places are UTF-16 code units.
   */
  encodeSpans(
    text: string,
    literal: ReadonlySet<number>,
    spans: Spans,
    limit?: number,
  ): Encoded & { marked: Uint8Array };
}

/** How a conversation becomes a text. JSON of objects: `tokens`, the special tokens by name; `options`, what else the template is given. */
export interface ChatSpec {
  /** Of the template, for messages. */
  name: string;
  source: string;
  tokens: string;
  options: string;
}

/** One entry of `added_tokens`, with the id that `tokenizers` gives it. */
export interface AddedToken {
  id: number;
  content: string;
  special: boolean;
  normalized: boolean;
  single_word: boolean;
  lstrip: boolean;
  rstrip: boolean;
}

/** A part of `tokenizer.json` that has a type: normalizer, pre-tokenizer, post-processor, model. */
export interface Part {
  readonly type: string;
  readonly [key: string]: unknown;
}

/** Tables of a byte-level BPE; arrays over shared memory. */
export interface BpeTables {
  /** Id of each byte alone, −1: not in the vocabulary (left out). */
  bytes: Int32Array;
  /** Open-addressed: left id, right id, rank, id of both together; left −1: free. A power of two of entries. */
  merges: Int32Array;
  /** Whole words (`ignore_merges`). */
  words?: WordTable;
  /** Bytes that each id stands for. */
  lengths: Uint16Array;
}

/** Open-addressed by hash of the word's bytes: start in `bytes`, length, id; length 0: free. */
export interface WordTable {
  bytes: Uint8Array;
  slots: Int32Array;
}

interface CompiledBase {
  /** SHA-256 (hex) of the bytes of `tokenizer.json`. */
  sha256: string;
  /** For messages. */
  file: string;
  added: readonly AddedToken[];
  /** Tokens around a text by mode; a mode is missing where the tokenizer does not name the token. */
  around: Partial<Record<Around, { before: readonly number[]; behind: readonly number[] }>>;
  /** Id of the padding token, if the tokenizer names one. */
  pad: number | undefined;
  /** Chat templates by name (`default`), and the special tokens that they are given, as JSON. */
  chat: { templates: Readonly<Record<string, string>>; tokens: string };
}

/** What crosses threads. */
export type CompiledTokenizer =
  | (CompiledBase & {
      kind: "byte-level-bpe";
      tables: BpeTables;
      normalizer: Part | null;
      preTokenizers: readonly Part[];
    })
  | (CompiledBase & {
      kind: "library";
      /** `tokenizer.json` and `tokenizer_config.json` as text. */
      json: string;
      config: string;
    });
