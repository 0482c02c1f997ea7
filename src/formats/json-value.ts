/**
 * JSON value: which columns a JSON value makes, for formats that hold JSON inside their records.
 *
 * @example
 * jsonColumns("m", parseJson('{"ids": [1, 2], "t": "x"}'), fields); // columns m.ids (int64) and m.t (bytes)
 */
import { Written, jsonText, type Parsed } from "../base/exact-json.ts";
import type { RecordFields } from "./record-fields.ts";

/**
 * Puts a value into the columns it makes: numbers, booleans (0 and 1) and lists of them (nested ones flattened) into `name`, text as
 * bytes, members of an object into `name.key`, objects in it and lists of objects as JSON. Null, empty lists, and lists of text make none.
 */
export function jsonColumns(name: string, value: Parsed, fields: RecordFields): void {
  if (!(value instanceof Map)) return valueColumn(name, value, fields);
  for (const [key, member] of value) valueColumn(`${name}.${key}`, member, fields);
}

function valueColumn(name: string, value: Parsed, fields: RecordFields): void {
  if (!fields.wants(name)) return;
  if (typeof value === "string") return fields.bytes(name, Buffer.from(value.toWellFormed()), true);
  if (isNested(value)) return fields.json(name, jsonText(value));
  const list: (number | bigint)[] = [];
  const kind = flatten(value, list);
  if (kind === "int64" || kind === "float") fields.list(name, kind, list, !Array.isArray(value));
}

/** An object, or a list of objects. */
function isNested(value: Parsed): boolean {
  return (
    value instanceof Map || (Array.isArray(value) && value.length > 0 && value.every((item) => item instanceof Map))
  );
}

/** Undefined: nothing, or no list of numbers. */
function flatten(value: Parsed, list: (number | bigint)[]): "int64" | "float" | "other" | undefined {
  if (value === null) return "other";
  switch (typeof value) {
    case "boolean":
      list.push(value ? 1 : 0);
      return "int64";
    case "number":
      list.push(value);
      return Number.isSafeInteger(value) && !Object.is(value, -0) ? "int64" : "float";
    case "bigint":
      list.push(value);
      return "int64";
    case "string":
      return "other";
  }
  if (value instanceof Written) {
    list.push(value.value);
    return "float";
  }
  if (value instanceof Map) return "other";
  let kind: "int64" | "float" | undefined;
  for (const item of value) {
    const one = flatten(item, list);
    if (one === "other") return one;
    if (one === "float" || kind === undefined) kind = one ?? kind;
  }
  return kind;
}
