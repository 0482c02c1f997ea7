/**
 * Compile: from the text of a `tokenizer.json` to what a tokenizer is opened from. About half a second for 128 000 tokens: done once
 * a process, in a thread of its own.
 *
 * @example
 * const compiled = compileTokenizer({ file, json: readFileSync(file), config: undefined });
 * openTokenizer(compiled, { parseSpecial: false, around: "none" }).encode("text");
 */
import { createHash } from "node:crypto";
import { AthanorError, messageOf } from "../base/errors.ts";
import { aroundOf } from "./around.ts";
import { chatOf, contentOf, templateText } from "./chat/config.ts";
import { TokenizerUnreadable } from "./errors.ts";
import { normalizerOf } from "./normalize.ts";
import { flatten, splitterOf } from "./split.ts";
import { buildTables } from "./tables.ts";
import type { Vocabulary } from "./tables.ts";
import type { AddedToken, CompiledTokenizer, Part } from "./types.ts";

/** The files of a tokenizer. `file`: path of `tokenizer.json`; `config`, `template`: bytes of `tokenizer_config.json` and `chat_template.jinja`, if they are there. */
export interface TokenizerFiles {
  file: string;
  json: Uint8Array;
  config: Uint8Array | undefined;
  template?: Uint8Array | undefined;
}

interface Definition {
  added_tokens?: (Partial<AddedToken> & { content: string })[];
  normalizer?: Part | null;
  pre_tokenizer?: Part | null;
  post_processor?: Part | null;
  padding?: { pad_id?: number } | null;
  model: Model;
}

interface Model extends Omit<Part, "type"> {
  type?: string;
  vocab: Vocabulary | [string, number][];
  merges?: unknown[];
}

export function compileTokenizer({ file, json, config, template }: TokenizerFiles): CompiledTokenizer {
  const definition = parse(json, file) as unknown as Definition;
  const names = config === undefined ? {} : parse(config, file.replace(/[^/]*$/, "tokenizer_config.json"));
  const { model } = definition;
  if (typeof model !== "object" || model === null || typeof model.vocab !== "object" || model.vocab === null) {
    throw new TokenizerUnreadable(
      "the file has no model with a vocabulary, so it is no tokenizer.json",
      { file },
      "give the tokenizer.json of a model, or the folder that holds it",
    );
  }
  try {
    const ids = vocabulary(model.vocab);
    const added = addedTokens(definition.added_tokens ?? [], ids);
    const idOf = (name: string): number | undefined => {
      const content = contentOf(names[name]);
      if (content === undefined) return undefined;
      return added.find((candidate) => candidate.content === content)?.id ?? ids.get(content);
    };
    const base = {
      file,
      sha256: createHash("sha256").update(json).digest("hex"),
      added,
      around: aroundOf(definition.post_processor ?? null, { bos: idOf("bos_token"), eos: idOf("eos_token") }),
      pad: definition.padding?.pad_id ?? idOf("pad_token"),
      chat: chatOf(
        names,
        template === undefined ? undefined : templateText(template, file.replace(/[^/]*$/, "chat_template.jinja")),
      ),
    };
    const preTokenizers = flatten(definition.pre_tokenizer ?? null);
    if (!isByteLevel(definition, preTokenizers)) {
      return { ...base, kind: "library", json: text(json), config: config === undefined ? "{}" : text(config) };
    }
    const normalizer = definition.normalizer ?? null;
    // What is not read is told of now, not by the first text.
    normalizerOf(normalizer);
    splitterOf(preTokenizers);
    const tables = buildTables(model.vocab as Vocabulary, model.merges ?? [], model["ignore_merges"] === true, file);
    return { ...base, kind: "byte-level-bpe", tables, normalizer, preTokenizers };
  } catch (error) {
    if (error instanceof AthanorError) {
      if (error.where.file !== undefined) throw error;
      throw AthanorError.fromRecord({ ...error.toRecord(), file });
    }
    throw new TokenizerUnreadable(`the file is not a tokenizer.json: ${messageOf(error)}`, { file }, undefined, error);
  }
}

/** BPE over bytes as all such models of today have it; others go to the library. */
function isByteLevel({ model, normalizer }: Definition, preTokenizers: readonly Part[]): boolean {
  const { dropout, unk_token: unknown, continuing_subword_prefix: prefix, end_of_word_suffix: suffix } = model;
  return (
    (model.type === "BPE" || (model.type === undefined && model.merges !== undefined)) &&
    preTokenizers.at(-1)?.type === "ByteLevel" &&
    preTokenizers.filter(({ type }) => type === "ByteLevel").length === 1 &&
    (normalizer ?? null)?.type !== "ByteLevel" &&
    !Array.isArray(model.vocab) &&
    [dropout, unknown, prefix, suffix].every(
      (option) => option === null || option === undefined || option === "" || option === 0,
    ) &&
    model["byte_fallback"] !== true
  );
}

/** Ids as `tokenizers` gives them: the model's, else the next free one, whatever stands in the file. */
function addedTokens(tokens: NonNullable<Definition["added_tokens"]>, ids: ReadonlyMap<string, number>): AddedToken[] {
  let next = ids.size;
  const known = new Map<string, number>();
  const out: AddedToken[] = [];
  for (const token of tokens) {
    if (token.content === "") continue;
    const id = ids.get(token.content) ?? known.get(token.content) ?? next;
    if (id >= next) next = id + 1;
    known.set(token.content, id);
    out.push({
      id,
      content: token.content,
      special: token.special === true,
      normalized: token.normalized ?? token.special !== true,
      single_word: token.single_word === true,
      lstrip: token.lstrip === true,
      rstrip: token.rstrip === true,
    });
  }
  return out;
}

/** Unigram has a list of [token, score]. */
function vocabulary(vocab: Model["vocab"]): Map<string, number> {
  return Array.isArray(vocab) ? new Map(vocab.map(([token], id) => [token, id])) : new Map(Object.entries(vocab));
}

function parse(bytes: Uint8Array, file: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text(bytes));
    if (typeof value === "object" && value !== null) return value as Record<string, unknown>;
  } catch (error) {
    throw new TokenizerUnreadable(`the file is not JSON: ${messageOf(error)}`, { file }, undefined, error);
  }
  throw new TokenizerUnreadable("the file is not a JSON object", { file });
}

function text(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("utf8");
}
