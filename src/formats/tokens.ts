/**
 * Tokens: shards that are nothing but token ids, one behind another (`.npy`, Megatron): their types, blocks and values.
 *
 * Contract: ids are at least 0 and below 2^63; another value is ATH_VALUE_RANGE with its byte offset. Block k holds the tokens
 * whose first byte lies in [k · 4 MiB, (k + 1) · 4 MiB) of the file.
 *
 * @example
 * const values = tokenValues(bytes, "<u2");      // Int32Array; 64-bit types: BigInt64Array
 * const columns = tokenColumns(raw, fields, ends, recordOf);
 */
import type { AthanorError } from "../base/errors.ts";
import { ValueRange } from "./errors.ts";
import { BLOCK_BYTES, type BlockColumns, type RawBlock, type ShardMeta, type TokenPlace } from "./types.ts";

/** The one feature of a shard of tokens. */
export const FEATURE = "input_ids";

/** `type`: numpy's name, such as "<u2", ">i8", "|u1". */
export interface TokenMeta extends ShardMeta {
  readonly type: string;
  readonly offset: number;
  readonly tokens: number;
}

export type TokenValues = Int32Array | BigInt64Array;

export function itemBytes(type: string): number {
  return Number(type[2]);
}

/** Greatest value of a type, as far as ids go. */
export function greatest(type: string): bigint {
  const bits = BigInt(itemBytes(type) * 8);
  return 2n ** (type[1] === "i" || bits === 64n ? bits - 1n : bits) - 1n;
}

export function placeOf(meta: ShardMeta): TokenPlace {
  const { type, offset, tokens } = meta as TokenMeta;
  return { offset, itemBytes: itemBytes(type), tokens };
}

/** First token of each block, and the number of all tokens. */
export function blockBorders(place: TokenPlace): Float64Array {
  const { offset, itemBytes: size, tokens } = place;
  if (tokens === 0) return new Float64Array(1);
  const last = Math.floor((offset + (tokens - 1) * size) / BLOCK_BYTES);
  const blocks = last - Math.floor(offset / BLOCK_BYTES) + 1;
  return Float64Array.from({ length: blocks + 1 }, (_, block) => blockBorder(place, block));
}

/** First token of a block. */
export function blockBorder({ offset, itemBytes: size, tokens }: TokenPlace, block: number): number {
  const begin = (Math.floor(offset / BLOCK_BYTES) + block) * BLOCK_BYTES;
  return Math.min(Math.max(Math.ceil((begin - offset) / size), 0), tokens);
}

/** Ids as they are stored, over the same memory where that is possible; unsigned 64-bit ones from 2^63 on look negative. */
export function tokenValues(stored: Uint8Array, type: string): TokenValues {
  const size = itemBytes(type);
  const bytes = type[0] === ">" && size > 1 ? swapped(stored, size) : aligned(stored, size);
  const { buffer, byteOffset: at } = bytes;
  const length = Math.floor(bytes.length / size);
  switch (type.slice(1)) {
    case "u1":
      return new Int32Array(new Uint8Array(buffer, at, length));
    case "i1":
      return new Int32Array(new Int8Array(buffer, at, length));
    case "u2":
      return new Int32Array(new Uint16Array(buffer, at, length));
    case "i2":
      return new Int32Array(new Int16Array(buffer, at, length));
    case "i4":
      return new Int32Array(buffer, at, length);
    case "u4": {
      const words = new Int32Array(buffer, at, length);
      return words.some((word) => word < 0) ? widened(words) : words;
    }
    default:
      return new BigInt64Array(buffer, at, length);
  }
}

function aligned(bytes: Uint8Array, size: number): Uint8Array {
  return bytes.byteOffset % size === 0 ? bytes : bytes.slice();
}

function swapped(bytes: Uint8Array, size: number): Uint8Array {
  const copy = new Uint8Array(bytes.length);
  for (let at = 0; at < bytes.length; at++) copy[at] = bytes[at - (at % size) + size - 1 - (at % size)]!;
  return copy;
}

