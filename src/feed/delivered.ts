/**
 * Delivered: one column of a batch, of what the index saw of its field. The narrowest exact storage is chosen: token ids that fit
 * 32 bits are stored as i32, a mask of ones and then zeros as its length; the decoder checks that it holds.
 */
import { isScalar, type Field, type Schema, type StorageKind } from "../formats/types.ts";
import type { LastRule } from "../order/types.ts";
import { ColumnUnknown } from "./errors.ts";
import type { TextRequest } from "./text.ts";

/** What a user asks for; part of the view fingerprint. */
export interface ViewRequest {
  columns: readonly string[] | undefined;
  maxLength: number;
  padId: number;
  strict: boolean;
  /** Names of columns that the loader makes itself: without `columns`, fields of these names are left out. @default none */
  own?: readonly string[];
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
  /** Every record holds one value, and no list: delivered as [rows] instead of [rows, width]. */
  scalar: boolean;
  dtype: "int64" | "float32";
  /** Bytes a row in the slot. */
  bytes: number;
}

/** Derived from the length of `input_ids` where the data has none. */
export const MASK = "attention_mask";
export const IDS = "input_ids";
export const VALUE_BYTES = { i32: 4, i64: 8, f32: 4, prefix: 4, length: 4 } as const;

/** Columns that the client adds to batches whose last rows are padding. */
export function ownColumns(last: LastRule): readonly string[] {
  return last === "pad" ? ["valid"] : [];
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
    const what = field.json === true ? "objects or lists of them" : "text or bytes";
    throw new ColumnUnknown(
      `column ${name} holds ${what}, which cannot be delivered as numbers`,
      { file },
      'leave it out of columns; text and conversations are delivered as ids with Loader(…, tokenizer="/path/of/tokenizer.json")',
    );
  }
  const scalar = isScalar(field);
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
