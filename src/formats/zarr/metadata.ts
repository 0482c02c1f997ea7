/**
 * Metadata of one array: `.zarray` of version 2 and `zarr.json` of version 3 as an `ArraySpec`.
 *
 * Contract: what is no metadata at all is ATH_SHARD_INVALID, a data type that cannot be a column is told of (`leftOut`), a codec
 * that we do not know is ATH_FORMAT_UNSUPPORTED with its name.
 *
 * @example
 * arrayV2("tokens", '{"zarr_format":2,"shape":[8],"chunks":[4],"dtype":"<i4","compressor":null,"fill_value":0,…}', "/d/x.zarr/tokens/.zarray");
 */
import type { Json } from "../../base/json.ts";
import { ShardInvalid, Unsupported } from "../errors.ts";
import { checkCodecs } from "./codecs.ts";
import { dtypeV2, dtypeV3, fillBytes, type DataType } from "./dtype.ts";
import type { ArraySpec, CodecSpec } from "./spec.ts";

type Members = { readonly [key: string]: Json | undefined };

/** An array, or why it cannot be a column. */
export type ReadArray = ArraySpec | { leftOut: string };

const MOST_AXES = 32;

export function parseMetadata(text: string, file: string): Members {
  let parsed: Json;
  try {
    parsed = JSON.parse(text) as Json;
  } catch (error) {
    throw invalid("is no JSON", file, error);
  }
  if (typeof parsed !== "object" || parsed === null || Array.isArray(parsed)) throw invalid("is no JSON object", file);
  return parsed as Members;
}

export function arrayV2(path: string, text: string, file: string): ReadArray {
  const { shape, chunks, dtype, order, filters, compressor, fill_value, dimension_separator } = parseMetadata(
    text,
    file,
  );
  const found = typedV2(dtype, filters);
  const sizes = sizesOf(shape, "shape", file);
  if (found === undefined) return { leftOut: `holds values of type ${JSON.stringify(dtype)}` };
  if (sizes.length === 0) return { leftOut: "has no dimensions" };
  const codecs: CodecSpec[] = [];
  if (order !== "C" && order !== "F") throw invalid(`order is ${JSON.stringify(order)}, expected "C" or "F"`, file);
  if (order === "F" && sizes.length > 1)
    codecs.push({ name: "transpose", config: { order: sizes.map((_, axis) => sizes.length - 1 - axis) } });
  codecs.push(...found.head);
  for (const filter of found.filters) codecs.push(codecV2(filter, file));
  if (compressor !== null && compressor !== undefined) codecs.push(codecV2(compressor, file));
  if (dimension_separator !== undefined && dimension_separator !== "." && dimension_separator !== "/")
    throw invalid(`dimension_separator is ${JSON.stringify(dimension_separator)}`, file);
  const { type } = found;
  const spec: ArraySpec = {
    path,
    name: nameOf(path, type),
    shape: sizes,
    chunk: chunkOf(chunks, sizes.length, "chunks", file),
    type,
    prefix: "",
    separator: dimension_separator ?? "",
    codecs,
    fill: fillOf(type, fill_value, text, file),
  };
  return finished(spec, file);
}

export function arrayV3(path: string, text: string, file: string): ReadArray {
  const members = parseMetadata(text, file);
  const type = dtypeV3(members["data_type"]);
  const shape = sizesOf(members["shape"], "shape", file);
  if (type === undefined) return { leftOut: `holds values of type ${JSON.stringify(members["data_type"])}` };
  if (shape.length === 0) return { leftOut: "has no dimensions" };
  const transformers = members["storage_transformers"];
  if (Array.isArray(transformers) && transformers.length > 0) throw unsupported("storage transformers", file);
  const grid = named(members["chunk_grid"], "chunk_grid", file);
  if (grid.name !== "regular") throw unsupported(`chunk grid ${JSON.stringify(grid.name)}`, file);
  const outer = chunkOf(grid.config["chunk_shape"], shape.length, "chunk_shape", file);
  const codecs = codecsV3(members["codecs"], file);
  if (members["fill_value"] === undefined) throw invalid("has no fill_value", file);
  const spec: ArraySpec = {
    path,
    name: nameOf(path, type),
    shape,
    chunk: outer,
    type,
    ...keysV3(members["chunk_key_encoding"], file),
    codecs,
    fill: fillOf(type, members["fill_value"], text, file),
  };
  const [first] = codecs;
  if (codecs.length > 1 || first?.name !== "sharding_indexed") return finished(spec, file);
  const inner = chunkOf(first.config["chunk_shape"], shape.length, "chunk_shape of sharding_indexed", file);
  if (inner.some((size, axis) => outer[axis]! % size !== 0))
    throw invalid(`chunks of ${JSON.stringify(inner)} do not fill shards of ${JSON.stringify(outer)}`, file);
  const location = first.config["index_location"] ?? "end";
  if (location !== "end" && location !== "start") throw unsupported(`index_location ${JSON.stringify(location)}`, file);
  checkCodecs(codecs, type, shape.length, file);
  const index = codecsV3(first.config["index_codecs"], file);
  const shard = { chunk: outer, codecs: index, atStart: location === "start" };
  return finished({ ...spec, chunk: inner, codecs: codecsV3(first.config["codecs"], file), outer: shard }, file);
}

