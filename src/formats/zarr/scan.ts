/** Scan: the blocks of a Zarr folder in order of their rows, each with its bytes read and its columns decoded. */
import { widened } from "../dense.ts";
import { indexColumns } from "../index-columns.ts";
import type { ColumnFormat, IndexOptions, ScanEnd, ScannedBlock, ShardFiles } from "../types.ts";
import { BlockPlan, type PlannedSegment } from "./blocks.ts";
import { keptColumns, type UnitSegment } from "./columns.ts";
import { recordOf } from "./record.ts";
import type { ZarrMeta } from "./spec.ts";
import { folderOf, openStore } from "./store.ts";

/** Chunk files that are open at a time. */
const CONCURRENT_READS = 8;

export async function* scan(shard: ShardFiles, { progress }: IndexOptions): AsyncGenerator<ScannedBlock, ScanEnd> {
  const store = await openStore(shard);
  const { arrays, noFile, left } = store;
  const meta: ZarrMeta = { fields: arrays.map(({ name }) => name), arrays, noFile };
  const plan = new BlockPlan(shard, store);
  const file = folderOf(shard);
  let read = 0;
  let last: Bytes = new Map();
  let number = 0;
  for await (const block of plan.blocks()) {
    const bytes = await readAll(shard, block.segments, last);
    for (const [key, data] of bytes) if (!last.has(key)) read += data.length;
    last = bytes;
    const segments = block.segments.map((segment): UnitSegment => ({ ...segment, bytes: bytes.get(keyOf(segment))! }));
    const records = block.to - block.from;
    const raw = { file, block: number++, firstRecord: block.from, records, segments, meta, checkCrc: true };
    const { fields, faults } = await keptColumns(raw, meta.fields);
    const found = { fields: new Map([...fields].map(([name, column]) => [name, widened(column)])), faults };
    progress?.(read);
    yield {
      records,
      segments: block.segments.map(({ file: of, offset, length, field }) => ({ file: of, offset, length, field })),
      restarts: [],
      columns: found,
      record: (i) => recordOf(arrays, found, i),
    };
  }
  if (plan.missing > 0) {
    meta.missingChunks = plan.missing;
    meta.firstMissing = plan.firstMissing!;
  }
  return { encoding: "plain", crc32c: store.crc32c, meta, files: [...shard.beside], notColumns: left };
}

export const index: ColumnFormat["index"] = (shard, options) => indexColumns(scan(shard, options), shard, options);

type Bytes = Map<string, Uint8Array>;

function keyOf({ file, offset, length }: PlannedSegment): string {
  return `${file} ${offset} ${length}`;
}

/** The bytes of all segments; a chunk that the block before had too is not read again. */
async function readAll(shard: ShardFiles, segments: readonly PlannedSegment[], known: Bytes): Promise<Bytes> {
  const bytes: Bytes = new Map();
  const wanted: PlannedSegment[] = [];
  for (const segment of segments) {
    const key = keyOf(segment);
    if (bytes.has(key)) continue;
    const before = segment.length === 0 ? new Uint8Array(0) : known.get(key);
    bytes.set(key, before ?? new Uint8Array(segment.length));
    if (before === undefined) wanted.push(segment);
  }
  let next = 0;
  const reader = async (): Promise<void> => {
    for (let i = next++; i < wanted.length; i = next++) {
      const segment = wanted[i]!;
      const object = await shard.open(shard.beside[segment.file - 1]!);
      try {
        await object.readInto(bytes.get(keyOf(segment))!, segment.offset);
      } finally {
        await object.close();
      }
    }
  };
  const readers = await Promise.allSettled(Array.from({ length: CONCURRENT_READS }, reader));
  for (const result of readers) if (result.status === "rejected") throw result.reason;
  return bytes;
}
