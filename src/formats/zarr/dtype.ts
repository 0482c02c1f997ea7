/**
 * Data types of Zarr arrays, of version 2 (NumPy's strings) and 3 (names, or objects with a configuration), and their fill
 * values. What is decoded is little-endian.
 *
 * @example
 * dtypeV2(">i4"); // { type: { kind: "i", size: 4 }, big: true }
 */
import type { Json } from "../../base/json.ts";

/**
 * `i` and `u` integers, `f` floats, `bf` bfloat16, `b` bool, `S` bytes padded with NUL, `U` UTF-32 padded with NUL; `text` and
 * `bytes` have any length (size 0), `list` is a list of numbers in each element (size 0; `item`).
 */
export interface DataType {
  kind: "i" | "u" | "f" | "bf" | "b" | "S" | "U" | "text" | "bytes" | "list";
  /** Bytes of an element; 0: they differ. */
  size: number;
  item?: DataType;
}

const SIZES: Readonly<Record<string, readonly number[]>> = { i: [1, 2, 4, 8], u: [1, 2, 4, 8], f: [2, 4, 8], b: [1] };
/** Of one string; longer ones are no labels but damage. */
const LONGEST = 1 << 24;

/** NumPy's `<i4`, `|S8`, `>M8[ns]` … or a plain name (`int32`), as filters also have it. `O` is told by its filter. */
export function dtypeV2(name: unknown): { type: DataType; big: boolean } | undefined {
  if (typeof name !== "string") return undefined;
  const match = /^([<>|=]?)([iufbSUmM])(\d+)(\[\w+\])?$/.exec(name);
  if (match === null) {
    const type = dtypeV3(name);
    return type === undefined ? undefined : { type, big: false };
  }
  const big = match[1] === ">";
  const letter = match[2]!;
  const size = Number(match[3]);
  if (letter === "S" || letter === "U") {
    const bytes = letter === "U" ? size * 4 : size;
    return bytes > 0 && bytes <= LONGEST ? { type: { kind: letter, size: bytes }, big } : undefined;
  }
  // Times are counted in whole units.
  const kind = letter === "m" || letter === "M" ? "i" : (letter as "i" | "u" | "f" | "b");
  if ((letter === "m" || letter === "M") && size !== 8) return undefined;
  return SIZES[kind]!.includes(size) ? { type: { kind, size }, big } : undefined;
}

export function dtypeV3(data: Json | undefined): DataType | undefined {
  if (typeof data === "string") {
    const match = /^(int|uint|float)(8|16|32|64)$/.exec(data);
    if (match !== null) {
      const kind = match[1] === "int" ? "i" : match[1] === "uint" ? "u" : "f";
      const size = Number(match[2]) / 8;
      return SIZES[kind]!.includes(size) ? { kind, size } : undefined;
    }
    if (data === "bool") return { kind: "b", size: 1 };
    if (data === "bfloat16") return { kind: "bf", size: 2 };
    if (data === "string") return { kind: "text", size: 0 };
    if (data === "bytes" || data === "variable_length_bytes") return { kind: "bytes", size: 0 };
    return undefined;
  }
  if (typeof data !== "object" || data === null || Array.isArray(data)) return undefined;
  const { name, configuration } = data as { name?: Json; configuration?: { [key: string]: Json } };
  const size = Number(configuration?.["length_bytes"] ?? 0);
  const fits = Number.isInteger(size) && size > 0 && size <= LONGEST;
  switch (name) {
    case "fixed_length_utf32":
      return fits && size % 4 === 0 ? { kind: "U", size } : undefined;
    case "null_terminated_bytes":
      return fits ? { kind: "S", size } : undefined;
    case "numpy.datetime64":
    case "numpy.timedelta64":
      return { kind: "i", size: 8 };
    default:
      return dtypeV3(name);
  }
}

/** Whether a record's field of this type is a column of `bytes`. */
export function isText({ kind }: DataType): boolean {
  return kind === "S" || kind === "U" || kind === "text" || kind === "bytes";
}

/**
 * The bytes of one element that was never written. `exact`: the digits of an integer as they stand in the file (JSON would
 * round them). Null: the metadata leave it open. Undefined: not a value of this type.
 */
