/**
 * Store: a Zarr folder as its files: the metadata read, the chunk files by key, and the arrays that are columns.
 *
 * Which arrays: all with as many rows as the token array (the integer array with most elements; without integers the largest of
 * any kind). Others, and those of types that no column can hold, are left out and told of.
 */
import { crc32c } from "../../base/crc32c.ts";
import { ShardInvalid, Unsupported } from "../errors.ts";
import { readAndClose } from "../../storage/read-file.ts";
import { baseName } from "../names.ts";
import type { ShardFiles } from "../types.ts";
import { isText } from "./dtype.ts";
import { arrayV2, arrayV3, parseMetadata, type ReadArray } from "./metadata.ts";
import { volume, type ArraySpec } from "./spec.ts";

export const METADATA_NAMES = ["zarr.json", ".zarray", ".zgroup"];
const MORE_NAMES = [...METADATA_NAMES, ".zattrs", ".zmetadata"];
/** Attributes and consolidated metadata can be long; data it is not. */
const MOST_METADATA = 1 << 26;
/** Names of arrays that are told of. */
const MOST_LEFT = 512;

export interface StoredFile {
  /** From 1, in `ShardFiles.beside`. */
  number: number;
  size: number;
}

export interface Store {
  /** By path below the folder. */
  files: ReadonlyMap<string, StoredFile>;
  arrays: ArraySpec[];
  /** What is no column, and why, the first MOST_LEFT by name. */
  left: { readonly [name: string]: string };
  /** Index in `arrays` of the one whose chunks make the blocks. */
  token: number;
  records: number;
  /** The file that stands for missing chunks. */
  noFile: number;
  crc32c: number;
}

export async function openStore(shard: ShardFiles): Promise<Store> {
  const files = new Map<string, StoredFile>();
  const texts = new Map<string, string>();
  const prefix = `${shard.path}/`;
  let crc = 0;
  let noFile = 0;
  for (const [i, file] of shard.beside.entries()) {
    const path = file.path.startsWith(prefix) ? file.path.slice(prefix.length) : file.path;
    files.set(path, { number: i + 1, size: file.size });
    crc = crc32c(Buffer.from(`${path}\0${file.size}\n`), crc);
    if (!MORE_NAMES.includes(baseName(path))) continue;
    const bytes = await readMetadata(shard, i);
    crc = crc32c(bytes, crc);
    if (noFile === 0 && METADATA_NAMES.includes(baseName(path))) noFile = i + 1;
    texts.set(path, Buffer.from(bytes).toString("utf8"));
  }
  const folder = folderOf(shard);
  checkConsolidated(texts, folder);
  const found = readArrays(texts, folder);
  const { left } = found;
  const all = found.arrays;
  if (all.length === 0)
    throw new Unsupported(
      `no array can be a column; found ${describeLeft(left)}`,
      { file: folder },
      "give a Zarr folder with arrays of numbers or strings",
    );
  const main =
    largest(all.filter(({ type }) => type.kind === "i" || type.kind === "u" || type.kind === "list")) ?? largest(all)!;
  const records = main.shape[0]!;
  const arrays = all.filter(({ shape }) => shape[0] === records).map((array) => withSeparator(array, files, folder));
  for (const { path, shape } of all)
    if (shape[0] !== records)
      left.set(path, `has ${shape[0]} rows, and the arrays that records are made of ${records}, as ${main.path}`);
  const token = arrays.findIndex(({ path }) => path === main.path);
  const some = [...left].sort(([a], [b]) => (a < b ? -1 : 1)).slice(0, MOST_LEFT);
  return { files, arrays, left: Object.fromEntries(some), token, records, noFile, crc32c: crc };
}

/** For messages. */
export function folderOf({ object: { uri }, path, beside }: ShardFiles): string {
  const own = beside.find((file) => uri.endsWith(`/${file.path}`));
  return own === undefined ? path : uri.slice(0, uri.length - own.path.length) + path;
}

function describeLeft(left: ReadonlyMap<string, string>): string {
  const some = [...left].slice(0, 5).map(([name, why]) => `${name || "one array"}, which ${why}`);
  return some.join("; ") || "none at all";
}

function largest(arrays: readonly ArraySpec[]): ArraySpec | undefined {
  return arrays.toSorted((a, b) => volume(b.shape) - volume(a.shape))[0];
}

