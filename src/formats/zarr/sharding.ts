/**
 * Sharding codec: many chunks in one file, and an index of where each lies.
 *
 *   │ chunks, in any order │ count × (u64 offset │ u64 bytes) │ u32 CRC32C │     (the index may stand first)
 *
 * A chunk that was never written has 2^64 − 1 in both.
 */
import { crc32c } from "../../base/crc32c.ts";
import type { Json } from "../../base/json.ts";
import type { Cells } from "./cells.ts";
import type { DataType } from "./dtype.ts";
import { ChunkFault } from "./faults.ts";
import { volume, type CodecSpec } from "./spec.ts";

export interface ShardIndex {
  /** Of each chunk, in C order; −1: never written. */
  offset: Float64Array;
  length: Float64Array;
}

/** Bytes of the index of a shard of `count` chunks. `codecs`: `bytes`, and perhaps `crc32c`s. */
export function indexBytes(count: number, codecs: readonly CodecSpec[]): number {
  return count * 16 + 4 * (codecs.length - 1);
}

/** `fileBytes`: of the shard, which all chunks must lie in. */
export function parseIndex(bytes: Uint8Array, codecs: readonly CodecSpec[], fileBytes: number): ShardIndex {
  let data = bytes;
  for (let left = codecs.length - 1; left > 0; left--) {
    const at = data.length - 4;
    const stored = new DataView(data.buffer, data.byteOffset).getUint32(at, true);
    data = data.subarray(0, at);
    const found = crc32c(data);
    if (found !== stored)
      throw new ChunkFault(
        "crc",
        `the checksum of its index is 0x${stored.toString(16)}, its bytes have 0x${found.toString(16)}`,
      );
  }
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  const count = data.length / 16;
  const offset = new Float64Array(count);
  const length = new Float64Array(count);
  for (let i = 0; i < count; i++) {
    const [from, bytesHere] = [view.getBigUint64(i * 16, true), view.getBigUint64(i * 16 + 8, true)];
    if (from === NONE && bytesHere === NONE) {
      offset[i] = -1;
      continue;
    }
    if (from + bytesHere > BigInt(fileBytes))
      throw new ChunkFault(
        "truncated",
        `its index puts a chunk at bytes ${from} to ${from + bytesHere}, it has ${fileBytes}`,
      );
    offset[i] = Number(from);
    length[i] = Number(bytesHere);
  }
  return { offset, length };
}

const NONE = 2n ** 64n - 1n;

export type DecodeChunk = (
  codecs: readonly CodecSpec[],
  type: DataType,
  shape: readonly number[],
  stored: Uint8Array,
  fill: Uint8Array | null,
) => Promise<Cells>;

/** A whole shard that is in memory: one inside another, or one that other codecs were put around. */
export async function unshard(
  config: { readonly [key: string]: Json },
  type: DataType,
  shape: readonly number[],
  data: Uint8Array,
  fill: Uint8Array | null,
  decode: DecodeChunk,
): Promise<Cells> {
  const inner = config["chunk_shape"] as number[];
  const specs = (part: string): CodecSpec[] =>
    (config[part] as { name: string; configuration?: CodecSpec["config"] }[]).map((codec) =>
      typeof codec === "string"
        ? { name: codec, config: {} }
        : { name: codec.name.replace(/^numcodecs\./, ""), config: codec.configuration ?? {} },
    );
  const counts = shape.map((size, axis) => size / inner[axis]!);
  if (inner.length !== shape.length || counts.some((count) => !Number.isInteger(count)))
    throw new ChunkFault("malformed", "the chunks of the sharding codec do not fill its shape");
  const index = specs("index_codecs");
  const bytes = indexBytes(volume(counts), index);
  if (data.length < bytes) throw new ChunkFault("truncated", `it has ${data.length} bytes, its index takes ${bytes}`);
  const at = config["index_location"] === "start" ? 0 : data.length - bytes;
  const { offset, length } = parseIndex(data.subarray(at, at + bytes), index, data.length);
  const codecs = specs("codecs");
  const parts: (Cells | undefined)[] = [];
  for (let i = 0; i < offset.length; i++) {
    parts.push(
      offset[i]! < 0
        ? undefined
        : await decode(codecs, type, inner, data.subarray(offset[i], offset[i]! + length[i]!), fill),
    );
  }
  if (parts.includes(undefined) && fill === null)
    throw new ChunkFault("malformed", "a chunk inside is missing, and the array has no fill value");
  return joined(parts, type, shape, inner, counts, fill);
}

/** Chunks side by side, as one array. */
function joined(
  parts: readonly (Cells | undefined)[],
  { size }: DataType,
  shape: readonly number[],
  inner: readonly number[],
  counts: readonly number[],
  fill: Uint8Array | null,
): Cells {
  const total = volume(shape);
  const run = inner.at(-1)!;
  const stored = parts.reduce((sum, part) => sum + (part?.data.length ?? 0), 0);
  const filling = fill ?? new Uint8Array(0);
  const data = new Uint8Array(size === 0 ? filling.length + stored : total * size);
  const begin = size === 0 ? new Uint32Array(total) : undefined;
  const end = size === 0 ? new Uint32Array(total) : undefined;
  if (size === 0) data.set(filling);
  let behind = filling.length;
  for (const [i, part] of parts.entries()) {
    const base = behind;
    if (size === 0 && part !== undefined) {
      data.set(part.data, base);
      behind += part.data.length;
    }
    const at = placeOf(i, counts);
    const rows = volume(inner) / run;
    for (let row = 0; row < rows; row++) {
      const inside = placeOf(row, inner.slice(0, -1));
      let target = 0;
      for (let axis = 0; axis < shape.length; axis++)
        target = target * shape[axis]! + at[axis]! * inner[axis]! + (inside[axis] ?? 0);
      if (begin === undefined || end === undefined) {
        const from = row * run * size;
        if (part !== undefined) data.set(part.data.subarray(from, from + run * size), target * size);
        else for (let k = 0; k < run; k++) data.set(filling, (target + k) * size);
        continue;
      }
      for (let k = 0; k < run; k++) {
        begin[target + k] = part === undefined ? 0 : base + part.begin![row * run + k]!;
        end[target + k] = part === undefined ? filling.length : base + part.end![row * run + k]!;
      }
    }
  }
  return begin === undefined || end === undefined ? { data, size } : { data, size, begin, end };
}

/** Number `i`, in C order, as a place in a grid. */
export function placeOf(i: number, counts: readonly number[]): number[] {
  const place: number[] = Array.from({ length: counts.length }, () => 0);
  let rest = i;
  for (let axis = counts.length - 1; axis >= 0; axis--) {
    place[axis] = rest % counts[axis]!;
    rest = Math.floor(rest / counts[axis]!);
  }
  return place;
}