/** u32 as i64. */
function widened(words: Int32Array): BigInt64Array {
  const wide = new Int32Array(words.length * 2);
  for (let i = 0; i < words.length; i++) wide[2 * i] = words[i]!;
  return new BigInt64Array(wide.buffer);
}

/** The first of [from, to) that is no token id; −1: all are. */
export function firstBad(values: TokenValues, from: number, to: number): number {
  if (values instanceof Int32Array) {
    let at = from;
    // Eight at a time: nearly all shards have none.
    for (; at + 8 <= to; at += 8) {
      const signs =
        values[at]! |
        values[at + 1]! |
        values[at + 2]! |
        values[at + 3]! |
        values[at + 4]! |
        values[at + 5]! |
        values[at + 6]! |
        values[at + 7]!;
      if (signs < 0) break;
    }
    for (; at < to; at++) if (values[at]! < 0) return at;
    return -1;
  }
  const words = new Int32Array(values.buffer, values.byteOffset, values.length * 2);
  for (let at = from; at < to; at++) if (words[2 * at + 1]! < 0) return at;
  return -1;
}

export function badToken(value: bigint, type: string, file: string, record: number, byteOffset: number): AthanorError {
  const bits = 8 * itemBytes(type);
  const shown = type[1] === "u" ? BigInt.asUintN(64, value) : value;
  const what = type[1] === "u" ? "too large" : `negative (uint${bits} data under a signed type?)`;
  return new ValueRange(
    `token id ${shown} is ${what}`,
    { file, record, byteOffset },
    "write the shard again with the type that the ids have",
  );
}

/**
 * The tokens of a block as its one column; row i ends before value `ends[i]`. `recordOf`: of a value by its number in the
 * block, for faults.
 */
export function tokenColumns(
  raw: Pick<RawBlock, "file" | "records" | "segments">,
  fields: readonly string[],
  type: string,
  ends: Uint32Array,
  recordOf: (row: number, value: number) => number,
): BlockColumns {
  const [{ bytes, offset }] = raw.segments as [RawBlock["segments"][number]];
  const values = tokenValues(bytes, type);
  const faults = new Map<number, AthanorError>();
  const narrow = type[1] === "u" && itemBytes(type) <= 4;
  let bad = narrow ? -1 : firstBad(values, 0, values.length);
  for (let row = 0; row < raw.records && bad >= 0; row++) {
    const end = ends[row]!;
    if (end <= bad) continue;
    const at = offset + bad * itemBytes(type);
    faults.set(row, badToken(BigInt(values[bad]!), type, raw.file, recordOf(row, bad), at));
    bad = firstBad(values, end, values.length);
  }
  const kept = fields.includes(FEATURE) ? [[FEATURE, { kind: "int64", values, ends }] as const] : [];
  return { fields: new Map(kept), faults };
}

/** Row ends of samples that lie one behind another. */
export function endsOf(lengths: Uint32Array): Uint32Array {
  let end = 0;
  return lengths.map((length) => (end += length));
}

/** Least and greatest of ids as bigint. */
export class IdRange {
  private low = 2 ** 31;
  private high = -1;
  private wide: { low: bigint; high: bigint } | undefined;

  add(values: TokenValues): void {
    if (values instanceof Int32Array) {
      for (let at = 0; at < values.length; at++) {
        const value = values[at]!;
        if (value < this.low) this.low = value;
        if (value > this.high) this.high = value;
      }
      return;
    }
    for (let at = 0; at < values.length; at++) {
      const value = values[at]!;
      this.wide ??= { low: value, high: value };
      if (value < this.wide.low) this.wide.low = value;
      if (value > this.wide.high) this.wide.high = value;
    }
  }

  finish(): { min: string; max: string } {
    const narrow = this.high < 0 ? [] : [BigInt(this.low), BigInt(this.high)];
    const all = [...narrow, ...(this.wide === undefined ? [] : [this.wide.low, this.wide.high])];
    const [first = 0n] = all;
    const min = all.reduce((least, value) => (value < least ? value : least), first);
    const max = all.reduce((most, value) => (value > most ? value : most), first);
    return { min: String(min), max: String(max) };
  }
}
