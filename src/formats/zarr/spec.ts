/**
 * What is known of one Zarr array, of either version, in one form: small enough to stand in the index as JSON, and all that
 * decoding a chunk takes.
 */
import type { Json } from "../../base/json.ts";
import type { ShardMeta } from "../types.ts";
import type { DataType } from "./dtype.ts";

/** A codec in the order of encoding. `bytes`, `vlen` and `sharding` turn an array into bytes; what stands before works on arrays. */
export interface CodecSpec {
  name: string;
  config: { readonly [key: string]: Json };
}

export interface ArraySpec {
  /** Inside the shard's folder; empty: the folder is the array. */
  path: string;
  /** Name of the field. */
  name: string;
  shape: readonly number[];
  /** Shape of the chunks that are decoded by themselves: those inside a shard of the sharding codec. */
  chunk: readonly number[];
  type: DataType;
  /** Key of a chunk: `prefix` and its numbers, joined by `separator`. */
  prefix: string;
  separator: string;
  codecs: readonly CodecSpec[];
  /** Bytes of an element that was never written, base64; null: undefined. */
  fill: string | null;
  /** Shards of the sharding codec. */
  outer?: OuterSpec;
  /** Rows of a chunk lie in it as they are: any of them can be read alone. */
  plain?: boolean;
}

/** A file that holds `counts` chunks, and an index of where each lies. */
export interface OuterSpec {
  /** Shape of the shard. */
  chunk: readonly number[];
  codecs: readonly CodecSpec[];
  atStart: boolean;
}

export interface ZarrMeta extends ShardMeta {
  fields: string[];
  arrays: ArraySpec[];
  /** Number of a file that stands for "no file": the segment of a missing chunk. */
  noFile: number;
  missingChunks?: number;
  firstMissing?: string;
}

export function volume(shape: readonly number[]): number {
  return shape.reduce((product, size) => product * size, 1);
}

/** Key of a chunk below the shard's folder. */
export function chunkKey({ path, prefix, separator }: ArraySpec, at: readonly number[]): string {
  const name = prefix + at.join(separator);
  return path === "" ? name : `${path}/${name}`;
}

/** The file that a chunk lies in, as a key: the chunk's own, or the shard's. */
export function fileKey(array: ArraySpec, at: readonly number[]): string {
  const { outer, chunk } = array;
  if (outer === undefined) return chunkKey(array, at);
  return chunkKey(
    array,
    at.map((place, axis) => Math.floor((place * chunk[axis]!) / outer.chunk[axis]!)),
  );
}

export function describeChunk(array: ArraySpec, at: readonly number[]): string {
  const own = `${array.path === "" ? "" : `array ${JSON.stringify(array.path)}, `}chunk ${fileKey(array, at)}`;
  return array.outer === undefined ? own : `${own} (inner chunk ${at.join("/")} of the array)`;
}
