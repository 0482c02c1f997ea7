/**
 * Sample: the bytes of one MDS sample into columns, and as values for eyes.
 *
 * @example
 * const decoder = new SampleDecoder(columns);
 * const end = decoder.measure(bytes, at, bytes.length); // where the sample ends, by its own sizes; -1: behind `to`
 * decoder.decode(bytes, at, fields);
 */
import type { AthanorError } from "../../base/errors.ts";
import { parseJson, plainJson, type Parsed } from "../../base/exact-json.ts";
import type { Value } from "../../base/json.ts";
import { RecordMalformed } from "../errors.ts";
import { jsonColumns } from "../json-value.ts";
import { FieldKinds, RecordFields } from "../record-fields.ts";
import type { Column } from "../types.ts";
import { numberBytes, type NumberType } from "../values.ts";
import { parseEncoding, TYPES, type Encoding, type MdsColumn } from "./layout.ts";

/** Codes of types in arrays that tell their own. */
const CODES: Readonly<Record<number, NumberType>> = {
  8: TYPES["uint8"]!,
  9: TYPES["int8"]!,
  16: TYPES["uint16"]!,
  17: TYPES["int16"]!,
  18: TYPES["float16"]!,
  32: TYPES["uint32"]!,
  33: TYPES["int32"]!,
  34: TYPES["float32"]!,
  64: TYPES["uint64"]!,
  65: TYPES["int64"]!,
  66: TYPES["float64"]!,
};

interface Coder {
  name: string;
  size: number | null;
  encoding: Encoding;
}

interface ArrayPlace {
  type: NumberType;
  shape: readonly number[];
  /** Of the first value, and how many there are. */
  at: number;
  count: number;
}

export class SampleDecoder {
  private readonly coders: readonly Coder[];
  private readonly headBytes: number;
  private readonly fixedBytes: number;
  /** Sizes of the sample in work. */
  private readonly sizes: Uint32Array;

  constructor(columns: readonly MdsColumn[]) {
    this.coders = columns.map(({ name, encoding, size }) => ({ name, size, encoding: parseEncoding(encoding)! }));
    this.headBytes = 4 * columns.filter(({ size }) => size === null).length;
    this.fixedBytes = columns.reduce((sum, { size }) => sum + (size ?? 0), 0);
    this.sizes = new Uint32Array(columns.length);
  }

  /** Where the sample at `at` ends by its own sizes; −1 if not even those lie before `to`. May be behind `to`. */
  measure(bytes: Uint8Array, at: number, to: number): number {
    if (at + this.headBytes > to) return -1;
    let head = at;
    let end = at + this.headBytes + this.fixedBytes;
    for (let i = 0; i < this.coders.length; i++) {
      const { size } = this.coders[i]!;
      if (size !== null) {
        this.sizes[i] = size;
        continue;
      }
      const own = u32(bytes, head);
      this.sizes[i] = own;
      head += 4;
      end += own;
    }
    return end;
  }

  /** The sample that was measured last, which lies inside `bytes`. Throws what is wrong with it. */
  decode(bytes: Uint8Array, at: number, fields: RecordFields): void {
    let from = at + this.headBytes;
    for (let i = 0; i < this.coders.length; i++) {
      const size = this.sizes[i]!;
      const coder = this.coders[i]!;
      const { name, encoding } = coder;
      const wanted = encoding.form === "json" ? fields.wantsSome(name) : fields.wants(name);
      if (wanted) {
        if (encoding.form === "number") fields.numbers(name, encoding.type, bytes, from, 1);
        else if (encoding.form === "ndarray") {
          const { type, shape, at: first, count } = arrayAt(coder, encoding, bytes, from, size);
          const list = encoding.shape === undefined && shape.length > 0;
          fields.numbers(name, type, bytes, first, count, { loose: encoding.type === undefined, list });
        } else if (encoding.form === "json") jsonColumns(name, jsonAt(coder, bytes, from, size), fields);
        else fields.bytes(name, bytes.subarray(from, from + size));
      }
      from += size;
    }
  }

  /** Values of a sample of its own bytes: text as strings, arrays as nested lists. */
  show(sample: Uint8Array): { readonly [field: string]: Value } {
    this.measure(sample, 0, sample.length);
    let from = this.headBytes;
    return Object.fromEntries(
      this.coders.map((coder, i) => {
        const at = from;
        from += this.sizes[i]!;
        return [coder.name, valueOf(coder, sample, at, this.sizes[i]!)];
      }),
    );
  }
}