async function readMetadata(shard: ShardFiles, number: number): Promise<Uint8Array> {
  const file = shard.beside[number]!;
  if (file.size > MOST_METADATA)
    throw new ShardInvalid(`metadata of ${file.size} bytes`, { file: `${folderOf(shard)}/../${file.path}` });
  return await readAndClose(await shard.open(file));
}

function readArrays(
  texts: ReadonlyMap<string, string>,
  folder: string,
): { arrays: ArraySpec[]; left: Map<string, string> } {
  const arrays: ArraySpec[] = [];
  const left = new Map<string, string>();
  for (const [path, text] of texts) {
    const name = baseName(path);
    const node = path.slice(0, Math.max(0, path.length - name.length - 1));
    const file = `${folder}/${path}`;
    let found: ReadArray | undefined;
    if (name === "zarr.json") {
      const { zarr_format, node_type } = parseMetadata(text, file);
      if (zarr_format !== 3 || (node_type !== "array" && node_type !== "group"))
        throw new ShardInvalid(
          `zarr_format is ${JSON.stringify(zarr_format)} and node_type ${JSON.stringify(node_type)}, expected 3 and "array" or "group"`,
          { file },
          "put the right file back",
        );
      if (node_type === "array") found = arrayV3(node, text, file);
    } else if (name === ".zarray" && !texts.has(node === "" ? "zarr.json" : `${node}/zarr.json`)) {
      found = arrayV2(node, text, file);
    }
    if (found === undefined) continue;
    if ("leftOut" in found) left.set(node, found.leftOut);
    else if (found.type.kind === "list" || isText(found.type)) {
      if (volume(found.shape.slice(1)) === 1) arrays.push(found);
      else left.set(node, "holds several texts or lists a row");
    } else arrays.push(found);
  }
  // By name, so that the order of fields does not depend on the version.
  arrays.sort((a, b) => (a.name < b.name ? -1 : 1));
  return { arrays, left };
}

/** Consolidated metadata are not used; an array that only they know has lost its own. */
function checkConsolidated(texts: ReadonlyMap<string, string>, folder: string): void {
  const named: string[] = [];
  const v2 = texts.get(".zmetadata");
  if (v2 !== undefined) {
    const { metadata } = parseMetadata(v2, `${folder}/.zmetadata`);
    named.push(...Object.keys((metadata ?? {}) as object).filter((path) => baseName(path) === ".zarray"));
  }
  const v3 = texts.get("zarr.json");
  if (v3 !== undefined) {
    const { consolidated_metadata } = parseMetadata(v3, `${folder}/zarr.json`);
    const { metadata } = (consolidated_metadata ?? {}) as { metadata?: object | null };
    named.push(...Object.keys(metadata ?? {}).map((path) => `${path}/zarr.json`));
  }
  const lost = named.find((path) => !texts.has(path));
  if (lost === undefined) return;
  throw new ShardInvalid(
    `the consolidated metadata name ${JSON.stringify(lost)}, which is not there`,
    { file: `${folder}/${lost}` },
    "put the file back, or consolidate the metadata again if the array was removed",
  );
}

/**
 * Version 2 wrote nested stores without saying so: what is not said is told by the files. A separator that is said and that no
 * file has, while files with the other one are there, would make an array of nothing but fill values.
 */
function withSeparator(array: ArraySpec, files: ReadonlyMap<string, StoredFile>, folder: string): ArraySpec {
  const below = array.path === "" ? "" : `${array.path}/`;
  const has = (separator: string, prefix = array.prefix === "" ? "" : `c${separator}`): boolean => {
    for (const path of files.keys()) {
      if (!path.startsWith(below + prefix)) continue;
      const numbers = path.slice(below.length + prefix.length).split(separator);
      if (numbers.length === array.shape.length && numbers.every((part) => /^\d+$/.test(part))) return true;
    }
    return false;
  };
  if (array.separator === "") return { ...array, separator: !has(".") && has("/") ? "/" : "." };
  const other = array.separator === "." ? "/" : ".";
  const everywhere = array.outer === undefined ? array : { ...array, chunk: array.outer.chunk };
  if (everywhere.shape.length > 1 && !has(array.separator) && has(other))
    throw new ShardInvalid(
      `array ${JSON.stringify(array.path)}: its chunks are to be named with ${JSON.stringify(array.separator)}, but the files are named with ${JSON.stringify(other)}`,
      { file: below === "" ? folder : `${folder}/${array.path}` },
      "put the right separator into the metadata",
    );
  return array;
}
