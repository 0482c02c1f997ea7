/**
 * Sample: the members of one WebDataset sample into columns, and as values for eyes.
 *
 * Contract: what a part is, the end of its name says (`PART`, docs/reference/formats.md); the sample's key is the column
 * `__key__`. Nothing is unpickled: a `.pt` or `.pkl` is bytes.
 *
 * @example
 * decodeSample(sample, bytes, fields);
 */
import { parseJson } from "../../base/exact-json.ts";
import type { Value } from "../../base/json.ts";
import { RecordMalformed } from "../errors.ts";
import { jsonColumns } from "../json-value.ts";
import { nested, numbersAt } from "../mds/sample.ts";
import type { RecordFields } from "../record-fields.ts";
import { readNpy, readNpz, rowMajor } from "./npy.ts";

export interface Part {
  part: string;
  /** Data is bytes [from, to) of the shard. */
  from: number;
  to: number;
}

export interface Sample {
  key: string;
  /** First header of its first member, and the end of its last one's data, padded. */
  begin: number;
  end: number;
  parts: Part[];
}

type Form = "json" | "npy" | "npz" | "integer" | "text" | "bytes";

const FORMS: ReadonlyMap<string, Form> = new Map<string, Form>([
  ["json", "json"],
  ["jsn", "json"],
  ["npy", "npy"],
  ["npz", "npz"],
  ["cls", "integer"],
  ["cls2", "integer"],
  ["class", "integer"],
  ["count", "integer"],
  ["index", "integer"],
  ["inx", "integer"],
  ["id", "integer"],
  ["txt", "text"],
  ["text", "text"],
  ["transcript", "text"],
]);

function formOf(part: string): Form {
  return FORMS.get(part) ?? FORMS.get(part.slice(part.lastIndexOf(".") + 1)) ?? "bytes";
}

/** Column of a part that is not several: an array's is its name alone, so that it matches the column of other formats. */
function columnOf(part: string, form: Form): string {
  return form === "npy" && part.length > ".npy".length ? part.slice(0, -".npy".length) : part;
}

/** `bytes[0]` is byte `offset` of the shard. Throws what is wrong with the sample. */
export function decodeSample(sample: Sample, bytes: Uint8Array, offset: number, fields: RecordFields): void {
  checkParts(sample);
  if (fields.wants("__key__")) fields.bytes("__key__", Buffer.from(sample.key));
  for (const { part, from, to } of sample.parts) {
    const form = formOf(part);
    if (form !== "json" && form !== "npz" && !fields.wants(columnOf(part, form))) continue;
    if ((form === "json" || form === "npz") && !fields.wantsSome(part)) continue;
    try {
      decodePart(form, part, bytes, from - offset, to - offset, fields);
    } catch (error) {
      // What a column cannot hold, or what the bytes are not: the latter come as plain errors.
      if (!(error instanceof Error) || (error.constructor !== Error && !isForeign(error))) throw error;
      throw new RecordMalformed(
        `part ${JSON.stringify(part)} of sample ${JSON.stringify(sample.key)}: ${error.message}`,
        {},
        undefined,
        error,
      );
    }
  }
}

/** Errors of JSON, UTF-8 and zlib. */
function isForeign(error: Error): boolean {
  return error instanceof SyntaxError || error instanceof TypeError || error instanceof RangeError || "errno" in error;
}

function decodePart(form: Form, part: string, bytes: Uint8Array, from: number, to: number, fields: RecordFields): void {
  if (form === "npy") return npyColumn(columnOf(part, form), bytes, from, to, fields);
  const own = bytes.subarray(from, to);
  switch (form) {
    case "json":
      return jsonColumns(part, parseJson(utf8(own)), fields);
    case "npz":
      for (const [name, npy] of readNpz(own.slice(), (array) => fields.wants(`${part}.${array}`))) {
        npyColumn(`${part}.${name}`, npy, 0, npy.length, fields);
      }
      return;
    case "integer": {
      const text = Buffer.from(own).toString("latin1");
      // A class may be a name, too.
      if (/^\s*[-+]?\d+\s*$/.test(text)) return fields.list(part, "int64", [integer(text)], true);
      return fields.bytes(part, own, true);
    }
    case "text":
    case "bytes":
      return fields.bytes(part, own);
  }
}

function npyColumn(name: string, bytes: Uint8Array, from: number, to: number, fields: RecordFields): void {
  const array = readNpy(bytes, from, to);
  if (array === undefined) return;
  const how = { big: array.big, loose: true, list: array.shape.length > 0 };
  if (!array.fortran) return fields.numbers(name, array.type, bytes, from + array.at, array.count, how);
  const { bytes: ordered, at } = rowMajor(bytes.subarray(from, to), array);
  fields.numbers(name, array.type, ordered, at, array.count, how);
}

/** Values for eyes: text and JSON as text, arrays as nested lists, the rest as bytes. `bytes` are the sample's own. */
export function showSample(sample: Sample, bytes: Uint8Array): { readonly [part: string]: Value } {
  const values: [string, Value][] = [["__key__", sample.key]];
  for (const { part, from, to } of sample.parts) {
    const own = bytes.subarray(from - sample.begin, to - sample.begin);
    values.push([part, showPart(formOf(part), own)]);
  }
  return Object.fromEntries(values);
}

function showPart(form: Form, own: Uint8Array): Value {
  try {
    if (form === "npy") return showNpy(own);
    if (form === "npz") {
      return Object.fromEntries(readNpz(own, () => true).map(([name, npy]) => [name, showNpy(npy)]));
    }
    if (form === "bytes") return own;
    const text = utf8(own);
    return form === "integer" && /^\s*[-+]?\d+\s*$/.test(text) ? integer(text) : text;
  } catch {
    return own;
  }
}

function showNpy(own: Uint8Array): Value {
  const array = readNpy(own);
  if (array === undefined) return own;
  const { bytes, at } = rowMajor(own, array);
  return nested(numbersAt(array.type, bytes, at, array.count, array.big), array.shape);
}

function integer(text: string): number | bigint {
  const value = Number(text);
  return Number.isSafeInteger(value) ? value : BigInt(text.trim().replace(/^\+/, ""));
}

const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

function utf8(own: Uint8Array): string {
  // A copy: TextDecoder refuses shared memory.
  return decoder.decode(own.slice());
}

/** Members that are compared one by one. */
const FEW = 8;

function checkParts({ key, parts }: Sample): void {
  const all = parts.map(({ part }) => columnOf(part, formOf(part)));
  if (all.length <= FEW && all.every((name, i) => all.indexOf(name) === i)) return;
  const names = new Set<string>();
  for (const [i, name] of all.entries()) {
    if (names.has(name)) {
      throw new RecordMalformed(
        `sample ${JSON.stringify(key)} has two members ${JSON.stringify(parts[i]!.part)}`,
        {},
        "write each part of a sample once (names differ by more than their case)",
      );
    }
    names.add(name);
  }
}