function finished(spec: ArraySpec, file: string): ArraySpec {
  checkCodecs(spec.codecs, spec.type, spec.shape.length, file);
  const plain = spec.type.size > 0 && spec.codecs.length === 1 && spec.codecs[0]!.name === "bytes";
  return plain ? { ...spec, plain } : spec;
}

/** The type, and what turns its elements into bytes: objects are what their first filter says. */
function typedV2(
  dtype: Json | undefined,
  filters: Json | undefined,
): { type: DataType; head: CodecSpec[]; filters: readonly Json[] } | undefined {
  const list = Array.isArray(filters) ? (filters as readonly Json[]) : [];
  if (dtype !== "|O") {
    const found = dtypeV2(dtype);
    if (found === undefined) return undefined;
    const config = { endian: found.big ? "big" : "little" };
    return { type: found.type, head: [{ name: "bytes", config }], filters: list };
  }
  const first = list[0] as Members | undefined;
  const head = (name: string): CodecSpec[] => [{ name, config: {} }];
  switch (first?.["id"]) {
    case "vlen-utf8":
      return { type: { kind: "text", size: 0 }, head: head("vlen-utf8"), filters: list.slice(1) };
    case "vlen-bytes":
      return { type: { kind: "bytes", size: 0 }, head: head("vlen-bytes"), filters: list.slice(1) };
    case "vlen-array": {
      const item = dtypeV2(first["dtype"]);
      if (item === undefined || item.big || !["i", "u", "f", "b"].includes(item.type.kind)) return undefined;
      return { type: { kind: "list", size: 0, item: item.type }, head: head("vlen-array"), filters: list.slice(1) };
    }
    default:
      return undefined;
  }
}

function codecV2(codec: Json, file: string): CodecSpec {
  const { id, ...config } = (codec ?? {}) as { id?: Json; [key: string]: Json | undefined };
  if (typeof id !== "string") throw invalid(`holds a codec without an id: ${JSON.stringify(codec)}`, file);
  return { name: id, config: config as { [key: string]: Json } };
}

function codecsV3(codecs: Json | undefined, file: string): CodecSpec[] {
  if (!Array.isArray(codecs) || codecs.length === 0) throw invalid("has no list of codecs", file);
  return (codecs as readonly Json[]).map((codec) => {
    const { name, config } = named(codec, "codec", file);
    return { name: name.replace(/^numcodecs\./, ""), config };
  });
}

/** `{name, configuration}`, or the name alone. */
function named(value: Json | undefined, what: string, file: string): CodecSpec {
  if (typeof value === "string") return { name: value, config: {} };
  const { name, configuration = {} } = (value ?? {}) as { name?: Json; configuration?: Json };
  if (typeof name !== "string" || typeof configuration !== "object" || configuration === null)
    throw invalid(`${what} is ${JSON.stringify(value)?.slice(0, 200)}, expected a name and a configuration`, file);
  return { name, config: configuration as { [key: string]: Json } };
}

function keysV3(value: Json | undefined, file: string): { prefix: string; separator: string } {
  const { name, config } = named(value, "chunk_key_encoding", file);
  if (name !== "default" && name !== "v2") throw unsupported(`chunk key encoding ${JSON.stringify(name)}`, file);
  const separator = config["separator"] ?? (name === "v2" ? "." : "/");
  if (separator !== "." && separator !== "/") throw invalid(`separator is ${JSON.stringify(separator)}`, file);
  return { prefix: name === "v2" ? "" : `c${separator}`, separator };
}

function sizesOf(value: Json | undefined, what: string, file: string): number[] {
  const sizes = Array.isArray(value) ? (value as readonly Json[]) : undefined;
  if (
    sizes === undefined ||
    sizes.length > MOST_AXES ||
    !sizes.every((size) => Number.isSafeInteger(size) && (size as number) >= 0)
  )
    throw invalid(`${what} is ${JSON.stringify(value)?.slice(0, 200)}, expected a list of sizes`, file);
  return sizes as number[];
}

function chunkOf(value: Json | undefined, axes: number, what: string, file: string): number[] {
  const sizes = sizesOf(value, what, file);
  if (sizes.length !== axes || sizes.includes(0))
    throw invalid(`${what} is ${JSON.stringify(sizes)}, expected ${axes} sizes above 0`, file);
  return sizes;
}

function fillOf(type: DataType, value: Json | undefined, text: string, file: string): string | null {
  const exact =
    typeof value === "number"
      ? [...text.matchAll(/"fill_value"\s*:\s*(-?\d+)(?![\d.eE])/g)]
          .map(([, digits]) => digits!)
          .find((digits) => Number(digits) === value)
      : undefined;
  const bytes = fillBytes(type, value, exact);
  if (bytes === undefined) throw invalid(`fill_value ${JSON.stringify(value)} does not fit its data type`, file);
  return bytes === null ? null : Buffer.from(bytes).toString("base64");
}

/** A folder that is one array holds its only field. */
function nameOf(path: string, { kind }: DataType): string {
  if (path !== "") return path;
  return kind === "i" || kind === "u" || kind === "list" ? "input_ids" : "values";
}

function invalid(what: string, file: string, cause?: unknown): Error {
  return new ShardInvalid(
    `the metadata of the array cannot be used: ${what}`,
    { file },
    "put the right file back",
    cause,
  );
}

function unsupported(what: string, file: string): Error {
  return new Unsupported(`${what} cannot be read`, { file }, "write the array anew without");
}
