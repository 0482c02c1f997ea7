/** Flags that say what a view delivers, as the loader's arguments of the same names do. */
import { resolve } from "node:path";
import { InvalidArgumentError, Option } from "commander";
import type { Command } from "commander";
import { Tokenizers } from "../agent/tokenizers.ts";
import { Usage } from "../base/usage.ts";
import type { ViewRequest } from "../feed/delivered.ts";
import type { Storage } from "../storage/types.ts";
import type { Around } from "../tokenizer/types.ts";
import { whole } from "./order-flags.ts";

export interface ViewFlags {
  maxLength?: number;
  columns?: string;
  sampleRule?: string;
  tokenizer?: string;
  textColumn?: string;
  addSpecialTokens: string;
  parseSpecial?: boolean;
  messagesColumn?: string;
  toolsColumn?: string;
  chatTemplate?: string;
  chatTemplateKwargs?: string;
}

const AROUND: { readonly [value: string]: Around } = {
  true: "template",
  false: "none",
  bos: "bos",
  eos: "eos",
  both: "both",
};

/** As the message that opens a session has it. */
const MOST = 1 << 24;

export function addViewFlags(command: Command): Command {
  return command
    .option("--max-length <n>", "values a row of a column (default: 512)", maxLength)
    .option("--columns <names>", "delivered columns, a,b,c (default: as the loader's)")
    .option("--sample-rule <rule>", "record, split or pack; of tokens document or stream (default: the format's own)")
    .option("--tokenizer <path>", "tokenizer.json or model folder: makes ids of text")
    .option("--text-column <name>", "the column of text (default: text, else the only column of bytes)")
    .addOption(
      new Option("--add-special-tokens <which>", "tokens around each text, as the loader's")
        .choices(Object.keys(AROUND))
        .default("true"),
    )
    .option("--parse-special", "special tokens that are spelled out in a text become themselves")
    .option("--messages-column <name>", "the column of conversations (default: messages, where there is no text)")
    .option("--tools-column <name>", "tools of each conversation (default: tools)")
    .option("--chat-template <which>", "a template's name (default: default), or the path of a file")
    .option("--chat-template-kwargs <json>", "what else the template is given");
}

/** The loader's bound. */
function maxLength(text: string): number {
  const value = whole(text);
  if (value > MOST) throw new InvalidArgumentError(`must be ${MOST} or less.`);
  return value;
}

function optionsOf(text: string): string {
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value === "object" && value !== null && !Array.isArray(value)) return text;
  } catch {
    // Said below.
  }
  throw new Usage(`--chat-template-kwargs must be a JSON object, got ${text}`);
}

export async function viewRequest(flags: ViewFlags, storage: Storage): Promise<ViewRequest> {
  const request: ViewRequest = {
    columns: flags.columns?.split(","),
    maxLength: flags.maxLength ?? 512,
    padId: 0,
    strict: false,
    mostBad: Infinity,
    sampleRule: flags.sampleRule,
  };
  if (flags.tokenizer === undefined) return request;
  const tokenizers = new Tokenizers(storage);
  const tokenizer = await tokenizers.open(flags.tokenizer);
  const template = flags.chatTemplate;
  return {
    ...request,
    text: {
      tokenizer,
      chat: await tokenizers.chat(
        {
          messages_column: flags.messagesColumn,
          tools_column: flags.toolsColumn,
          template: template !== undefined && /[/]|\.jinja$/.test(template) ? resolve(template) : template,
          options: optionsOf(flags.chatTemplateKwargs ?? "{}"),
        },
        tokenizer,
      ),
      column: flags.textColumn,
      truncationSide: "right",
      around: AROUND[flags.addSpecialTokens]!,
      parseSpecial: flags.parseSpecial === true,
    },
  };
}