function valueOf(coder: Coder, bytes: Uint8Array, at: number, size: number): Value {
  const { encoding } = coder;
  switch (encoding.form) {
    case "number":
      return numbersAt(encoding.type, bytes, at, 1)[0]!;
    case "ndarray": {
      const { type, shape, at: first, count } = arrayAt(coder, encoding, bytes, at, size);
      return nested(numbersAt(type, bytes, first, count), shape);
    }
    case "json":
      return plainJson(jsonAt(coder, bytes, at, size));
    case "text":
      return Buffer.from(bytes.subarray(at, at + size)).toString();
    case "bytes":
      return bytes.subarray(at, at + size);
  }
}

/** Numbers one by one, floats and integers as they are. */
export function numbersAt(type: NumberType, bytes: Uint8Array, at: number, count: number, big = false): Value[] {
  const fields = new RecordFields(new FieldKinds(), undefined);
  fields.numbers("", type, bytes, at, count, { big });
  fields.end();
  const { values } = fields.finish().fields.get("") as Column;
  return Array.from<number | bigint>(values);
}

/** A flat list in the shape of its array, last dimension innermost. */
export function nested(list: Value[], shape: readonly number[]): Value {
  // Of an array without values the shape may say anything.
  if (shape.reduce((product, length) => product * (length || 1), 1) > Math.max(list.length, 65536)) return list;
  let at = 0;
  const build = (dimension: number): Value => {
    if (dimension === shape.length) return list[at++] ?? null;
    return Array.from({ length: shape[dimension]! }, () => build(dimension + 1));
  };
  return build(0);
}

function jsonAt({ name }: Coder, bytes: Uint8Array, at: number, size: number): Parsed {
  try {
    return parseJson(utf8(bytes, at, size));
  } catch (error) {
    throw malformed(`column ${JSON.stringify(name)} holds no JSON: ${(error as Error).message}`, error);
  }
}

const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

function utf8(bytes: Uint8Array, at: number, size: number): string {
  // A copy: TextDecoder refuses shared memory.
  return decoder.decode(bytes.slice(at, at + size));
}

function arrayAt(
  { name }: Coder,
  { type: fixed, shape: fixedShape }: Encoding & { form: "ndarray" },
  bytes: Uint8Array,
  from: number,
  size: number,
): ArrayPlace {
  const column = `column ${JSON.stringify(name)}`;
  const end = from + size;
  let at = from;
  let type = fixed;
  if (type === undefined) {
    type = at < end ? CODES[bytes[at]!] : undefined;
    if (type === undefined) throw malformed(`${column}: array of ${at < end ? `type code ${bytes[at]}` : "0 bytes"}`);
    at++;
  }
  const itemBytes = numberBytes(type);
  let shape = fixedShape;
  if (shape === undefined) {
    if (at >= end) throw malformed(`${column}: the array ends before its shape`);
    const dimensions = bytes[at]! >> 2;
    const width = 1 << (bytes[at]! & 3);
    at++;
    if (at + dimensions * width > end) throw malformed(`${column}: the array ends inside its shape`);
    shape = Array.from({ length: dimensions }, (_, i) => unsigned(bytes, at + i * width, width));
    at += dimensions * width;
  }
  const count = shape.reduce((product, dimension) => product * dimension, 1);
  if (count * itemBytes !== end - at) {
    throw malformed(
      `${column}: an array of shape ${shape.join("×")} takes ${count * itemBytes} bytes, found ${end - at}`,
    );
  }
  return { type, shape, at, count };
}

function unsigned(bytes: Uint8Array, at: number, width: number): number {
  let value = 0;
  for (let i = width - 1; i >= 0; i--) value = value * 256 + bytes[at + i]!;
  return value;
}

export function u32(bytes: Uint8Array, at: number): number {
  return (bytes[at]! | (bytes[at + 1]! << 8) | (bytes[at + 2]! << 16) | (bytes[at + 3]! << 24)) >>> 0;
}

/** Place is added by whoever knows it. */
function malformed(what: string, cause?: unknown): AthanorError {
  return new RecordMalformed(what, {}, undefined, cause);
}
