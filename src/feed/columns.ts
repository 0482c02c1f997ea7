/**
 * Columns: from a schema and a view to what a batch holds, how a stored row lies in memory, and how a slot
 * lies in the segment file. The narrowest exact storage is chosen from what the index saw: token ids that fit
 * 32 bits are stored as i32, a mask of ones and then zeros as its length; the decoder checks that it holds.
 */
import type { PieceRule } from "../dataset/pack.ts";
import type { Field, Schema, StorageKind, StoredColumn } from "../formats/types.ts";
import { ROW_HEADER_BYTES } from "../formats/types.ts";
import { textColumn } from "../dataset/text-column.ts";
import { ColumnUnknown } from "./errors.ts";
import { align } from "./memory.ts";
import { pieceColumns, tokensField } from "./piece-columns.ts";
import { ChatTemplate, TokenizerUnsupported } from "../tokenizer/errors.ts";
import { LOSS_MASK, type ChatRequest } from "./chat-view.ts";
import type { TextRequest, TextView } from "./text.ts";

/** What a user asks for; part of the view fingerprint. */
export interface ViewRequest {
  columns: readonly string[] | undefined;
  maxLength: number;
  padId: number;
  strict: boolean;
  /** Most bad records that may be missing in rows made of pieces. @default 0 */
  mostBad?: number;
  /** How records become samples. @default the format's own */
  sampleRule?: string | undefined;
  /** Makes `input_ids` and `attention_mask` of a text column. */
  text?: TextRequest | undefined;
}

export interface DeliveredColumn {
  name: string;
  feature: string;
  storage: StorageKind;
  /** Values a row in the batch. */
  width: number;
  /** Every record holds exactly one value: delivered as [rows] instead of [rows, 1]. */
  scalar: boolean;
  dtype: "int64" | "float32";
  /** Bytes a row in the slot. */
  bytes: number;
}

export interface ViewLayout {
  columns: DeliveredColumn[];
  stored: StoredColumn[];
  /** Bytes of a stored row, header included. */
  rowBytes: number;
  /** Nominal row bytes of the order: Σ width × 4, whatever is stored. */
  nominalBytes: number;
  text?: TextView;
  /** Of rows made of pieces of records: the field whose values are counted. */
  tokens?: string;
}

/** Derived from the length of `input_ids` where the data has none. */
export const MASK = "attention_mask";
export const IDS = "input_ids";
/** What one decoding plan holds. */
const MAX_COLUMNS = 64;
export const VALUE_BYTES = { i32: 4, i64: 8, f32: 4, prefix: 4, length: 4 } as const;

/** `pieces`: the rule of a view whose rows are made of pieces of records. */
export function viewLayout(schema: Schema, view: ViewRequest, file: string, pieces?: PieceRule): ViewLayout {
  const numeric = schema.fields.filter((field) => field.kind !== "bytes");
  const found = view.text === undefined ? undefined : textView(schema, view, view.text, file, pieces !== undefined);
  const text = found === undefined || pieces === undefined ? found : { ...found, whole: true };
  if (pieces !== undefined) {
    const tokens = text?.feature ?? tokensField(schema, file).name;
    const columns = pieceColumns(schema, view, pieces, tokens, text === undefined ? [] : namesOfText(text), file);
    return { ...layoutOf(columns, view.padId), tokens, ...(text === undefined ? {} : { text }) };
  }
  const names = view.columns ?? (text === undefined ? defaultColumns(numeric, schema, file) : namesOfText(text));
  if (names.length > MAX_COLUMNS) {
    throw new ColumnUnknown(
      `${names.length} columns are too many: at most ${MAX_COLUMNS} can be delivered`,
      { file },
      "name those that training needs with columns=",
    );
  }
  const twice = names.find((name, i) => names.indexOf(name) !== i);
  if (twice !== undefined) {
    throw new ColumnUnknown(`column ${twice} is named twice`, { file }, "a batch has each column once");
  }
  const columns = names.map((name) =>
    text !== undefined && (name === IDS || name === MASK || (name === LOSS_MASK && text.chat !== undefined))
      ? tokenized(name, text)
      : deliver(name, schema, numeric, view, file),
  );
  return { ...layoutOf(columns, view.padId), ...(text === undefined ? {} : { text }) };
}

function layoutOf(columns: DeliveredColumn[], padId: number): ViewLayout {
  let offset = ROW_HEADER_BYTES;
  const stored = columns.map((column) => {
    const entry: StoredColumn = {
      name: column.name,
      feature: column.feature,
      storage: column.storage,
      maxLength: column.width,
      pad: String(column.name === "input_ids" || column.name === "labels" ? padId : 0),
      required: column.scalar,
      rowOffset: offset,
      rowBytes: column.bytes,
    };
    offset = align(offset + column.bytes, 8);
    return entry;
  });
  return {
    columns,
    stored,
    rowBytes: align(offset, 64),
    nominalBytes: columns.reduce((sum, column) => sum + column.width * 4, 0),
  };
}

function namesOfText({ chat }: TextView): string[] {
  return chat === undefined ? [IDS, MASK] : [IDS, MASK, LOSS_MASK];
}

/** The layout with one more column, which is not asked for and counts for nothing in the order. */
export function withColumn(layout: ViewLayout, column: DeliveredColumn, padId: number): ViewLayout {
  const { nominalBytes } = layout;
  return { ...layout, ...layoutOf([...layout.columns, column], padId), nominalBytes };
}

