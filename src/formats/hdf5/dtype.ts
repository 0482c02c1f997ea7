/**
 * Dtype: how values of an HDF5 type lie in memory, and which kind of column they become.
 *
 * @example
 * readingOf(info); // { how: "int", size: 4, signed: true, bool: false, values: 1 } or undefined: no column
 */
import type { ValueKind } from "../types.ts";

/** A type as h5wasm describes it; `size` is that in memory. */
export interface Dtype {
  /** H5T_class_t. */
  type: number;
  size: number;
  signed: boolean;
  /** A string of any length. */
  vlen: boolean;
  littleEndian: boolean;
  /** Of strings: 0 ends at the first NUL, 1 padded with NULs, 2 with spaces. */
  strpad?: number;
  vlen_type?: Dtype;
  array_type?: Dtype & { shape: number[]; total_size: number };
  enum_type?: { type: number; members: Record<string, number> };
}

const CLASS = { integer: 0, float: 1, string: 3, enum: 8, vlen: 9, array: 10 } as const;
const CLASS_NAMES = [
  "integer",
  "float",
  "time",
  "string",
  "bitfield",
  "opaque",
  "compound",
  "reference",
  "enum",
  "list",
  "array",
  "complex",
];

/** Numbers of one size. */
export interface NumberReading {
  how: "int" | "float";
  /** Bytes of a value. */
  size: number;
  signed: boolean;
  /** An enum of FALSE and TRUE. */
  bool: boolean;
  /** The upper half of a float32, not a float16. */
  bfloat16?: true;
}

export type Reading =
  | (NumberReading & { values: number })
  /** Strings of `size` bytes each. */
  | { how: "fixed"; size: number; strpad: number }
  /** char pointers. */
  | { how: "text" }
  /** Pairs of length and pointer. */
  | { how: "list"; item: NumberReading };

/** `values` of one element of the dataset: more than one where it is an array. Undefined: it cannot be a column. */
export function readingOf(dtype: Dtype): Reading | undefined {
  const number = numberOf(dtype);
  if (number !== undefined) return { ...number, values: 1 };
  switch (dtype.type) {
    case CLASS.string:
      return dtype.vlen ? { how: "text" } : { how: "fixed", size: dtype.size, strpad: dtype.strpad ?? 0 };
    case CLASS.vlen: {
      const item = dtype.vlen_type === undefined ? undefined : numberOf(dtype.vlen_type);
      return item === undefined ? undefined : { how: "list", item };
    }
    case CLASS.array: {
      const item = dtype.array_type === undefined ? undefined : numberOf(dtype.array_type);
      if (item === undefined) return undefined;
      return { ...item, values: dtype.array_type!.shape.reduce((product, n) => product * n, 1) };
    }
    default:
      return undefined;
  }
}

/** The same for numbers that are stored as bfloat16. */
export function asBfloat16(reading: Reading): Reading {
  return reading.how === "list"
    ? { how: "list", item: { ...reading.item, bfloat16: true } }
    : ({ ...reading, bfloat16: true } as Reading);
}

export function kindOf(reading: Reading): ValueKind {
  const how = reading.how === "list" ? reading.item.how : reading.how;
  return how === "int" ? "int64" : how === "float" ? "float" : "bytes";
}

/** For messages. */
export function dtypeName({ type, size }: Dtype): string {
  const name = CLASS_NAMES[type] ?? `type of class ${type}`;
  return type <= CLASS.float ? `${name} of ${size} bytes` : name;
}

function numberOf({ type, size, signed, enum_type: members }: Dtype): NumberReading | undefined {
  const int = type === CLASS.integer || (type === CLASS.enum && members?.type === CLASS.integer);
  if (int) {
    if (size !== 1 && size !== 2 && size !== 4 && size !== 8) return undefined;
    return { how: "int", size, signed, bool: type === CLASS.enum && isBool(members!.members) };
  }
  if (type !== CLASS.float || (size !== 2 && size !== 4 && size !== 8)) return undefined;
  return { how: "float", size, signed: true, bool: false };
}

function isBool(members: Record<string, number>): boolean {
  return Object.keys(members).length === 2 && members["FALSE"] === 0 && members["TRUE"] === 1;
}
