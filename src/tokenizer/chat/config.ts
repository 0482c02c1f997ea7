/**
 * Config: chat templates and special tokens of a `tokenizer_config.json`, as transformers reads them.
 *
 * @example
 * chatOf({ chat_template: "{{ bos_token }}", bos_token: { content: "<s>" } }, undefined).tokens; // '{"bos_token":"<s>"}'
 */
import { ChatTemplate } from "../errors.ts";
import type { CompiledTokenizer } from "../types.ts";

const TOKENS = ["bos", "eos", "unk", "sep", "pad", "cls", "mask"].map((name) => `${name}_token`);

/** `file`: text of `chat_template.jinja`, which comes before what the config has. */
export function chatOf(config: Readonly<Record<string, unknown>>, file: string | undefined): CompiledTokenizer["chat"] {
  const { chat_template: stored, additional_special_tokens: more } = config;
  const templates: Record<string, string> = {};
  if (typeof stored === "string") templates["default"] = stored;
  else if (Array.isArray(stored)) {
    for (const entry of stored as ({ name?: unknown; template?: unknown } | null)[]) {
      if (typeof entry?.name === "string" && typeof entry.template === "string") templates[entry.name] = entry.template;
    }
  }
  if (file !== undefined) templates["default"] = file;
  const tokens = TOKENS.flatMap((name) => {
    const content = contentOf(config[name]);
    return content === undefined ? [] : [[name, content] as const];
  });
  const others = Array.isArray(more) ? more.flatMap((token) => contentOf(token) ?? []) : [];
  const all = Object.fromEntries<string | string[]>(tokens);
  if (others.length > 0) all["additional_special_tokens"] = others;
  return { templates, tokens: JSON.stringify(all) };
}

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** The text of a template's file. */
export function templateText(bytes: Uint8Array, file: string): string {
  try {
    return utf8.decode(bytes);
  } catch (error) {
    throw new ChatTemplate("the chat template is not UTF-8", { file }, "save the file as UTF-8", error);
  }
}

/** The text of a special token as a config has it: itself, or an object with it. */
export function contentOf(token: unknown): string | undefined {
  if (typeof token === "string") return token;
  const content = (token as { content?: unknown } | null | undefined)?.content;
  return typeof content === "string" ? content : undefined;
}
