/**
 * Reads one shard whole, once: its format by content, every checksum, and what the index stores of it.
 */
import { join } from "node:path";
import type { AthanorError } from "../base/errors.ts";
import { detectFormat, formats } from "../formats/registry.ts";
import type { Format, ShardContent } from "../formats/types.ts";
import type { Kernels } from "../kernels/kernels.ts";
import type { ObjectVersion, ReadableObject, Storage } from "../storage/types.ts";
import { RUN_BLOCKS } from "./index-layout.ts";
import type { ShardTable } from "./index-layout.ts";
import type { ShardRow } from "./types.ts";

/** Enough for every format to know its own. */
const HEAD_BYTES = 4096;

export interface ScannedShard {
  format: string;
  row: ShardRow;
  table: ShardTable;
}

/** The format of a file, by its content. */
export async function formatOf(object: ReadableObject): Promise<Format> {
  const head = new Uint8Array(Math.min(HEAD_BYTES, object.size));
  await object.readInto(head, 0);
  // A file of no format goes to the first one, whose `index` refuses it and says what the file is (ATH_NOT_FORMAT).
  return detectFormat(head)?.format ?? formats[0]!;
}

/**
 * Reads all of `path`. Throws the first fault with record and byte offset; ATH_SHARD_CHANGED when the file is not (or
 * does not stay) of `version`. With `onBad` bad records are told of and kept as records.
 */
export async function scanShard(
  storage: Storage,
  root: string,
  path: string,
  version: ObjectVersion,
  kernels: Kernels,
  progress?: (bytes: number) => void,
  onBad?: (fault: AthanorError) => void,
): Promise<ScannedShard> {
  const object = await storage.open(join(root, path), version);
  try {
    const format = await formatOf(object);
    const content = await format.index(object, kernels, progress, onBad);
    const row = { path, size: object.size, mtimeNs: object.version.mtimeNs, ...rowOf(content) };
    const { crc32c, schema, table } = content;
    return { format: format.name, row, table: { path, size: object.size, crc32c, schema, table } };
  } finally {
    await object.close();
  }
}

function rowOf(content: ShardContent): Omit<ShardRow, "path" | "size" | "mtimeNs"> {
  const { records, tokens, crc32c, encoding, table } = content;
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
  return { records, tokens, crc32c, encoding, blocks: table.blocks, largestBlock, runRecords, runTokens };
}
