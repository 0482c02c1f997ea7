/**
 * Adopting an index that came along with a copy: the copy's mtimes differ, so every shard would be read again. Sizes and
 * one sampled record of each shard are compared instead, and the index is written anew with the files' own mtimes.
 * A shard that does not fit is an error; what was not sampled is not checked (that is what `athanor verify` is for).
 *
 * @example
 * const { index, adopted } = await adoptIndex("/copy", { storage });
 */
import { join } from "node:path";
import { readRecords } from "../formats/tfrecord/records.ts";
import type { BlockTable } from "../formats/types.ts";
import { createKernels } from "../kernels/load.ts";
import type { Kernels } from "../kernels/kernels.ts";
import type { ReadableObject, Storage } from "../storage/types.ts";
import { discover } from "./discover.ts";
import { IndexMissing, IndexStale, indexCommand } from "./errors.ts";
import { IndexWriter } from "./index-write.ts";
import { INDEX_VERSION } from "./index-layout.ts";
import { openIndex } from "./index-read.ts";
import type { DatasetIndex, ShardRow } from "./types.ts";

export interface AdoptOptions {
  storage: Storage;
  indexDir?: string | undefined;
  progress?: (done: number, total: number, path: string) => void;
}

/** Throws ATH_INDEX_MISSING, ATH_INDEX_STALE for another size, and the fault of a sampled record. */
export async function adoptIndex(
  source: string,
  options: AdoptOptions,
): Promise<{ index: DatasetIndex; adopted: number }> {
  const { storage, progress } = options;
  const index = await openIndex(source, options);
  if (index === undefined) {
    throw new IndexMissing("there is no index to adopt", { file: source }, indexCommand(source, options.indexDir));
  }
  const { root, indexDir } = await discover(source, storage, options.indexDir);
  const kernels = createKernels(0);
  const shards: ShardRow[] = [];
  let adopted = 0;
  for (const [number, row] of index.shards.entries()) {
    const file = join(root, row.path);
    const object = await storage.open(file);
    try {
      if (object.size !== row.size) {
        const what = `the copy has another size: found ${object.size} bytes, the index says ${row.size}`;
        throw new IndexStale(what, { file }, "copy the shard again, or index the data anew");
      }
      if (object.version.mtimeNs !== row.mtimeNs) {
        await checkSample(object, kernels, row, (await index.shardTable(number)).table);
        adopted++;
      }
      shards.push({ ...row, mtimeNs: object.version.mtimeNs });
    } finally {
      await object.close();
    }
    progress?.(number + 1, index.shards.length, row.path);
  }
  if (adopted > 0) {
    const { format, fingerprint, totals, schema, ignored } = index;
    const writer = new IndexWriter(indexDir, source);
    await writer.prepare();
    await writer.publish({ version: INDEX_VERSION, format, fingerprint, totals, schema, ignored }, shards);
  }
  return { index: { ...index, shards, shardTable: (shard) => index.shardTable(shard) }, adopted };
}

/** A record of the shard where the index says one begins: its framing and checksums must hold. Streams: the first one. */
async function checkSample(object: ReadableObject, kernels: Kernels, row: ShardRow, table: BlockTable): Promise<void> {
  if (row.records === 0) return;
  const block = Math.floor(Math.random() * table.blocks);
  const restarts = (table.restartStart[block + 1] as number) - (table.restartStart[block] as number);
  const restart = (table.restartStart[block] as number) + Math.floor(Math.random() * restarts);
  const begin =
    (table.segmentOffset[table.segmentStart[block] as number] as number) + (table.restarts[restart] as number);
  const from = table.stream ? 0 : begin;
  for await (const _ of readRecords(tail(object, from), kernels, { from: 0, to: 1 })) return;
  throw new IndexStale(
    `no record begins at byte ${from}, where the index says one does`,
    { file: object.uri, byteOffset: from },
    "the copy is not of the same data: index it anew",
  );
}

/** The object from byte `from` on. */
function tail(object: ReadableObject, from: number): ReadableObject {
  return {
    uri: object.uri,
    size: object.size - from,
    version: object.version,
    readInto: (target, offset) => object.readInto(target, from + offset),
    close: () => Promise.resolve(),
  };
}
