/**
 * Codecs of chunks: from the bytes of a chunk to its cells, the codecs of its array undone from the last to the first.
 *
 * We looked at zarrita 0.7.5: it reads all of this, but into arrays of its own through asynchronous stores and one gzip of the
 * web's (a fifth of node:zlib's speed); what the feed asks for is chunks from bytes that are there, strict checks, and bounds
 * of memory, which makes this the smaller half.
 *
 * Contract: throws `ChunkFault` (or what a library throws) over the bytes; never gives fewer or more cells than `shape` has.
 */
import { unzipSync } from "node:zlib";
import { crc32c } from "../../base/crc32c.ts";
import type { Json } from "../../base/json.ts";
import { bloscDecompress } from "../codecs/blosc.ts";
import { bzip2Decompress } from "../codecs/bzip2.ts";
import { inflateMost } from "../codecs/inflate.ts";
import { lz4Decompress } from "../codecs/lz4.ts";
import { zstdDecompress, zstdDecompressTo } from "../codecs/zstd.ts";
import { ShardInvalid, Unsupported } from "../errors.ts";
import { parseVlen, swapped, untranspose, type Cells } from "./cells.ts";
import { adler32, crc32 } from "./checksums.ts";
import type { DataType } from "./dtype.ts";
import { ChunkFault } from "./faults.ts";
import { FILTERS } from "./filters.ts";
import { unshard } from "./sharding.ts";
import { volume, type CodecSpec } from "./spec.ts";

/** Bytes of a chunk whose size its array does not tell (strings). */
const MOST = 2 ** 30;

type Config = CodecSpec["config"];

/** `size`: bytes that must come out; undefined: not known, MOST at most. */
type Undo = (data: Uint8Array, size: number | undefined) => Uint8Array;

const COMPRESSORS: { readonly [name: string]: Undo } = {
  gzip: unzip,
  zlib: unzip,
  zstd: (data, size) => (size === undefined ? zstdDecompressTo(data, MOST) : zstdDecompress(data, size)),
  blosc: (data, size) => bloscDecompress(unshared(data), size ?? MOST),
  lz4: (data, size) => sizedLz4(unshared(data), size ?? MOST),
  bz2: (data, size) => bzip2Decompress(unshared(data), size ?? MOST),
};

function unzip(data: Uint8Array, size: number | undefined): Uint8Array {
  return size === undefined ? unzipSync(unshared(data), { maxOutputLength: MOST }) : inflateMost(data, size);
}

/** Libraries refuse memory that is shared, and what they are given is not to change under them. */
function unshared(data: Uint8Array): Uint8Array {
  return data.buffer instanceof SharedArrayBuffer ? new Uint8Array(data) : data;
}

/** numcodecs writes the size in front. */
function sizedLz4(data: Uint8Array, limit: number): Uint8Array {
  if (data.length < 4) throw new ChunkFault("truncated", `it has ${data.length} bytes, expected a size of 4`);
  const size = new DataView(data.buffer, data.byteOffset).getUint32(0, true);
  if (size > limit) throw new ChunkFault("malformed", `it holds ${size} bytes, expected ${limit} at most`);
  return lz4Decompress(data.subarray(4), size);
}

const CHECKSUMS: { readonly [name: string]: { sum: (data: Uint8Array) => number; place: "start" | "end" } } = {
  crc32c: { sum: crc32c, place: "end" },
  crc32: { sum: crc32, place: "start" },
  adler32: { sum: adler32, place: "start" },
};

/** What turns an array into bytes. */
const SERIALIZERS: ReadonlySet<string> = new Set([
  "bytes",
  "vlen-utf8",
  "vlen-bytes",
  "vlen-array",
  "sharding_indexed",
]);

/** Throws for what `decodeChunk` could not undo, whatever the bytes. */
export function checkCodecs(codecs: readonly CodecSpec[], type: DataType, axes: number, file: string): void {
  const serializer = codecs.findIndex(({ name }) => SERIALIZERS.has(name));
  for (const [i, { name, config }] of codecs.entries()) {
    if (i === serializer) continue;
    const filter = FILTERS[name];
    const onBytes =
      i > serializer && (COMPRESSORS[name] !== undefined || CHECKSUMS[name] !== undefined || filter !== undefined);
    const onArray = i < serializer && (name === "transpose" || filter !== undefined);
    if (!onBytes && !onArray && serializer >= 0)
      throw new Unsupported(
        `codec ${JSON.stringify(name)} cannot be undone`,
        { file },
        "write the array with another codec",
      );
    if (filter?.types !== undefined && filter.types(config) === undefined)
      throw new Unsupported(
        `codec ${JSON.stringify(name)} is of types that we do not know: ${JSON.stringify(config)}`,
        { file },
      );
    if (name === "transpose" && !isPermutation(config["order"], axes))
      throw bad(`transpose order ${JSON.stringify(config["order"])}`, file);
  }
  const found = codecs[serializer];
  if (found === undefined) {
    const unknown = codecs.find(
      ({ name }) => COMPRESSORS[name] === undefined && FILTERS[name] === undefined && name !== "transpose",
    );
    if (unknown !== undefined)
      throw new Unsupported(`codec ${JSON.stringify(unknown.name)} cannot be undone`, { file });
    throw bad("no codec that makes bytes of the array", file);
  }
  const fits =
    found.name === "sharding_indexed" || (found.name === "bytes" ? type.size > 0 : VLEN[found.name] === type.kind);
  if (!fits) throw bad(`codec ${JSON.stringify(found.name)} does not go with its data type`, file);
  if (found.name !== "sharding_indexed") return;
  for (const part of ["codecs", "index_codecs"]) {
    const inner = specsOf(found.config[part], file);
    if (part === "codecs") checkCodecs(inner, type, axes, file);
    else if (
      inner[0]?.name !== "bytes" ||
      inner[0].config["endian"] === "big" ||
      inner.slice(1).some(({ name }) => name !== "crc32c")
    )
      throw new Unsupported(`index_codecs ${JSON.stringify(found.config[part])} of sharding_indexed`, { file });
  }
}

