/**
 * One tf.train.Example as JavaScript values: slow and exact, for `cat` and for finding the schema.
 * Source of the format: tensorflow/core/example/example.proto and feature.proto; protobuf wire encoding.
 *
 *   Example { Features features = 1 }   Features { map<string, Feature> feature = 1 }
 *   Feature { oneof kind { BytesList = 1, FloatList = 2, Int64List = 3 } }   each list { repeated value = 1 }
 *
 * Contract: a feature without a kind is null, an empty list is []. Of two features of one name the last wins. Throws
 * `PayloadFault` with the offset in the payload.
 *
 * @example
 * readExample(payload).get("input_ids"); // { kind: "int64", values: [1n, 2n] }
 */
import type { ValueKind } from "../types.ts";

export type FeatureList =
  | { kind: "int64"; values: bigint[] }
  | { kind: "float"; values: number[] }
  | { kind: "bytes"; values: Uint8Array[] };

export class PayloadFault extends Error {
  readonly offset: number;
  readonly sequenceExample: boolean;
  constructor(what: string, offset: number, sequenceExample = false) {
    super(what);
    this.offset = offset;
    this.sequenceExample = sequenceExample;
  }
}

const KINDS: readonly (ValueKind | undefined)[] = [undefined, "bytes", "float", "int64"];

export function readExample(payload: Uint8Array): Map<string, FeatureList | null> {
  const out = new Map<string, FeatureList | null>();
  for (const field of fields(payload, 0, payload.length)) {
    if (field.tag === 0x12)
      throw new PayloadFault("a tf.train.SequenceExample, expected tf.train.Example", field.at, true);
    if (field.tag !== 0x0a) continue;
    for (const entry of fields(payload, field.from, field.to)) if (entry.tag === 0x0a) readEntry(payload, entry, out);
  }
  return out;
}

function readEntry(payload: Uint8Array, entry: Span, out: Map<string, FeatureList | null>): void {
  let name = "";
  let value: Span | undefined;
  for (const part of fields(payload, entry.from, entry.to)) {
    if (part.tag === 0x0a) {
      try {
        name = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(payload.slice(part.from, part.to));
      } catch {
        throw new PayloadFault("the name of a feature is not UTF-8", part.from);
      }
    } else if (part.tag === 0x12) {
      if (value !== undefined) throw new PayloadFault("a map entry with two values", part.at);
      value = part;
    }
  }
  out.set(name, value === undefined ? null : readFeature(payload, value));
}

// The last kind wins; two lists of one kind are joined, as protobuf merges messages.
function readFeature(payload: Uint8Array, feature: Span): FeatureList | null {
  let list: FeatureList | undefined;
  for (const field of fields(payload, feature.from, feature.to)) {
    const kind = (field.tag & 7) === 2 ? KINDS[field.tag >>> 3] : undefined;
    if (kind === undefined) continue;
    if (list?.kind !== kind) list = { kind, values: [] } as FeatureList;
    readList(payload, field, list);
  }
  return list ?? null;
}

function readList(payload: Uint8Array, span: Span, list: FeatureList): void {
  const view = new DataView(payload.buffer, payload.byteOffset, payload.length);
  for (const { tag, from, to } of fields(payload, span.from, span.to)) {
    if (list.kind === "bytes") {
      if (tag === 0x0a) list.values.push(payload.slice(from, to));
    } else if (list.kind === "float") {
      if (tag !== 0x0a && tag !== 0x0d) continue;
      if ((to - from) % 4 !== 0) throw new PayloadFault("a packed float list whose bytes are no multiple of 4", from);
      for (let p = from; p < to; p += 4) list.values.push(view.getFloat32(p, true));
    } else if (tag === 0x0a || tag === 0x08) {
      for (let p = from; p < to;) {
        const { value, next } = varint(payload, p, to);
        list.values.push(BigInt.asIntN(64, value));
        p = next;
      }
    }
  }
}

/** One field: its tag at `at`, its value (content, for length-delimited ones) in [from, to). */
interface Span {
  tag: number;
  at: number;
  from: number;
  to: number;
}

function* fields(payload: Uint8Array, from: number, end: number): Generator<Span> {
  for (let at = from; at < end;) {
    const tag = readTag(payload, at, end);
    const span = spanOf(payload, tag.tag, at, tag.next, end, 0);
    yield span;
    at = span.to;
  }
}

function readTag(payload: Uint8Array, at: number, end: number): { tag: number; next: number } {
  const { value, next } = varint(payload, at, end);
  if (value < 8n || value > 0xffffffffn) throw new PayloadFault("a field number of 0 or beyond 2^29", at);
  return { tag: Number(value), next };
}

function spanOf(payload: Uint8Array, tag: number, at: number, from: number, end: number, depth: number): Span {
  switch (tag & 7) {
    case 0:
      return { tag, at, from, to: varint(payload, from, end).next };
    case 1:
    case 5: {
      const to = from + ((tag & 7) === 1 ? 8 : 4);
      if (to > end) throw new PayloadFault("a field that passes the end of its message", at);
      return { tag, at, from, to };
    }
    case 2: {
      const { value, next } = varint(payload, from, end);
      if (value > BigInt(end - next))
        throw new PayloadFault(`a field of ${value} bytes where ${end - next} are left`, at);
      return { tag, at, from: next, to: next + Number(value) };
    }
    case 3:
      for (let p = from; depth < 100;) {
        const inner = readTag(payload, p, end);
        if ((inner.tag & 7) === 4) {
          if (inner.tag >>> 3 !== tag >>> 3) break;
          return { tag, at, from, to: inner.next };
        }
        p = spanOf(payload, inner.tag, p, inner.next, end, depth + 1).to;
      }
      throw new PayloadFault("a group that is not closed", at);
    default:
      throw new PayloadFault(`a field of wire type ${tag & 7}`, at);
  }
}

function varint(payload: Uint8Array, from: number, end: number): { value: bigint; next: number } {
  let value = 0n;
  for (let i = 0; i < 10 && from + i < end; i++) {
    const byte = payload[from + i]!;
    value |= BigInt(byte & 0x7f) << BigInt(7 * i);
    if (byte < 0x80) return { value: BigInt.asUintN(64, value), next: from + i + 1 };
  }
  throw new PayloadFault("a varint that does not end", from);
}
