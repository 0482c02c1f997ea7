/**
 * Columns: from a schema and a view to what a batch holds, how a stored row lies in memory, and how a slot
 * lies in the segment file.
 */
import type { PieceRule } from "../dataset/pack.ts";
import type { Field, Schema, StoredColumn } from "../formats/types.ts";
import { isScalar, ROW_HEADER_BYTES } from "../formats/types.ts";
import { ColumnUnknown } from "./errors.ts";
import { align } from "./memory.ts";
import { pieceColumns, tokensField } from "./piece-columns.ts";
import { LOSS_MASK } from "./chat-view.ts";
import { deliver, IDS, MASK, type DeliveredColumn, type ViewRequest } from "./delivered.ts";
import { namesOfText, textView, tokenized } from "./text-view.ts";
import type { TextView } from "./text.ts";

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

/** What one decoding plan holds. */
const MAX_COLUMNS = 64;
/** `pieces`: the rule of a view whose rows are made of pieces of records. */
export function viewLayout(schema: Schema, view: ViewRequest, file: string, pieces?: PieceRule): ViewLayout {
  const numeric = schema.fields.filter((field) => field.kind !== "bytes");
  const fit = numeric.filter(({ unfit }) => unfit === undefined);
  const found = view.text === undefined ? undefined : textView(schema, view, view.text, file, pieces !== undefined);
  const text = found === undefined || pieces === undefined ? found : { ...found, whole: true };
  if (pieces !== undefined) {
    const tokens = text?.feature ?? tokensField(schema, file).name;
    const columns = pieceColumns(schema, view, pieces, tokens, text === undefined ? [] : namesOfText(text), file);
    return { ...layoutOf(columns, view.padId), tokens, ...(text === undefined ? {} : { text }) };
  }
  const names =
    view.columns ?? (text === undefined ? defaultColumns(fit, schema, view.own ?? [], file) : namesOfText(text));
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

/** The layout with one more column, which is not asked for and counts for nothing in the order. */
export function withColumn(layout: ViewLayout, column: DeliveredColumn, padId: number): ViewLayout {
  const { nominalBytes } = layout;
  return { ...layout, ...layoutOf([...layout.columns, column], padId), nominalBytes };
}

function defaultColumns(numeric: Field[], schema: Schema, own: readonly string[], file: string): string[] {
  if (numeric.length === 0) {
    const unfit = Object.entries(schema.notColumns ?? {}).slice(0, 10);
    const found = [
      ...schema.fields.map(
        ({ name, kind, unfit }) => `${name} (${kind}${unfit === undefined ? "" : `; ${unfit.first}`})`,
      ),
      ...unfit.map(([name, why]) => `${name}, which ${why}`),
    ].join(", ");
    throw new ColumnUnknown(
      `no numeric feature to train on: found ${found || "no feature at all"}`,
      { file },
      'text needs a tokenizer: Loader(…, tokenizer="/path/of/tokenizer.json")',
    );
  }
  const names = numeric.map((field) => field.name).filter((name) => !own.includes(name));
  if (names.length === 0) {
    throw new ColumnUnknown(
      `no column to train on but ${own.join(", ")}, which the loader makes itself`,
      { file },
      "give the field another name",
    );
  }
  const ids = numeric.find(({ name }) => name === IDS);
  // One id a record needs no mask: none is padded.
  return ids !== undefined && !isScalar(ids) && !names.includes(MASK) ? [...names, MASK] : names;
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
