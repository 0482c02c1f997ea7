/**
 * Verify: reads every byte of a set and compares it with the index. Every shard is looked at, also after a fault, so
 * that one run names all that is wrong.
 */
import { join } from "node:path";
import type { AthanorError } from "../base/errors.ts";
import { toErrorRecord } from "../base/errors.ts";
import type { ErrorRecord } from "../base/errors.ts";
import type { BlockTable } from "../formats/types.ts";
import type { Kernels } from "../kernels/kernels.ts";
import { createKernels } from "../kernels/load.ts";
import type { Storage } from "../storage/types.ts";
import { discover } from "./discover.ts";
import type { Discovered } from "./discover.ts";
import { VerifyMismatch } from "./errors.ts";
import { openIndex } from "./index-read.ts";
import { judgeOf } from "./judge.ts";
import { MissingCount, missingError } from "./missing-chunks.ts";
import { isKnownNonData } from "./non-data.ts";
import { findShard, scanShard } from "./shard-scan.ts";
import type { FoundShard } from "./shard-scan.ts";
import type { DatasetIndex, MissingChunks } from "./types.ts";

export interface VerifyOptions {
  storage: Storage;
  indexDir?: string | undefined;
  /** Missing chunks are a problem. @default false */
  strictChunks?: boolean;
  progress?: (done: number, total: number, path: string) => void;
}

export interface VerifyReport {
  /** False: there is no index, only the shards' own checksums were checked. */
  indexed: boolean;
  shards: number;
  /** Without the bad ones, and without those of shards that could not be read to the end. */
  records: number;
  bytes: number;
  /** Chunks of arrays that no file holds; they read as fill values. */
  missingChunks: number;
  problems: ErrorRecord[];
}

export async function verify(source: string, options: VerifyOptions): Promise<VerifyReport> {
  const { storage } = options;
  const index = await openIndex(source, options);
  const { root, paths, beside } =
    index === undefined ? await discover(source, storage, options.indexDir) : fromIndex(index);
  const judge = index === undefined ? await judgeOf({ root, paths, beside }, storage) : undefined;
  const report: VerifyReport = {
    indexed: index !== undefined,
    shards: 0,
    records: 0,
    bytes: 0,
    missingChunks: 0,
    problems: [],
  };
  const kernels = createKernels(0);
  // Without an index the sizes are not known beforehand.
  let total = index?.totals.bytes ?? 0;
  for (const [shard, path] of paths.entries()) {
    try {
      if ((await judge?.(path)) !== undefined) continue;
      const found =
        index === undefined ? await findShard(storage, root, path, beside.get(path)) : await indexed(index, shard);
      const { version } = found;
      if (index === undefined) total += version.size;
      const progress = (bytes: number): void => options.progress?.(report.bytes + bytes, total, path);
      // Rows of one damaged chunk share their fault.
      let last: AthanorError | undefined;
      const onBad = (fault: AthanorError): void => {
        if (fault !== last) report.problems.push(toErrorRecord(fault));
        last = fault;
      };
      const { records, missing } = await verifyShard({ storage, root, found, kernels, progress, onBad }, index, shard);
      report.missingChunks += missing?.chunks ?? 0;
      report.records += records;
      report.bytes += version.size;
      report.shards++;
      if (options.strictChunks === true && missing !== undefined)
        report.problems.push(missingError(root, missing).toRecord());
    } catch (error) {
      const record = toErrorRecord(error);
      if (record.code === "ATH_NOT_FORMAT" && index === undefined && paths.length > 1 && isKnownNonData(path)) continue;
      report.shards++;
      report.problems.push(record);
    }
  }
  return report;
}

function fromIndex(index: DatasetIndex): Pick<Discovered, "root" | "paths" | "beside"> {
  return { root: index.root, paths: index.shards.map(({ path }) => path), beside: new Map() };
}

/** The shard as the index knows it. */
async function indexed(index: DatasetIndex, shard: number): Promise<FoundShard> {
  const { path, size, mtimeNs } = index.shards[shard]!;
  const { files = [], folder = false } = (await index.shardTable(shard)) ?? {};
  return { path, version: { size, mtimeNs }, folder, beside: files };
}

interface Scan {
  storage: Storage;
  root: string;
  found: FoundShard;
  kernels: Kernels;
  progress: (bytes: number) => void;
  onBad: (fault: AthanorError) => void;
}

/** `records`: without the bad ones, of which `onBad` is told. Throws for other bytes than the index says. */
async function verifyShard(
  scan: Scan,
  index: DatasetIndex | undefined,
  shard: number,
): Promise<{ records: number; missing: MissingChunks | undefined }> {
  const { storage, root, found, kernels, progress } = scan;
  const { path } = found;
  let bad = 0;
  const onBad = (fault: AthanorError): void => {
    bad++;
    scan.onBad(fault);
  };
  const { row, table } = await scanShard(storage, root, found, kernels, { progress, onBad, everything: true });
  const count = new MissingCount();
  count.add(path, table.meta);
  const verified = { records: row.records - bad, missing: count.found };
  // Damage is why the bytes are others than those of the index, and has been told of.
  if (index === undefined || bad > 0) return verified;
  const file = join(root, path);
  const expected = index.shards[shard]!;
  for (const name of ["crc32c", "records", "tokens", "blocks"] as const) {
    if (row[name] === expected[name]) continue;
    throw new VerifyMismatch(
      `its bytes are not those that were indexed, though size and mtime are: ${name} found ${row[name]}, expected ${expected[name]}`,
      { file },
      "put the right file back, or run `athanor index --rebuild` if this one is right",
    );
  }
  const stored = (await index.shardTable(shard)).table;
  const part = differentPart(table.table, stored);
  if (part !== undefined) {
    throw new VerifyMismatch(
      `its block table in the index is wrong: ${part} differ`,
      { file },
      "run `athanor index --rebuild`",
    );
  }
  return verified;
}

function differentPart(found: BlockTable, stored: BlockTable): string | undefined {
  const columns = [
    "firstRecord",
    "tokens",
    "segmentStart",
    "segmentFile",
    "segmentOffset",
    "segmentLength",
    "segmentField",
    "restartStart",
    "restarts",
    "origin",
  ] as const;
  return columns.find((column) => Buffer.compare(bytesOf(found[column]), bytesOf(stored[column])) !== 0);
}

function bytesOf(array: Float64Array | Uint32Array | undefined): Buffer {
  if (array === undefined) return Buffer.alloc(0);
  return Buffer.from(array.buffer, array.byteOffset, array.byteLength);
}
