/**
 * Chat view: what a user asks for where a column holds conversations, and what of it decides about token ids.
 *
 * @example
 * const { spec, missing } = chatSpec({ template: "default", source: undefined, options: "{}" }, compiled);
 */
import { createHash } from "node:crypto";
import type { Json } from "../base/json.ts";
import type { ChatSpec, CompiledTokenizer } from "../tokenizer/types.ts";

/** 1 for tokens of the assistant, as transformers' `assistant_masks`. */
export const LOSS_MASK = "loss_mask";

/** What a user asks for. */
export interface ChatRequest {
  /** Undefined: `messages`, where the data has it and no `text`. */
  column: string | undefined;
  /** Undefined: `tools`, if the data has it. */
  tools: string | undefined;
  /** Undefined: the tokenizer has no such template. */
  spec: ChatSpec | undefined;
  /** Why there is no `spec`. */
  missing: string;
}

/** Conversations of a view; crosses threads. */
export interface ChatView {
  spec: ChatSpec;
  /** Feature of the tools. */
  tools: string | undefined;
}

/** What of it decides about ids. */
export function chatHash({ spec, tools }: ChatView): Json {
  const { source, tokens, options } = spec;
  return {
    template: createHash("sha256").update(source).digest("hex"),
    tokens: JSON.parse(tokens) as Json,
    options: JSON.parse(options) as Json,
    tools: tools ?? null,
  };
}

/** The spec of a template, and why there is none. */
export function chatSpec(
  asked: { template: string; source: string | undefined; options: string },
  { chat, file }: CompiledTokenizer,
): Pick<ChatRequest, "spec" | "missing"> {
  const { templates, tokens } = chat;
  const { template, options } = asked;
  const source = asked.source ?? (Object.hasOwn(templates, template) ? templates[template] : undefined);
  const names = Object.keys(templates).join(", ");
  const missing =
    names === ""
      ? `the tokenizer ${file} has no chat template: neither chat_template in tokenizer_config.json nor chat_template.jinja beside it`
      : `the tokenizer ${file} has no chat template ${JSON.stringify(template)}, it has ${names}`;
  return { spec: source === undefined ? undefined : { name: template, source, tokens, options }, missing };
}
