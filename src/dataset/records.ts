/**
 * Records of a set in file order, as values: for eyes and tests, not for training. Needs no index.
 *
 * @example
 * for await (const { record, values } of readRecords("/d", { storage, from: 0, to: 3 })) console.log(valueJson(values));
 */
import { AthanorError } from "../base/errors.ts";
import type { Value } from "../base/json.ts";
import { parseRecord, readRecords as readRawRecords } from "../formats/tfrecord/records.ts";
import type { BlockColumns } from "../formats/types.ts";
import type { Kernels } from "../kernels/kernels.ts";
import { createKernels } from "../kernels/load.ts";
import { discover } from "./discover.ts";
import type { IndexPlace } from "./index-read.ts";
import { judgeOf } from "./judge.ts";
import { isKnownNonData } from "./non-data.ts";
import { findShard, openShard } from "./shard-scan.ts";
import type { OpenedShard } from "./shard-scan.ts";
import { blameStream } from "./stream-check.ts";

export interface ReadOptions extends IndexPlace {
  /** First record, counted over the whole set. @default 0 */
  from?: number;
  /** Exclusive. @default all */
  to?: number;
  /** Told of each file that is passed over because it is no data. */
  onIgnored?: (path: string, why: string) => void;
}

export interface SetRecord {
  /** Relative to the root of the set. */
  path: string;
  /** In its file. */
  record: number;
  byteOffset: number;
  /** A feature without a kind is null, an empty list is []. */
  values: { readonly [feature: string]: Value };
}

/** Gives what is readable before a fault, then throws it. */
export async function* readRecords(source: string, options: ReadOptions): AsyncGenerator<SetRecord> {
  const { storage, from = 0, to = Number.POSITIVE_INFINITY } = options;
  const { root, paths, beside } = await discover(source, storage, options.indexDir);
  const judge = await judgeOf({ root, paths, beside }, storage);
  const kernels = createKernels(0);
  // Records of the files before.
  let before = 0;
  for (const path of paths) {
    if (before >= to) return;
    const why = await judge(path);
    if (why !== undefined) {
      options.onIgnored?.(path, why);
      continue;
    }
    let opened: OpenedShard | undefined;
    let records = 0;
    try {
      opened = await openShard(storage, root, await findShard(storage, root, path, beside.get(path)));
      for await (const found of recordsOf(opened, kernels, to - before)) {
        records = found.record + 1;
        if (before + found.record >= from) yield { path, ...found };
      }
    } catch (caught) {
      const error = opened === undefined ? caught : await blameStream(opened.shard.object, path, caught, kernels);
      const notData = error instanceof AthanorError && error.code === "ATH_NOT_FORMAT" && isKnownNonData(path);
      if (!notData || paths.length === 1) throw error;
      options.onIgnored?.(path, error.what);
    } finally {
      await opened?.shard.object.close();
    }
    before += records;
  }
}

/** The first `to` records of one shard. */
async function* recordsOf(
  { format, shard }: OpenedShard,
  kernels: Kernels,
  to: number,
): AsyncGenerator<Omit<SetRecord, "path">> {
  if (to <= 0) return;
  if (format.kind === "rows") {
    const { object } = shard;
    for await (const raw of readRawRecords(object, kernels, { to })) {
      const features = [...parseRecord(object.uri, raw)].map(([name, list]) => [name, list?.values ?? null] as const);
      yield { record: raw.record, byteOffset: raw.byteOffset, values: Object.fromEntries(features) };
    }
    return;
  }
  await format.ready?.();
  let first = 0;
  for await (const block of format.scan(shard, { kernels })) {
    for (let i = 0; i < block.records; i++) {
      if (first + i >= to) return;
      const fault = block.columns.faults.get(i);
      if (fault !== undefined) throw fault;
      const byteOffset = block.offsets?.[i] ?? block.segments[0]?.offset ?? 0;
      yield { record: first + i, byteOffset, values: block.record?.(i) ?? columnValues(block.columns, i) };
    }
    first += block.records;
  }
}

function columnValues({ fields }: BlockColumns, i: number): SetRecord["values"] {
  const values: [string, Value][] = [];
  for (const [name, { values: all, ends, present }] of fields) {
    const own = all.subarray(i === 0 ? 0 : ends[i - 1], ends[i]);
    values.push([name, present?.[i] === 0 ? null : own instanceof Uint8Array ? own : Array.from<number | bigint>(own)]);
  }
  return Object.fromEntries(values);
}
