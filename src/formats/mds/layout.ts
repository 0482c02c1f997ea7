/**
 * Layout of one MDS shard: its header, the names, encodings and sizes of its columns.
 *
 * ```
 * │ u32 samples n │ u32 offsets[n + 1] │ JSON: columns │ sample 0 │ sample 1 … │      little-endian, offsets from the file's beginning
 * sample: │ u32 size of each column of no fixed size │ the columns' bytes, in the order of their names │
 * ```
 *
 * @example
 * const layout = parseLayout(bytes.subarray(4 + 4 * (n + 1), offsets[0]), where);
 */
import { numberBytes } from "../values.ts";
import type { NumberType } from "../values.ts";
import { ShardInvalid, Unsupported } from "../errors.ts";
import type { Where } from "../../base/errors.ts";

/** How the bytes of a column become values. */
export type Encoding =
  | { form: "number"; type: NumberType }
  | { form: "ndarray"; type: NumberType | undefined; shape: readonly number[] | undefined }
  | { form: "text" | "bytes" | "json" };

export interface MdsColumn {
  name: string;
  /** As MDS names it. */
  encoding: string;
  /** Bytes of each value; null: each sample tells. */
  size: number | null;
}

const REMEDY = "the shard is damaged: copy or write it again";

/** Types as NumPy names them. */
export const TYPES: Readonly<Record<string, NumberType>> = {
  uint8: "u1",
  int8: "i1",
  uint16: "u2",
  int16: "i2",
  float16: "f2",
  uint32: "u4",
  int32: "i4",
  float32: "f4",
  uint64: "u8",
  int64: "i8",
  float64: "f8",
};

const BYTES = new Set(["bytes", "jpeg", "png", "pil"]);
const TEXT = new Set(["str", "str_int", "str_float", "str_decimal"]);

/** Undefined: not one that we know. */
export function parseEncoding(name: string): Encoding | undefined {
  if (name === "int") return { form: "number", type: "i8" };
  const type = TYPES[name];
  if (type !== undefined) return { form: "number", type };
  if (TEXT.has(name)) return { form: "text" };
  if (BYTES.has(name)) return { form: "bytes" };
  if (name === "json") return { form: "json" };
  const array = /^ndarray(?::(\w*)(?::([1-9]\d*(?:,[1-9]\d*)*))?)?$/.exec(name);
  if (array === null) return undefined;
  const [, of, shape] = array;
  if (of !== undefined && of !== "" && TYPES[of] === undefined) return undefined;
  return { form: "ndarray", type: TYPES[of ?? ""], shape: shape?.split(",").map(Number) };
}

/** Bytes of each value of an encoding; null where they differ. */
function fixedSize(encoding: Encoding): number | null {
  if (encoding.form === "number") return numberBytes(encoding.type);
  if (encoding.form !== "ndarray" || encoding.type === undefined || encoding.shape === undefined) return null;
  return encoding.shape.reduce((product, dimension) => product * dimension, numberBytes(encoding.type));
}

/** `json`: what lies between the offsets and the first sample. */
export function parseLayout(json: Uint8Array, where: Where): MdsColumn[] {
  let config: Record<string, unknown>;
  try {
    config = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(json)) as Record<string, unknown>;
  } catch (error) {
    throw new ShardInvalid("the header's description of the columns is no JSON", where, REMEDY, error);
  }
  if (config === null || typeof config !== "object") {
    throw new ShardInvalid("the header describes no columns", where, REMEDY);
  }
  if (config["format"] !== "mds" || config["version"] !== 2) {
    throw new Unsupported(
      `format ${JSON.stringify(config["format"])} version ${JSON.stringify(config["version"])}, expected "mds" version 2`,
      where,
      "write the shard with MosaicML Streaming's MDSWriter",
    );
  }
  const { column_names: names, column_encodings: encodings, column_sizes: sizes } = config;
  if (!isList(names) || !isList(encodings) || !isList(sizes)) {
    throw new ShardInvalid("the header lacks column_names, column_encodings or column_sizes", where, REMEDY);
  }
  if (names.length !== encodings.length || names.length !== sizes.length || new Set(names).size !== names.length) {
    throw new ShardInvalid(
      `the header has ${names.length} column names, ${encodings.length} encodings and ${sizes.length} sizes, expected as many of each, with different names`,
      where,
      REMEDY,
    );
  }
  return names.map((name, i) => columnOf(name, encodings[i], sizes[i], where));
}

function columnOf(name: unknown, written: unknown, size: unknown, where: Where): MdsColumn {
  if (typeof name !== "string" || typeof written !== "string") {
    throw new ShardInvalid("a column's name or encoding is no text", where, REMEDY);
  }
  const column = `column ${JSON.stringify(name)} has encoding ${JSON.stringify(written)}`;
  if (written === "pkl") {
    throw new Unsupported(
      `${column}: a pickle runs code of whoever wrote it, and is not read`,
      where,
      "write the column as json, str, bytes or ndarray",
    );
  }
  const encoding = parseEncoding(written);
  if (encoding === undefined) {
    throw new Unsupported(`${column}, which is not known`, where, "write it as one of docs/reference/formats.md");
  }
  const expected = fixedSize(encoding);
  if (size !== expected) {
    throw new ShardInvalid(`${column} and size ${JSON.stringify(size)}, expected ${expected}`, where, REMEDY);
  }
  return { name, encoding: written, size: expected };
}

function isList(value: unknown): value is unknown[] {
  return Array.isArray(value);
}
