/**
 * Inspect: what a set is and how it would be read, from its index, or from a scan in memory when the set is small and
 * has none.
 */
import type { Value } from "../base/json.ts";
import { formatSize } from "../base/units.ts";
import { isStream } from "../formats/types.ts";
import { resolveOrder } from "../order/mod.ts";
import type { Storage } from "../storage/types.ts";
import { discover } from "./discover.ts";
import { IndexMissing, indexCommand } from "./errors.ts";
import { extents, orderView } from "./extents.ts";
import { buildIndex } from "./index-build.ts";
import { openIndex } from "./index-read.ts";
import { readRecords } from "./records.ts";
import { findShard } from "./shard-scan.ts";
import { sampleIndex, sampleRule, sampleRules } from "./samples.ts";
import type { DatasetIndex } from "./types.ts";

export interface InspectOptions {
  storage: Storage;
  indexDir?: string | undefined;
  /** Records to show. */
  samples: number;
  progress?: (done: number, total: number, path: string) => void;
}

/** How the loader would read the set with its default options and rows as long as the longest list. */
export interface ReadingPlan {
  /** A gzip or zlib shard counts as one. */
  blocks: number;
  blockBytes: number;
  extents: number;
  /** Mean; the unit that is permuted. */
  extentBytes: number;
  lanes: number;
  shuffle: string;
  window: number;
  /** Bytes of one read: adjacent blocks of an extent are merged. */
  readBytes: number;
  streams: number;
}

export interface Inspection {
  index: DatasetIndex;
  /** False: the set has no index; it was scanned in memory. */
  indexed: boolean;
  /** Undefined for a set without records. */
  reading: ReadingPlan | undefined;
  samples: { readonly [feature: string]: Value }[];
}

/** A set without an index that is larger is not scanned: `athanor index` keeps what it reads. */
const SCAN_LIMIT = 2 ** 30;
/** Tokens of a sample where the data leaves that to the view: the loader's default. */
const TOKENS = 512;
/** The feed merges reads of a lane up to this. */
const MERGED_READ = 8 * 1024 * 1024;

export async function inspect(source: string, options: InspectOptions): Promise<Inspection> {
  const stored = await openIndex(source, options);
  const index = stored ?? (await scan(source, options));
  const samples: Inspection["samples"] = [];
  for await (const { values } of readRecords(source, { ...options, to: options.samples })) samples.push(values);
  const reading = index.totals.records === 0 ? undefined : await readingPlan(index, options.storage);
  return { index: withElements(index), indexed: stored !== undefined, reading, samples };
}

/** Records of a stream of tokens are its elements, of one value each; the index has such a field as one list of them all. */
function withElements(index: DatasetIndex): DatasetIndex {
  const rules = sampleRules(index);
  if (rules.includes("record") || rules.includes("document") || index.totals.records === 0) return index;
  const fields = index.schema.fields.map((field) => ({ ...field, minLength: 1, maxLength: 1 }));
  return { ...index, schema: { ...index.schema, fields } };
}

async function scan(source: string, options: InspectOptions): Promise<DatasetIndex> {
  const { storage } = options;
  const { root, paths, beside } = await discover(source, storage, options.indexDir);
  let bytes = 0;
  for (const path of paths) {
    bytes += (await findShard(storage, root, path, beside.get(path))).version.size;
    if (bytes <= SCAN_LIMIT) continue;
    throw new IndexMissing(
      `there is no index, and more than ${formatSize(SCAN_LIMIT)} would have to be read`,
      { file: source },
      indexCommand(source, options.indexDir),
    );
  }
  return buildIndex(source, { ...options, write: false });
}

async function readingPlan(index: DatasetIndex, storage: Storage): Promise<ReadingPlan | undefined> {
  const samples = await sampleIndex(index, sampleRule(index, undefined), TOKENS, storage);
  if (samples.totals.records === 0) return undefined;
  const numeric = index.schema.fields.filter(({ kind }) => kind !== "bytes");
  const rowBytes = numeric.reduce(
    (sum, { maxLength }) => sum + (samples.cut === undefined ? maxLength : TOKENS) * 4,
    0,
  );
  // The view's name is in no result: any will do.
  const view = await orderView(samples, index.fingerprint, rowBytes);
  const { lanes, shuffle, window, extentBlocks } = resolveOrder(view, { seed: 0n, globalBatch: 1 });
  const { count } = await extents(samples, extentBlocks);
  const extentBytes = index.totals.bytes / count;
  return {
    blocks: view.blocks,
    blockBytes: Math.round(index.totals.bytes / view.blocks),
    extents: count,
    extentBytes: Math.round(extentBytes),
    lanes,
    shuffle,
    window,
    readBytes: Math.round(Math.min(extentBytes, MERGED_READ)),
    streams: index.shards.filter(({ encoding }) => isStream(encoding)).length,
  };
}
