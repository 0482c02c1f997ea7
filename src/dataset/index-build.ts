/**
 * Building an index, or bringing it up to date: a shard whose path, size and mtime are those of the index is not read
 * again, new and changed ones are read whole, those that are gone are dropped.
 *
 * @example
 * const storage = createPosixStorage();
 * const index = await buildIndex("/d", { storage, progress: (done, total) => console.error(done, total) });
 */
import { join } from "node:path";
import { AthanorError } from "../base/errors.ts";
import { createKernels } from "../kernels/load.ts";
import type { ShardFile } from "../formats/types.ts";
import type { Storage } from "../storage/types.ts";
import { discover } from "./discover.ts";
import type { Discovered } from "./discover.ts";
import { FormatConflict, IndexCorrupt, NoShards } from "./errors.ts";
import { dataFingerprint } from "./fingerprint.ts";
import { INDEX_VERSION, tableName } from "./index-layout.ts";
import type { Manifest, ShardTable } from "./index-layout.ts";
import { StoredIndex, readIndex, readTable } from "./index-read.ts";
import { IndexWriter } from "./index-write.ts";
import { judgeOf } from "./judge.ts";
import type { Judge } from "./judge.ts";
import { LargestBlock } from "./largest-block.ts";
import { MissingCount, refuseMissing } from "./missing-chunks.ts";
import { isKnownNonData } from "./non-data.ts";
import { pastOf, totalsOf } from "./past.ts";
import { SchemaMerge } from "./schema.ts";
import { isSameFile } from "./shard-files.ts";
import { findShard, scanShard } from "./shard-scan.ts";
import type { FoundShard, ScannedShard } from "./shard-scan.ts";
import type { DatasetIndex, IgnoredFile, ShardRow } from "./types.ts";

export interface BuildOptions {
  storage: Storage;
  /** Where the index goes when the data is read-only. @default `.athanor` in the folder */
  indexDir?: string | undefined;
  /** Reads every shard again, whatever the index says. @default false */
  rebuild?: boolean;
  /** Bytes read of those to be read, and the path in work. */
  progress?: ((done: number, total: number, path: string) => void) | undefined;
  /** false: the index is made in memory only. @default true */
  write?: boolean;
  /**
   * Bad records are told of, in order, and stay in the index as records, for runs that replace them. Only of shards that
   * are read now. @default the first bad record is thrown
   */
  onBad?: ((fault: AthanorError) => void) | undefined;
  /** A chunk of an array that no file holds is an error. @default false: it reads as the fill value, and is counted */
  strictChunks?: boolean;
  /** Told of each shard that was read, in order of paths. */
  onRead?: (path: string) => void;
}

/** Stats in flight: each takes a round trip to an OST on Lustre. */
const CONCURRENT_STATS = 16;

/**
 * Throws what `discover` throws, the first content fault of a shard (file, record, byte offset), ATH_FORMAT_CONFLICT,
 * ATH_SCHEMA_CONFLICT, and ATH_INDEX_READONLY before anything is read.
 */
export async function buildIndex(source: string, options: BuildOptions): Promise<DatasetIndex> {
  const { storage } = options;
  const found = await discover(source, storage, options.indexDir);
  const { root, indexDir, paths } = found;
  const before = await oldIndex(root, indexDir, storage);
  const old = options.rebuild === true ? undefined : before;
  const files = await findAll(found, storage);
  const known = await knownShards(old, indexDir, storage, files);
  const isKnown = ({ path, version }: FoundShard): boolean => {
    const row = known.get(path);
    return row !== undefined && row.size === version.size && row.mtimeNs === version.mtimeNs;
  };
  const present = new Set(paths);
  const ignored = (old?.ignored ?? []).filter(({ path }) => present.has(path));
  const passed = new Set(ignored.map(({ path }) => path));
  const fresh = files.filter((file) => !isKnown(file) && !passed.has(file.path));
  const kept = files.filter(isKnown).map(({ path }) => known.get(path)!);
  const asBefore = old !== undefined && kept.length === old.shards.length && ignored.length === old.ignored.length;
  if (asBefore && fresh.length === 0) {
    if (options.strictChunks === true) refuseMissing(root, old.missing);
    return old;
  }

  const writer = options.write === false ? undefined : new IndexWriter(indexDir, source);
  try {
    await writer?.prepare();
    return await make(
      { found, source, root, indexDir, files, fresh, kept, ignored, format: old?.format, before, writer },
      options,
    );
  } catch (error) {
    await writer?.abandon();
    throw error;
  }
}

interface Work {
  found: Discovered;
  source: string;
  root: string;
  indexDir: string;
  files: readonly FoundShard[];
  fresh: readonly FoundShard[];
  kept: readonly ShardRow[];
  ignored: IgnoredFile[];
  /** Of the kept shards. */
  format: string | undefined;
  /** The index of before, also where every shard is read again. */
  before: DatasetIndex | undefined;
  writer: IndexWriter | undefined;
}

