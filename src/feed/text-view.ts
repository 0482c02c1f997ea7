/**
 * Text view: which column a tokenizer reads, and the columns that are made of it.
 */
import { textColumn } from "../dataset/text-column.ts";
import type { Field, Schema } from "../formats/types.ts";
import { ChatTemplate, TokenizerUnsupported } from "../tokenizer/errors.ts";
import { LOSS_MASK, type ChatRequest } from "./chat-view.ts";
import { IDS, MASK, VALUE_BYTES, type DeliveredColumn, type ViewRequest } from "./delivered.ts";
import { ColumnUnknown } from "./errors.ts";
import type { TextRequest, TextView } from "./text.ts";

export function namesOfText({ chat }: TextView): string[] {
  return chat === undefined ? [IDS, MASK] : [IDS, MASK, LOSS_MASK];
}

/** The column that the tokenizer is for; refuses rows without room between the tokens that stand around a text. */
export function textView(
  schema: Schema,
  view: ViewRequest,
  request: TextRequest,
  file: string,
  whole: boolean,
): TextView {
  const { column, chat: askedChat, ...text } = request;
  const conversations = column === undefined ? messagesField(schema, askedChat, file) : undefined;
  const wanted = column ?? textColumn(schema)?.name;
  const fields = schema.fields.filter(({ kind, json }) => kind === "bytes" && json !== true);
  const field = conversations ?? fields.find(({ name }) => name === wanted);
  if (field === undefined) {
    const found = fields.map(({ name }) => name).join(", ") || "none";
    throw new ColumnUnknown(
      column === undefined
        ? "there is no one text column to tokenize"
        : `text column ${column} ${whyNot(schema, column) ?? "holds lists or objects, no text"}`,
      { file },
      `name it with text_column=; columns of text: ${found}; conversations are named with messages_column=, columns of lists or objects: ${listsOf(schema)}`,
    );
  }
  const own = conversations === undefined ? [IDS, MASK] : [IDS, MASK, LOSS_MASK];
  const clash = schema.fields.find(({ name }) => own.includes(name));
  if (clash !== undefined) {
    throw new ColumnUnknown(
      `the data has a column ${clash.name} of its own beside the text`,
      { file },
      "leave tokenizer out to train on the stored ids",
    );
  }
  if (conversations !== undefined) return chatView(schema, view, request, conversations.name, file);
  const ends = text.tokenizer.around[text.around];
  if (ends === undefined) {
    throw new TokenizerUnsupported(
      `the tokenizer does not name the tokens that add_special_tokens=${JSON.stringify(text.around)} asks for`,
      { file: text.tokenizer.file },
      "put tokenizer_config.json with bos_token and eos_token beside tokenizer.json, or set add_special_tokens=False",
    );
  }
  if (!whole && ends.before.length + ends.behind.length >= view.maxLength) {
    throw new ColumnUnknown(
      `max_length ${view.maxLength} leaves no room between the special tokens around a text`,
      { file },
      "raise max_length",
    );
  }
  return { ...text, feature: field.name, maxLength: view.maxLength };
}

/** The column of conversations: the named one, or `messages` of data that has no `text`. */
function messagesField(schema: Schema, { column }: ChatRequest, file: string): Field | undefined {
  const found = textColumn(schema);
  const wanted = column ?? (found?.holds === "conversations" ? found.name : undefined);
  const field = schema.fields.find(({ kind, name }) => kind === "bytes" && name === wanted);
  if (column === undefined || field !== undefined) return field;
  throw new ColumnUnknown(
    `messages column ${column} ${whyNot(schema, column)}`,
    { file },
    `columns of lists, objects or text: ${namesOf(schema)}`,
  );
}

/** Why a column is none of text or JSON; undefined: it is one. */
function whyNot({ fields, notColumns = {} }: Schema, name: string): string | undefined {
  const field = fields.find((candidate) => candidate.name === name);
  if (field === undefined) return new Map(Object.entries(notColumns)).get(name) ?? "is not in the data";
  return field.kind === "bytes"
    ? undefined
    : `holds numbers (${field.kind === "int64" ? "int64" : "float32"}), no text`;
}

function listsOf({ fields }: Schema): string {
  return fields.flatMap(({ name, json }) => (json === true ? [name] : [])).join(", ") || "none";
}

function namesOf({ fields }: Schema): string {
  const names = fields.filter(({ kind }) => kind === "bytes").map(({ name }) => name);
  return names.join(", ") || "none";
}

function chatView(schema: Schema, view: ViewRequest, request: TextRequest, feature: string, file: string): TextView {
  const { column: _, chat, ...text } = request;
  const { spec, missing } = chat;
  if (text.around !== "template" && text.around !== "none") {
    throw new TokenizerUnsupported(
      `add_special_tokens=${JSON.stringify(text.around)} goes with text: a chat template has its own special tokens`,
      { file: text.tokenizer.file },
      "leave add_special_tokens out",
    );
  }
  if (spec === undefined) {
    throw new ChatTemplate(
      `column ${feature} holds conversations, and ${missing}`,
      { file: text.tokenizer.file },
      "give the path of a template with chat_template=, or name a column of text with text_column=",
    );
  }
  const tools = schema.fields.find(({ name, kind }) => kind === "bytes" && name === (chat.tools ?? "tools"));
  if (tools === undefined && chat.tools !== undefined) {
    throw new ColumnUnknown(
      `tools column ${chat.tools} ${whyNot(schema, chat.tools)}`,
      { file },
      `columns of lists, objects or text: ${namesOf(schema)}`,
    );
  }
  return { ...text, feature, maxLength: view.maxLength, chat: { spec, tools: tools?.name } };
}

export function tokenized(name: string, { feature, maxLength }: TextView): DeliveredColumn {
  const column = { name, feature, width: maxLength, scalar: false, dtype: "int64" as const };
  if (name === MASK) return { ...column, storage: "length", bytes: VALUE_BYTES.length };
  const bytes = maxLength * VALUE_BYTES.i32;
  return { ...column, feature: name === LOSS_MASK ? LOSS_MASK : feature, storage: "i32", bytes };
}
