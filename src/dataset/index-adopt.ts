/**
 * Adopting an index that came along with a copy: the copy's mtimes differ, so every shard would be read again. Sizes and
 * one sampled record of each shard are compared instead, and the index is written anew with the files' own mtimes.
 * A shard that does not fit is an error; what was not sampled is not checked (that is what `athanor verify` is for).
 *
 * @example
 * const { index, adopted } = await adoptIndex("/copy", { storage });
 */
import { join } from "node:path";
import { unpackBlock } from "../formats/packed.ts";
import { formatOf } from "../formats/registry.ts";
import { readRecords } from "../formats/tfrecord/records.ts";
import type { BlockTable, ColumnFormat, PlacedSegment, ShardFile, ShardFiles } from "../formats/types.ts";
import { createKernels } from "../kernels/load.ts";
import type { Kernels } from "../kernels/kernels.ts";
import type { ReadableObject, Storage } from "../storage/types.ts";
import { discover } from "./discover.ts";
import { IndexMissing, IndexStale, indexCommand } from "./errors.ts";
import { IndexWriter } from "./index-write.ts";
import { INDEX_VERSION } from "./index-layout.ts";
import { openIndex } from "./index-read.ts";
import { isSameFile } from "./shard-files.ts";
import { findShard, openShard } from "./shard-scan.ts";
import type { FoundShard } from "./shard-scan.ts";
import type { DatasetIndex, ShardRow, StoredTable } from "./types.ts";

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
  const { root, indexDir, beside } = await discover(source, storage, options.indexDir);
  const format = formatOf(index.format);
  const writer = new IndexWriter(indexDir, source);
  const kernels = createKernels(0);
  const shards: ShardRow[] = [];
  let adopted = 0;
  if (format.kind === "columns") await format.ready?.();
  for (const [number, row] of index.shards.entries()) {
    const found = await findShard(storage, root, row.path, beside.get(row.path));
    const stored = await index.shardTable(number);
    compareSizes(root, row, stored, found);
    const fresh = found.version.mtimeNs !== row.mtimeNs || changedTimes(stored, found);
    if (fresh) {
      const { shard } = await openShard(storage, root, found);
      try {
        if (format.kind === "rows") await checkRecord(shard.object, kernels, row, stored.table);
        else await checkBlock(shard, format, kernels, stored);
      } finally {
        await shard.object.close();
      }
      if (stored.files !== undefined) {
        if (adopted === 0) await writer.prepare();
        const { path, size, crc32c } = row;
        await writer.writeTable({ ...stored, path, size, crc32c, files: filesNow(stored, found) });
      }
      adopted++;
    }
    shards.push({ ...row, mtimeNs: found.version.mtimeNs });
    progress?.(number + 1, index.shards.length, row.path);
  }
  if (adopted > 0) {
    const { format, fingerprint, totals, schema, ignored, past, missing, largestBlock } = index;
    await writer.prepare();
    const others = {
      ...(past.length > 0 && { past }),
      ...(missing && { missing }),
      ...(largestBlock && { largestBlock }),
    };
    await writer.publish({ version: INDEX_VERSION, format, fingerprint, totals, schema, ignored, ...others }, shards);
  }
  return { index: { ...index, shards, shardTable: (shard) => index.shardTable(shard) }, adopted };
}

function compareSizes(root: string, row: ShardRow, { files = [] }: StoredTable, { version, beside }: FoundShard): void {
  const pairs = [{ path: row.path, expected: row.size, size: version.size as number | undefined }];
  for (const { path, size } of files) {
    pairs.push({ path, expected: size, size: beside.find((file) => file.path === path)?.size });
  }
  const other = pairs.find(({ size, expected }) => size !== expected);
  if (other === undefined) return;
  throw new IndexStale(
    `the copy has another size: found ${other.size ?? "no"} bytes, the index says ${other.expected}`,
    { file: join(root, other.path) },
    "copy the shard again, or index the data anew",
  );
}

function changedTimes({ files = [] }: StoredTable, { beside }: FoundShard): boolean {
  const now = new Map(beside.map((file) => [file.path, file]));
  return files.some((file) => !isSameFile(file, now.get(file.path) ?? { ...file, size: -1 }));
}

/** The files of a shard in the order of its table, with the mtimes of the copy. */
function filesNow({ files = [] }: StoredTable, { beside }: FoundShard): ShardFile[] {
  return files.map((file) => beside.find(({ path }) => path === file.path) ?? file);
}

/** A record of the shard where the index says one begins: its framing and checksums must hold. Streams: the first one. */
async function checkRecord(object: ReadableObject, kernels: Kernels, row: ShardRow, table: BlockTable): Promise<void> {
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

/** A block of the shard: it must be decoded to as many records as the index says. Streams: the first one. */
async function checkBlock(
  shard: ShardFiles,
  format: ColumnFormat,
  kernels: Kernels,
  { schema, table, meta = {}, files = [] }: StoredTable,
): Promise<void> {
  if (table.blocks === 0) return;
  if (table.stream) {
    const blocks = format.scan(shard, { kernels });
    await blocks.next();
    await blocks.return(undefined as never);
    return;
  }
  const block = Math.floor(Math.random() * table.blocks);
  const segments: PlacedSegment[] = [];
  for (let s = table.segmentStart[block]!; s < table.segmentStart[block + 1]!; s++) {
    const file = table.segmentFile[s]!;
    const bytes = new Uint8Array(table.segmentLength[s]!);
    const object = file === 0 ? shard.object : await shard.open(filesOf(shard, files[file - 1]!));
    try {
      await object.readInto(bytes, table.segmentOffset[s]!);
    } finally {
      if (file !== 0) await object.close();
    }
    const [offset, length, field] = [table.segmentOffset[s]!, bytes.length, table.segmentField[s]!];
    segments.push({ file, offset, length, field, bytes });
  }
  const firstRecord = table.firstRecord[block]!;
  const records = table.firstRecord[block + 1]! - firstRecord;
  const stored = { file: shard.object.uri, block, firstRecord, records, segments, meta, checkCrc: true };
  const raw =
    table.origin === undefined
      ? stored
      : unpackBlock(
          { ...stored, origin: table.origin[block]! },
          table.restarts.subarray(table.restartStart[block], table.restartStart[block + 1]),
        ).raw;
  const fields = schema.fields.map(({ name }) => name);
  const { faults } = await format.columns(raw, fields);
  for (const [, fault] of faults) throw fault;
}

function filesOf({ beside }: ShardFiles, { path }: ShardFile): ShardFile {
  return beside.find((file) => file.path === path)!;
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