const VLEN: { readonly [name: string]: DataType["kind"] } = {
  "vlen-utf8": "text",
  "vlen-bytes": "bytes",
  "vlen-array": "list",
};

export function specsOf(value: Json | undefined, file: string): CodecSpec[] {
  if (!Array.isArray(value)) throw bad(`codecs ${JSON.stringify(value)?.slice(0, 200)}`, file);
  return (value as readonly Json[]).map((codec) => {
    if (typeof codec === "string") return { name: codec, config: {} };
    const { name, configuration } = (codec ?? {}) as { name?: Json; configuration?: Json };
    if (typeof name !== "string") throw bad(`codec ${JSON.stringify(codec)}`, file);
    return { name: name.replace(/^numcodecs\./, ""), config: (configuration ?? {}) as Config };
  });
}

function isPermutation(order: Json | undefined, axes: number): boolean {
  return (
    Array.isArray(order) &&
    order.length === axes &&
    new Set(order).size === axes &&
    order.every((axis) => Number.isInteger(axis) && (axis as number) >= 0 && (axis as number) < axes)
  );
}

function bad(what: string, file: string): Error {
  return new ShardInvalid(`the metadata of the array cannot be used: ${what}`, { file }, "put the right file back");
}

/** The cells of a chunk of `shape`. `fill`: bytes of an element that is not stored, for shards inside. */
export async function decodeChunk(
  codecs: readonly CodecSpec[],
  type: DataType,
  shape: readonly number[],
  stored: Uint8Array,
  fill: Uint8Array | null,
): Promise<Cells> {
  const serializer = codecs.findIndex(({ name }) => SERIALIZERS.has(name));
  // What the array is when its bytes are made.
  let cellType = type;
  let cellShape = shape;
  for (const { name, config } of codecs.slice(0, serializer)) {
    if (name === "transpose") cellShape = (config["order"] as number[]).map((axis) => cellShape[axis]!);
    cellType = FILTERS[name]?.types?.(config)?.stored ?? cellType;
  }
  const { name, config } = codecs[serializer]!;
  const bytes = name === "bytes" ? volume(cellShape) * cellType.size : undefined;
  const data = undoBytes(codecs.slice(serializer + 1), stored, bytes);
  let cells: Cells;
  if (name === "bytes") {
    checkSize(data, bytes!);
    const width = cellType.kind === "U" ? 4 : cellType.kind === "S" ? 1 : cellType.size;
    cells = { data: config["endian"] === "big" && width > 1 ? swapped(data, width) : data, size: cellType.size };
  } else if (name === "sharding_indexed") {
    cells = await unshard(config, cellType, cellShape, data, fill, decodeChunk);
  } else {
    cells = parseVlen(data, volume(cellShape));
  }
  for (const codec of codecs.slice(0, serializer).reverse()) {
    if (codec.name === "transpose") {
      const order = codec.config["order"] as number[];
      cells = untranspose(cells, cellShape, order);
      const before: number[] = [];
      for (const [i, axis] of order.entries()) before[axis] = cellShape[i]!;
      cellShape = before;
    } else {
      const filter = FILTERS[codec.name]!;
      cells = {
        data: filter.undo(cells.data, codec.config),
        size: filter.types?.(codec.config)?.given.size ?? cells.size,
      };
    }
  }
  return cells;
}

export function checkSize(data: Uint8Array, bytes: number): void {
  if (data.length === bytes) return;
  const kind = data.length < bytes ? "truncated" : "malformed";
  throw new ChunkFault(kind, `it has ${data.length} bytes, expected ${bytes}`);
}

/** `bytes`: what must come out in the end, where that is known. */
function undoBytes(codecs: readonly CodecSpec[], stored: Uint8Array, bytes: number | undefined): Uint8Array {
  // Sizes between codecs, in the order of encoding; unknown behind a compressor.
  const sizes: (number | undefined)[] = [bytes];
  for (const { name, config } of codecs) {
    const size = sizes.at(-1);
    const types = FILTERS[name]?.types?.(config);
    if (size === undefined || COMPRESSORS[name] !== undefined) sizes.push(undefined);
    else if (CHECKSUMS[name] !== undefined) sizes.push(size + 4);
    else sizes.push(types === undefined ? size : (size / types.given.size) * types.stored.size);
  }
  let data = stored;
  for (let i = codecs.length - 1; i >= 0; i--) {
    const { name, config } = codecs[i]!;
    const checksum = CHECKSUMS[name];
    if (checksum !== undefined) data = checked(data, checksum.sum, config["location"] ?? checksum.place);
    else if (FILTERS[name] !== undefined) data = FILTERS[name].undo(unshared(data), config);
    else data = COMPRESSORS[name]!(data, sizes[i]);
  }
  return data;
}

function checked(data: Uint8Array, sum: (data: Uint8Array) => number, place: Json): Uint8Array {
  if (data.length < 4) throw new ChunkFault("truncated", `it has ${data.length} bytes, expected a checksum of 4`);
  const at = place === "start" ? 0 : data.length - 4;
  const body = place === "start" ? data.subarray(4) : data.subarray(0, at);
  const stored = new DataView(data.buffer, data.byteOffset).getUint32(at, true);
  const found = sum(body);
  if (found !== stored)
    throw new ChunkFault("crc", `its checksum is 0x${stored.toString(16)}, its bytes have 0x${found.toString(16)}`);
  return body;
}
