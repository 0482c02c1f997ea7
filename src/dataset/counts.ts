/**
 * Counts: how many tokens each record of a shard has under a view, from `.athanor/views/TOKENS/` (docs/reference/index-format.md).
 * Read a block at a time: memory does not grow with documents.
 *
 * @example
 * const counts = await readCounts(storage, countsFile(folder, tokens, row), table, row, [3]); // of block 3
 */
import { join } from "node:path";
import type { BlockTable } from "../formats/types.ts";
import { ifThere } from "../storage/errors.ts";
import type { ReadableObject, Storage } from "../storage/types.ts";
import { IndexCorrupt } from "./errors.ts";
import { HEADER_BYTES, tableName } from "./index-layout.ts";
import type { DatasetIndex, ShardRow } from "./types.ts";
import { checkCounts, checkCountsEnd, COUNTS_REMEDY, countsPlace, decodeCounts } from "./view-layout.ts";

/** Of an index on disk. `tokens`: 32 hex digits, hash of what makes tokens of a record. */
export function countsFolder(index: DatasetIndex, tokens: string): string {
  if (index.folder === undefined) throw new Error("an index in memory has no counts");
  return join(index.folder, "views", tokens);
}

export function countsFile(index: DatasetIndex, tokens: string, row: ShardRow): string {
  return join(countsFolder(index, tokens), tableName(row));
}

/** Numbers of the shards whose records have not been counted. */
export async function uncounted(index: DatasetIndex, tokens: string, storage: Storage): Promise<number[]> {
  const names = new Set(await ifThere(storage.names(countsFolder(index, tokens))));
  return index.shards.flatMap((row, i) => (names.has(tableName(row)) ? [] : [i]));
}

/** Counts that are read at a time, in records: 1 MiB. */
const PIECE = 1 << 18;
/** Files that are looked at at a time. */
const CHECKED = 8;

/** Numbers of the shards whose counts are damaged: reads all counts. */
export async function damagedCounts(index: DatasetIndex, tokens: string, storage: Storage): Promise<number[]> {
  const missing = new Set(await uncounted(index, tokens, storage));
  const queue = [...index.shards.entries()].filter(([shard]) => !missing.has(shard)).values();
  const damaged: number[] = [];
  const work = async (): Promise<void> => {
    for (const [shard, row] of queue) {
      const { table } = await index.shardTable(shard);
      try {
        const reader = await CountsReader.open(storage, countsFile(index, tokens, row), table);
        try {
          for await (const counts of reader.all()) void counts;
        } finally {
          await reader.close();
        }
      } catch (error) {
        if (!(error instanceof IndexCorrupt)) throw error;
        damaged.push(shard);
      }
    }
  };
  await Promise.all(Array.from({ length: CHECKED }, work));
  return damaged.sort((a, b) => a - b);
}

/** The file of counts of one shard, open. */
export class CountsReader {
  private readonly object: ReadableObject;
  private readonly table: BlockTable;

  private constructor(object: ReadableObject, table: BlockTable) {
    this.object = object;
    this.table = table;
  }

  /** Throws ATH_INDEX_CORRUPT for a file that is not of this shard. The caller closes it. */
  static async open(storage: Storage, file: string, table: BlockTable): Promise<CountsReader> {
    const object = await storage.open(file);
    try {
      const head = new Uint8Array(Math.min(HEADER_BYTES, object.size));
      await object.readInto(head, 0);
      const at = checkCounts(head, object.size, file, table.firstRecord[table.blocks]!, table.blocks);
      const end = new Uint8Array(object.size - at);
      await object.readInto(end, at);
      checkCountsEnd(head, end, file, at);
      return new CountsReader(object, table);
    } catch (error) {
      await object.close();
      throw error;
    }
  }

  close(): Promise<void> {
    return this.object.close();
  }

  /** Tokens of each record, block after block. Throws ATH_INDEX_CORRUPT. */
  async *all(): AsyncGenerator<Uint32Array> {
    const { blocks, firstRecord } = this.table;
    for (let from = 0; from < blocks;) {
      let to = from + 1;
      while (to < blocks && firstRecord[to + 1]! - firstRecord[from]! <= PIECE) to++;
      yield* await this.blocks(from, to);
      from = to;
    }
  }

  /** Tokens of each record of a block. */
  async block(block: number): Promise<Uint32Array> {
    return (await this.blocks(block, block + 1))[0]!;
  }

  /** The same of blocks [from, to), in one read. */
  async blocks(from: number, to: number): Promise<Uint32Array[]> {
    const { firstRecord } = this.table;
    const place = (block: number): { offset: number; length: number } =>
      countsPlace(firstRecord[block]!, block, firstRecord[block + 1]! - firstRecord[block]!);
    const { offset: begin } = place(from);
    const end = place(to - 1);
    const bytes = new Uint8Array(end.offset + end.length - begin);
    const read = await this.object.readInto(bytes, begin);
    if (read !== bytes.length) {
      const what = `file of a view is damaged: expected ${bytes.length} bytes of counts, found ${read}`;
      throw new IndexCorrupt(what, { file: this.object.uri, byteOffset: begin }, COUNTS_REMEDY);
    }
    return Array.from({ length: to - from }, (_, i) => {
      const { offset, length } = place(from + i);
      return decodeCounts(bytes.subarray(offset - begin, offset - begin + length), this.object.uri, offset);
    });
  }
}