/** The column that the tokenizer is for; refuses rows without room between the tokens that stand around a text. */
function textView(schema: Schema, view: ViewRequest, request: TextRequest, file: string, whole: boolean): TextView {
  const { column, chat: askedChat, ...text } = request;
  const conversations = column === undefined ? messagesField(schema, askedChat, file) : undefined;
  const wanted = column ?? textColumn(schema)?.name;
  const fields = schema.fields.filter(({ kind, json }) => kind === "bytes" && json !== true);
  const field = conversations ?? fields.find(({ name }) => name === wanted);
  if (field === undefined) {
    const found = fields.map(({ name }) => name).join(", ") || "none";
    throw new ColumnUnknown(
      column === undefined ? "there is no one text column to tokenize" : `text column ${column} is not in the data`,
      { file },
      `name it with text_column=; columns of text: ${found}; conversations are named with messages_column=: ${namesOf(schema)}`,
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
  const why = schema.notColumns?.[column];
  throw new ColumnUnknown(
    why === undefined ? `messages column ${column} is not in the data` : `messages column ${column} ${why}`,
    { file },
    `columns of lists, objects or text: ${namesOf(schema)}`,
  );
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
      `tools column ${chat.tools} is not in the data`,
      { file },
      `columns of lists, objects or text: ${namesOf(schema)}`,
    );
  }
  return { ...text, feature, maxLength: view.maxLength, chat: { spec, tools: tools?.name } };
}

function tokenized(name: string, { feature, maxLength }: TextView): DeliveredColumn {
  const column = { name, feature, width: maxLength, scalar: false, dtype: "int64" as const };
  if (name === MASK) return { ...column, storage: "length", bytes: VALUE_BYTES.length };
  const bytes = maxLength * VALUE_BYTES.i32;
  return { ...column, feature: name === LOSS_MASK ? LOSS_MASK : feature, storage: "i32", bytes };
}

function defaultColumns(numeric: Field[], schema: Schema, file: string): string[] {
  if (numeric.length === 0) {
    const unfit = Object.entries(schema.notColumns ?? {}).slice(0, 10);
    const found = [
      ...schema.fields.map((field) => `${field.name} (${field.kind})`),
      ...unfit.map(([name, why]) => `${name}, which ${why}`),
    ].join(", ");
    throw new ColumnUnknown(
      `no numeric feature to train on: found ${found || "no feature at all"}`,
      { file },
      'text needs a tokenizer: Loader(…, tokenizer="/path/of/tokenizer.json")',
    );
  }
  const names = numeric.map((field) => field.name);
  return names.includes("input_ids") && !names.includes(MASK) ? [...names, MASK] : names;
}

export function deliver(
  name: string,
  schema: Schema,
  numeric: Field[],
  view: ViewRequest,
  file: string,
): DeliveredColumn {
  const field = schema.fields.find((candidate) => candidate.name === name);
  if (field === undefined) {
    const ids = numeric.find((candidate) => candidate.name === "input_ids") ?? numeric[0];
    if (name === MASK && ids !== undefined) {
      return {
        name,
        feature: ids.name,
        storage: "length",
        width: view.maxLength,
        scalar: false,
        dtype: "int64",
        bytes: 4,
      };
    }
    const why = Object.entries(schema.notColumns ?? {}).find(([other]) => other === name)?.[1];
    if (why !== undefined) {
      throw new ColumnUnknown(
        `field ${name} is no column: it ${why}`,
        { file },
        "a column holds numbers, or text, of one kind in all records: leave it out of columns, or write it so",
      );
    }
    const found = schema.fields.map((candidate) => candidate.name).join(", ");
    throw new ColumnUnknown(`column ${name} is not in the data: found ${found}`, { file }, "see `athanor inspect`");
  }
  if (field.kind === "bytes") {
    throw new ColumnUnknown(
      `column ${name} holds text or bytes, which cannot be delivered as numbers`,
      { file },
      'leave it out of columns; text is delivered as ids with Loader(…, tokenizer="/path/of/tokenizer.json")',
    );
  }
  const scalar = field.minLength === 1 && field.maxLength === 1;
  const width = scalar ? 1 : view.maxLength;
  const storage = storageOf(field, scalar);
  const bytes = storage === "prefix" ? 4 : width * VALUE_BYTES[storage];
  return { name, feature: name, storage, width, scalar, dtype: field.kind === "float" ? "float32" : "int64", bytes };
}

export function storageOf(field: Field, scalar: boolean): StorageKind {
  if (field.kind === "float") return "f32";
  if (field.prefixMask === true && !scalar) return "prefix";
  const min = BigInt(field.min ?? "0");
  const max = BigInt(field.max ?? "0");
  return min >= -(2n ** 31n) && max < 2n ** 31n ? "i32" : "i64";
}

export interface SlotLayout {
  /** Offset of each delivered column in the slot, same order as the columns. */
  offsets: number[];
  bytes: number;
}

/** Identities behind the two header lines, then the columns, each 64-byte aligned. */
export function slotLayout(
  columns: readonly DeliveredColumn[],
  batch: number,
  identities: number,
  identityBytes: number,
): SlotLayout {
  let at = align(identities + batch * identityBytes, 64);
  const offsets = columns.map((column) => {
    const offset = at;
    at = align(at + batch * column.bytes, 64);
    return offset;
  });
  return { offsets, bytes: align(at, 64) };
}
