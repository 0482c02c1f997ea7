/**
 * Records of a set in file order, as values: for eyes and tests, not for training. Needs no index.
 *
 * @example
 * for await (const { record, values } of readRecords("/d", { storage, from: 0, to: 3 })) console.log(valueJson(values));
 */
import { join } from "node:path";
import { AthanorError } from "../base/errors.ts";
import type { Value } from "../base/json.ts";
import { parseRecord, readRecords as readRawRecords } from "../formats/tfrecord/records.ts";
import { createKernels } from "../kernels/load.ts";
import { discover } from "./discover.ts";
import type { IndexPlace } from "./index-read.ts";
import { isKnownNonData } from "./non-data.ts";

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
  const { root, paths } = await discover(source, storage, options.indexDir);
  const kernels = createKernels(0);
  // Records of the files before.
  let before = 0;
  for (const path of paths) {
    if (before >= to) return;
    const file = join(root, path);
    const object = await storage.open(file);
    let records = 0;
    try {
      for await (const raw of readRawRecords(object, kernels, { to: to - before })) {
        records = raw.record + 1;
        if (before + raw.record < from) continue;
        const features = [...parseRecord(file, raw)].map(([name, list]) => [name, list?.values ?? null] as const);
        yield { path, record: raw.record, byteOffset: raw.byteOffset, values: Object.fromEntries(features) };
      }
    } catch (error) {
      const notData = error instanceof AthanorError && error.code === "ATH_NOT_FORMAT" && isKnownNonData(path);
      if (!notData || paths.length === 1) throw error;
      options.onIgnored?.(path, error.what);
    } finally {
      await object.close();
    }
    before += records;
  }
}