/** Reads what is fresh and publishes the whole. */
async function make(work: Work, options: BuildOptions): Promise<DatasetIndex> {
  const { source, root, indexDir, files, fresh, kept, ignored, before, writer } = work;
  const { storage } = options;
  // Block tables of a large set do not fit in memory; they are kept only when there is no file to read them from.
  const tables = new Map<string, ShardTable>();
  const schema = new SchemaMerge(root);
  const missing = new MissingCount();
  const largest = new LargestBlock();
  const rows = new Map(kept.map((row) => [row.path, row]));
  const formats = new Map(kept.map((row) => [row.path, work.format!]));
  for (const row of kept) {
    const stored = await readTable(storage, indexDir, row);
    schema.add(row.path, stored.schema);
    missing.add(row.path, stored.meta);
    largest.add(stored.table, stored.meta);
  }
  const judge = await judgeOf(work.found, storage, kept.length > 0 ? work.format : undefined);
  for await (const shard of scanAll(root, fresh, ignored, judge, options)) {
    formats.set(shard.row.path, shard.format);
    rows.set(shard.row.path, shard.row);
    schema.add(shard.row.path, shard.table.schema);
    missing.add(shard.row.path, shard.table.meta);
    largest.add(shard.table.table, shard.table.meta);
    if (writer === undefined) tables.set(shard.row.path, shard.table);
    else await writer.writeTable(shard.table);
  }
  // `files` is in byte order of paths, and so is everything made from it.
  const shards = files.flatMap(({ path }) => rows.get(path) ?? []);
  if (shards.length === 0) {
    const { path, why } = ignored[0]!;
    throw new NoShards(`none of ${files.length} files is a shard; ${path}: ${why}`, { file: source });
  }
  if (options.strictChunks === true) refuseMissing(root, missing.found);
  const past = pastOf(before, shards);
  const manifest: Manifest = {
    version: INDEX_VERSION,
    format: oneFormat(root, shards, formats),
    fingerprint: dataFingerprint(shards),
    totals: totalsOf(shards),
    schema: schema.result(),
    ignored: ignored.sort((a, b) => Buffer.compare(Buffer.from(a.path), Buffer.from(b.path))),
    largestBlock: largest.found,
    ...(past.length > 0 ? { past } : {}),
    ...(missing.found === undefined ? {} : { missing: missing.found }),
  };
  await writer?.publish(manifest, shards);
  return new StoredIndex(
    { root, folder: writer === undefined ? undefined : indexDir, manifest, shards },
    async (shard) => {
      return tables.get(shard.path) ?? (await readTable(storage, indexDir, shard));
    },
  );
}

/** Reads `fresh` one after the other; adds what is no data to `ignored`. */
async function* scanAll(
  root: string,
  fresh: readonly FoundShard[],
  ignored: IgnoredFile[],
  judge: Judge,
  options: BuildOptions,
): AsyncGenerator<ScannedShard> {
  const total = fresh.reduce((sum, found) => sum + toRead(found), 0);
  const kernels = createKernels(0);
  let before = 0;
  for (const found of fresh) {
    const { path } = found;
    const progress = (bytes: number): void => options.progress?.(before + bytes, total, path);
    try {
      const why = await judge(path);
      if (why !== undefined) {
        ignored.push({ path, why });
        before += toRead(found);
        continue;
      }
      yield await scanShard(options.storage, root, found, kernels, { progress, onBad: options.onBad });
      options.onRead?.(path);
    } catch (error) {
      const notData = error instanceof AthanorError && error.code === "ATH_NOT_FORMAT" && isKnownNonData(path);
      if (!notData) throw error;
      ignored.push({ path, why: error.what });
    }
    before += toRead(found);
  }
}

/** What its index is made of: of a pair the file that says where the data lies. */
function toRead({ version, folder, beside }: FoundShard): number {
  return folder || beside.length === 0 ? version.size : beside.reduce((sum, { size }) => sum + size, 0);
}

/** A damaged index is no reason to fail here: it is built anew. */
async function oldIndex(root: string, indexDir: string, storage: Storage): Promise<DatasetIndex | undefined> {
  try {
    return await readIndex(root, indexDir, storage);
  } catch (error) {
    if (error instanceof IndexCorrupt) return undefined;
    throw error;
  }
}

/** Rows of the old index whose block table is still there, by path. */
async function knownShards(
  old: DatasetIndex | undefined,
  indexDir: string,
  storage: Storage,
  files: readonly FoundShard[],
): Promise<Map<string, ShardRow>> {
  if (old === undefined) return new Map();
  const tables = new Set(await storage.names(join(indexDir, "blocks")));
  const known = new Map(old.shards.filter((row) => tables.has(tableName(row))).map((row) => [row.path, row]));
  // The row of a pair holds the version of its first file only, that of a folder the newest mtime: a file of the same size that is put
  // back with an older one (`cp -p`) is another file.
  for (const { path, beside } of files) {
    const row = known.get(path);
    if (beside.length === 0 || row === undefined) continue;
    const { files: stored = [] } = await readTable(storage, indexDir, row);
    const now = new Map(beside.map((file) => [file.path, file]));
    const isSame = (file: ShardFile): boolean => isSameFile(file, now.get(file.path) ?? { ...file, size: -1 });
    if (stored.length !== beside.length || !stored.every(isSame)) known.delete(path);
  }
  return known;
}

async function findAll({ root, paths, beside }: Discovered, storage: Storage): Promise<FoundShard[]> {
  const files: FoundShard[] = [];
  for (let from = 0; from < paths.length; from += CONCURRENT_STATS) {
    const some = paths.slice(from, from + CONCURRENT_STATS);
    files.push(...(await Promise.all(some.map((path) => findShard(storage, root, path, beside.get(path))))));
  }
  return files;
}

function oneFormat(root: string, shards: readonly ShardRow[], formats: ReadonlyMap<string, string>): string {
  const first = shards[0]!;
  const format = formats.get(first.path)!;
  const other = shards.find(({ path }) => formats.get(path) !== format);
  if (other === undefined) return format;
  throw new FormatConflict(
    `is ${formats.get(other.path)}, but ${join(root, first.path)} is ${format}`,
    { file: join(root, other.path) },
    "all shards of a set are of one format: give a glob that names only some of them",
  );
}
