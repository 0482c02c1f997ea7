/**
 * Columns of rows that are made of pieces of records (`sample_rule` "split" and "pack"): token ids, all lists that are as long as
 * they are, and what says where a packed row's documents end.
 *
 * @example
 * const columns = pieceColumns(schema, view, "pack", "input_ids", [], file);
 */
import type { PieceRule } from "../dataset/pack.ts";
import { isScalar, type Field, type Schema } from "../formats/types.ts";
import { deliver, IDS, MASK, storageOf, VALUE_BYTES, type DeliveredColumn, type ViewRequest } from "./delivered.ts";
import { ColumnUnknown } from "./errors.ts";

/** Tokens of each document of a packed row; the client makes positions and borders of it. */
export const DOCUMENTS = "document_lengths";
/** The "feature" of that column: no field of a record can have this name. */
export const DOCUMENTS_FEATURE = "\0documents";
/** What the client makes of a packed row. */
const MADE = ["position_ids", "cu_seqlens", "max_seqlen", DOCUMENTS];

/** The field of ids in data without text. */
export function tokensField(schema: Schema, file: string): Field {
  const lists = schema.fields.filter(({ kind }) => kind === "int64");
  const named = lists.find(({ name }) => name === IDS);
  const field = named ?? (lists.length === 1 ? lists[0] : undefined);
  if (field !== undefined) return field;
  const found = schema.fields.map(({ name, kind }) => `${name} (${kind})`).join(", ") || "none";
  throw new ColumnUnknown(
    `rows of pieces are cut out of token ids, and the data has no ${IDS}: found ${found}`,
    { file },
    "text needs a tokenizer; name the column of ids input_ids",
  );
}

/** `tokens`: the field that is counted; `made`: what is made of text, none of stored ids. */
export function pieceColumns(
  schema: Schema,
  view: ViewRequest,
  rule: PieceRule,
  tokens: string,
  made: readonly string[],
  file: string,
): DeliveredColumn[] {
  const { maxLength } = view;
  const tokenized = made.length > 0;
  const ids = schema.fields.find(({ name }) => name === tokens)!;
  const list = (name: string, storage: "i32" | "i64" | "f32" | "length"): DeliveredColumn => ({
    name,
    feature: name === MASK ? tokens : name === IDS && tokenized ? tokens : name,
    storage,
    width: maxLength,
    scalar: false,
    dtype: storage === "f32" ? "float32" : "int64",
    bytes: storage === "length" ? VALUE_BYTES.length : maxLength * VALUE_BYTES[storage],
  });
  const isAlike = (field: Field): boolean => !tokenized && (field === ids || alike(field, ids));
  // `cu_seqlens` and its like stand in data that was packed before: the loader makes its own.
  const own = [...(rule === "pack" ? MADE : []), ...(view.own ?? [])];
  const names =
    view.columns ?? (tokenized ? made : defaults(schema, (field) => isAlike(field) && !own.includes(field.name)));
  const taken = rule === "pack" ? names.find((name) => MADE.includes(name)) : undefined;
  if (taken !== undefined) {
    throw new ColumnUnknown(`column ${taken} is made of packed rows themselves`, { file }, "leave it out of columns");
  }
  return names.map((name) => {
    const field = schema.fields.find((candidate) => candidate.name === name);
    if (name === MASK) return maskOf(field, list(MASK, "length"), file);
    if (made.includes(name)) return list(name, "i32");
    if (field !== undefined && field.kind !== "bytes" && isAlike(field)) {
      // A mask that is not that of padding: as what it is.
      return list(name, field.kind === "float" ? "f32" : storageOf(field, true) === "i64" ? "i64" : "i32");
    }
    const scalar = field !== undefined && field.kind !== "bytes" && isScalar(field);
    if (field === undefined || field.kind === "bytes" || (scalar && rule === "split")) {
      return deliver(
        name,
        schema,
        schema.fields.filter(({ kind }) => kind !== "bytes"),
        view,
        file,
      );
    }
    throw new ColumnUnknown(
      `column ${name} cannot be ${rule === "pack" ? "packed" : "split"} beside ${tokenized ? "the text " : ""}${tokens}: ` +
        reasonOf(scalar, tokenized),
      { file },
      alongside(rule, tokenized),
    );
  });
}

/** The column that tells the documents of a row apart; `most`: of one row. */
export function documentsColumn(most: number): DeliveredColumn {
  const width = Math.max(most, 1);
  return {
    name: DOCUMENTS,
    feature: DOCUMENTS_FEATURE,
    storage: "i32",
    width,
    scalar: false,
    dtype: "int64",
    bytes: width * VALUE_BYTES.i32,
  };
}

function defaults(schema: Schema, isAlike: (field: Field) => boolean): string[] {
  const lists = schema.fields.filter((field) => field.kind !== "bytes" && field.name !== MASK && isAlike(field));
  return [...lists.map(({ name }) => name), MASK];
}

function reasonOf(scalar: boolean, tokenized: boolean): string {
  if (scalar) return "it has one value a record";
  // Even a list with a value for each token of one tokenizer is one of words or letters to another.
  return tokenized
    ? "nothing tells which token of the text each value of its lists belongs to"
    : "its lists are not as long as those of the tokens";
}

function alongside(rule: PieceRule, tokenized: boolean): string {
  const lists = tokenized ? [] : ["lists of numbers with a value for each token"];
  const kinds = [...lists, ...(rule === "split" ? ["columns of one value a record"] : [])];
  const kept = kinds.length === 0 ? "beside packed text nothing goes along" : `${kinds.join(", and ")} go along`;
  return `leave it out of columns; ${kept}`;
}

/** As far as the index can tell; each record is looked at when it is decoded. */
function alike(field: Field, ids: Field): boolean {
  return (
    field.values === ids.values &&
    field.present === ids.present &&
    field.minLength === ids.minLength &&
    field.maxLength === ids.maxLength
  );
}

/** 1 on the tokens of a row. One of the data that says 0 of some values would say that they are padding. */
function maskOf(field: Field | undefined, column: DeliveredColumn, file: string): DeliveredColumn {
  if (field === undefined || (field.min === "1" && field.max === "1")) return column;
  throw new ColumnUnknown(
    `the data has an ${MASK} of its own that is not all ones: its padding would be taken for tokens`,
    { file },
    "write the records without padding, or leave sample_rule out",
  );
}
