/**
 * Meta: what the decoding of a block needs beyond its segments. `skips` has a u32 for each field of each block, in base64: how
 * many records that begin in the first page belong to the block before, and the codec of the pages in the low 4 bits.
 *
 * @example
 * const { skip, codec } = skipOf(meta, 17, 2); // block 17, field 2
 */
import type { ShardMeta } from "../types.ts";
import type { Codec } from "./compress.ts";
import type { ColumnField, Leaf, Node } from "./schema.ts";

export interface ParquetMeta {
  fields: string[];
  /** Of `fields`. */
  columns: (Omit<ColumnField, "leaf"> & { leaf: Leaf })[];
  skips: string;
  /** Of fields of JSON: see `FileSchema.nested`. */
  nested?: { readonly [name: string]: Node };
}

export function packSkip(skip: number, codec: Codec): number {
  // A page holds 2^26 records at most.
  return skip * 16 + codec;
}

export function skipsText(skips: readonly number[]): string {
  const words = Uint32Array.from(skips);
  return Buffer.from(words.buffer).toString("base64");
}

export function skipOf(meta: ShardMeta, block: number, field: number): { skip: number; codec: Codec } {
  const { fields, skips } = meta as unknown as ParquetMeta;
  const at = (block * fields.length + field) * 4;
  // Four letters hold three bytes: only those around the number are looked at, however many blocks there are.
  const from = Math.floor(at / 3);
  const bytes = Buffer.from(skips.slice(from * 4, from * 4 + 12), "base64");
  const word = bytes.readUInt32LE(at - from * 3);
  return { skip: Math.floor(word / 16), codec: word % 16 };
}

export function metaNested(meta: ShardMeta, name: string): Node {
  return (meta as unknown as ParquetMeta).nested![name]!;
}

export function metaColumns(meta: ShardMeta): ParquetMeta["columns"] {
  return (meta as unknown as ParquetMeta).columns;
}
