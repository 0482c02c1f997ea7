/**
 * Reads one shard whole, once: its format by content, every checksum, and what the index stores of it.
 */
import { basename, join } from "node:path";
import { splitBeside } from "../formats/mds/groups.ts";
import { notAnyFormat } from "../formats/describe.ts";
import { StreamCorrupt } from "../formats/errors.ts";
import { detectFormat, formats } from "../formats/registry.ts";
import { tfrecord } from "../formats/tfrecord/format.ts";
import type {
  BlockTable,
  Format,
  IndexOptions,
  ShardContent,
  ShardFile,
  ShardFiles,
  ShardListing,
} from "../formats/types.ts";
import type { Kernels } from "../kernels/kernels.ts";
import { FOLDER_MARKS } from "../storage/types.ts";
import type { ObjectVersion, ReadableObject, Storage } from "../storage/types.ts";
import { RUN_BLOCKS } from "./index-layout.ts";
import type { ShardTable } from "./index-layout.ts";
import { shardFile, versionOf } from "./shard-files.ts";
import { blameStream } from "./stream-check.ts";
import type { ShardRow } from "./types.ts";

/** Enough for every format to know its own. */
const HEAD_BYTES = 4096;
/** Stats in flight: a Zarr folder has as many files as chunks. */
const CONCURRENT_STATS = 16;
/** Names of files that are compressed as a whole. */
const COMPRESSED = /\.(gz|gzip|tgz|zst|zstd|zz|br|bz2|snappy)$/i;

export interface ScannedShard {
  format: string;
  row: ShardRow;
  table: ShardTable;
}

/** The format of a file, by its content. Throws ATH_NOT_FORMAT, saying what it is. */
async function formatOf(object: ReadableObject, name: string, beside: readonly ShardFile[]): Promise<Format> {
  const head = new Uint8Array(Math.min(HEAD_BYTES, object.size));
  await object.readInto(head, 0);
  if (object.size === 0 && COMPRESSED.test(name)) {
    throw new StreamCorrupt(
      "the file is empty: what compresses nothing writes a header and an end all the same",
      { file: object.uri, record: 0, byteOffset: 0 },
      "its writer or its copy was cut short: write it again, or take it away",
    );
  }
  const others = beside.map((file) => file.path);
  const found = detectFormat(head, name, others)?.format;
  if (found !== undefined) return found;
  // A damaged TFRecord shard: its reader says what is wrong with its first record.
  if (/tfrecord/i.test(name)) return tfrecord;
  const names = formats.map((format) => format.name);
  throw notAnyFormat(head, object.uri, names);
}

/** A shard as it is found. */
export interface FoundShard {
  path: string;
  /** Of the shard's own file; of a folder the sizes of its files summed and the newest mtime. */
  version: ObjectVersion;
  /** The shard is a folder. */
  folder: boolean;
  /** Its other files, or all files of a folder. */
  beside: ShardFile[];
  /** The file that lists it. */
  listing?: ShardListing;
}

/** Asks for the version of every file of a shard. */
export async function findShard(
  storage: Storage,
  root: string,
  path: string,
  beside: readonly string[] | undefined,
): Promise<FoundShard> {
  const { kind, ...version } = await storage.stat(join(root, path));
  if (beside === undefined) return { path, version, folder: false, beside: [] };
  const { parts, listing } = splitBeside(path, beside);
  if (listing !== undefined) {
    const file = shardFile(listing.file, await storage.stat(join(root, listing.file)));
    return { path, version, folder: false, beside: [], listing: { file, next: listing.next } };
  }
  const files: ShardFile[] = [];
  for (let from = 0; from < parts.length; from += CONCURRENT_STATS) {
    const some = parts.slice(from, from + CONCURRENT_STATS);
    const versions = await Promise.all(some.map((other) => storage.stat(join(root, other))));
    versions.forEach((found, i) => files.push(shardFile(some[i]!, found)));
  }
  return kind === "file"
    ? { path, version, folder: false, beside: files }
    : { path, version: folderVersion(files), folder: true, beside: files };
}

/** The version of a folder: what its files weigh, and when the last of them was written. */
function folderVersion(files: readonly ShardFile[]): ObjectVersion {
  const times = files.map(({ mtimeNs }) => BigInt(mtimeNs));
  return {
    size: files.reduce((sum, { size }) => sum + size, 0),
    mtimeNs: times.reduce((newest, time) => (time > newest ? time : newest), 0n),
  };
}

/**
 * Reads all of a shard. Throws the first fault with record and byte offset; ATH_SHARD_CHANGED when a file is not (or
 * does not stay) of its version. With `onBad` bad records are told of and kept as records.
 */
export async function scanShard(
  storage: Storage,
  root: string,
  found: FoundShard,
  kernels: Kernels,
  options: Omit<IndexOptions, "kernels"> = {},
): Promise<ScannedShard> {
  const { path, version, folder } = found;
  const { format, shard } = await openShard(storage, root, found);
  try {
    if (format.kind === "columns") await format.ready?.();
    const content = await format.index(shard, { kernels, ...options });
    const row = { path, size: version.size, mtimeNs: version.mtimeNs, ...rowOf(content) };
    const { crc32c, schema, table, meta, files } = content;
    const stored: ShardTable = { path, size: version.size, crc32c, schema, table };
    if (meta !== undefined) stored.meta = meta;
    if (files !== undefined) stored.files = files;
    if (folder) stored.folder = true;
    return { format: format.name, row, table: stored };
  } catch (error) {
    throw await blameStream(shard.object, path, error, kernels);
  } finally {
    await shard.object.close();
  }
}

/** A shard with its own file open; whoever opened it closes that. */
export interface OpenedShard {
  format: Format;
  shard: ShardFiles;
}

/** Opens a shard and finds its format, by its content. */
export async function openShard(storage: Storage, root: string, found: FoundShard): Promise<OpenedShard> {
  const { path, version, folder, beside, listing } = found;
  // Of a folder its metadata, which its files cannot be read without.
  const own = folder ? (beside.find((file) => FOLDER_MARKS.includes(basename(file.path))) ?? beside[0]!) : undefined;
  const open = (file: ShardFile): Promise<ReadableObject> => storage.open(join(root, file.path), versionOf(file));
  const object = own !== undefined ? await open(own) : await storage.open(join(root, path), version);
  try {
    return {
      format: await formatOf(object, own?.path ?? path, beside),
      shard: { object, path, beside, listing, open },
    };
  } catch (error) {
    await object.close();
    throw error;
  }
}

function rowOf(content: ShardContent): Omit<ShardRow, "path" | "size" | "mtimeNs"> {
  const { records, tokens, crc32c, encoding, table } = content;
  return { records, tokens, crc32c, encoding, blocks: table.blocks, ...runsOf(table) };
}

/** What the row of a shard says of its blocks. */
export function runsOf(table: BlockTable): Pick<ShardRow, "largestBlock" | "runRecords" | "runTokens"> {
  const runs = Math.ceil(table.blocks / RUN_BLOCKS);
  const runRecords = new Float64Array(runs);
  const runTokens = new Float64Array(runs);
  let largestBlock = 0;
  for (let block = 0; block < table.blocks; block++) {
    const count = table.firstRecord[block + 1]! - table.firstRecord[block]!;
    largestBlock = Math.max(largestBlock, count);
    const run = Math.floor(block / RUN_BLOCKS);
    runRecords[run]! += count;
    runTokens[run]! += table.tokens[block]!;
  }
  return { largestBlock, runRecords, runTokens };
}
