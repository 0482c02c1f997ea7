/**
 * JSON in two special forms:
 * `canonicalJson`: RFC 8785 (keys sorted by UTF-16 units, no spaces), the input of fingerprints.
 * `valueJson`: record values for `cat`: integers beyond 2^53 as strings, bytes as {"b64": …}, NaN and infinities
 * as {"float": "NaN"}, so that any JSON reader gets the exact value.
 *
 * @example
 * canonicalJson({ b: 1, a: [true] }); // '{"a":[true],"b":1}'
 * valueJson({ id: [9007199254740993n] }); // '{"id":["9007199254740993"]}'
 */

export type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json };

/** RFC 8785. Throws on numbers that JSON cannot hold and on lone surrogates (RFC 8785 §3.2.2.2). */
export function canonicalJson(value: Json): string {
  if (typeof value === "number" && !Number.isFinite(value)) {
    throw new TypeError(`canonical JSON cannot hold ${value}`);
  }
  if (typeof value === "string" && /\p{Surrogate}/u.test(value)) {
    throw new TypeError("canonical JSON cannot hold a lone surrogate");
  }
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  if (Array.isArray(value)) return `[${(value as readonly Json[]).map(canonicalJson).join(",")}]`;
  const object = value as { readonly [key: string]: Json };
  // The default sort compares UTF-16 code units, which is what RFC 8785 asks for.
  const members = Object.keys(object)
    .sort()
    .map((key) => `${canonicalJson(key)}:${canonicalJson(object[key]!)}`);
  return `{${members.join(",")}}`;
}

/** A value of a record, as the formats decode it. */
export type Value =
  | null
  | boolean
  | number
  | bigint
  | string
  | Uint8Array
  | readonly Value[]
  | { readonly [name: string]: Value };

export function valueJson(value: Value): string {
  return JSON.stringify(plainValue(value));
}

/** The same value with nothing left that JSON cannot hold exactly. */
export function plainValue(value: Value): Json {
  if (typeof value === "bigint") {
    return value >= -MAX_SAFE && value <= MAX_SAFE ? Number(value) : value.toString();
  }
  if (typeof value === "number") return Number.isFinite(value) ? value : { float: String(value) };
  if (value instanceof Uint8Array) {
    return { b64: Buffer.from(value.buffer, value.byteOffset, value.byteLength).toString("base64") };
  }
  if (value === null || typeof value !== "object") return value;
  if (Array.isArray(value)) return (value as readonly Value[]).map(plainValue);
  const entries = Object.entries(value as { readonly [name: string]: Value });
  return Object.fromEntries(entries.map(([name, member]) => [name, plainValue(member)]));
}

const MAX_SAFE = BigInt(Number.MAX_SAFE_INTEGER);