export function fillBytes(type: DataType, value: Json | undefined, exact?: string): Uint8Array | null | undefined {
  if (value === null || value === undefined) return null;
  const out = new Uint8Array(type.size);
  const view = new DataView(out.buffer);
  switch (type.kind) {
    case "b":
      if (typeof value !== "boolean" && value !== 0 && value !== 1) return undefined;
      out[0] = Number(value);
      return out;
    case "i":
    case "u":
      return integerBytes(type, value, exact);
    case "f":
    case "bf":
      return floatBytes(type, value, view, out);
    case "list":
      return new Uint8Array(0);
    default:
      return stringBytes(type, value);
  }
}

function integerBytes({ kind, size }: DataType, value: Json, exact: string | undefined): Uint8Array | undefined {
  const out = new Uint8Array(8);
  if (typeof value !== "number" && value !== "NaT") return undefined;
  if (typeof value === "number" && !Number.isInteger(value)) return undefined;
  const digits = value === "NaT" ? -(2n ** 63n) : BigInt(exact ?? value);
  const bits = BigInt(size * 8);
  const least = kind === "i" ? -(1n << (bits - 1n)) : 0n;
  const most = kind === "i" ? (1n << (bits - 1n)) - 1n : (1n << bits) - 1n;
  if (digits < least || digits > most) return undefined;
  new DataView(out.buffer).setBigUint64(0, BigInt.asUintN(64, digits), true);
  return out.slice(0, size);
}

function floatBytes(type: DataType, value: Json, view: DataView, out: Uint8Array): Uint8Array | undefined {
  if (typeof value === "string" && /^0x[0-9a-f]+$/i.test(value)) {
    const hex = value.slice(2);
    if (hex.length !== type.size * 2) return undefined;
    for (let i = 0; i < type.size; i++) out[type.size - 1 - i] = Number.parseInt(hex.slice(i * 2, i * 2 + 2), 16);
    return out;
  }
  const words: Readonly<Record<string, number>> = {
    NaN: Number.NaN,
    Infinity: Number.POSITIVE_INFINITY,
    "-Infinity": Number.NEGATIVE_INFINITY,
  };
  const number = typeof value === "number" ? value : typeof value === "string" ? words[value] : undefined;
  if (number === undefined) return undefined;
  if (type.kind === "bf") {
    view.setUint16(0, bits32(number) >>> 16, true);
  } else if (type.size === 2) view.setUint16(0, halfBits(number), true);
  else if (type.size === 4) view.setFloat32(0, number, true);
  else view.setFloat64(0, number, true);
  return out;
}

function bits32(number: number): number {
  return new Uint32Array(Float32Array.of(number).buffer)[0]!;
}

/** IEEE 754 half precision, rounded to even; written for one fill value. */
function halfBits(number: number): number {
  const sign = number < 0 || Object.is(number, -0) ? 0x8000 : 0;
  const size = Math.abs(number);
  if (Number.isNaN(number)) return 0x7e00;
  if (size >= 65_520) return sign | 0x7c00;
  const exponent = Math.max(-14, Math.floor(Math.log2(size || 2 ** -24)));
  const scaled = size / 2 ** (exponent - 10);
  const floor = Math.floor(scaled);
  const rest = scaled - floor;
  const mantissa = rest > 0.5 || (rest === 0.5 && floor % 2 === 1) ? floor + 1 : floor;
  // A mantissa that was rounded up to 2048 carries into the exponent by itself.
  return sign | (mantissa < 1024 ? mantissa : (exponent + 14) * 1024 + mantissa);
}

function stringBytes({ kind, size }: DataType, value: Json): Uint8Array | undefined {
  if (kind === "bytes" && Array.isArray(value)) return Uint8Array.from(value as readonly number[]);
  // Version 2 writes 0 for "no string".
  const text = value === 0 ? "" : value;
  if (typeof text !== "string") return undefined;
  if (kind === "text") return new TextEncoder().encode(text);
  if (kind === "bytes") return new Uint8Array(Buffer.from(text, "base64"));
  const out = new Uint8Array(size);
  if (kind === "S") {
    out.set(Buffer.from(text, "base64").subarray(0, size));
  } else {
    const view = new DataView(out.buffer);
    for (const [i, char] of Array.from(text)
      .slice(0, size / 4)
      .entries())
      view.setUint32(i * 4, char.codePointAt(0)!, true);
  }
  return out;
}
