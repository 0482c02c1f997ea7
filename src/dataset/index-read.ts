/**
 * Reading an index. At open only `shards.bin` is read and the folder listed: file names are compared with the
 * index, sizes and mtimes are not (a stat a shard would ask every OST at the start of each job); the version of a shard
 * is checked by whoever opens it.
 *
 * @example
 * const index = await openIndex("/d", { storage });
 * if (index === undefined) throw new IndexMissing("no index", { file: "/d" }, indexCommand("/d", undefined));
 */
import { join } from "node:path";
import type { Schema } from "../formats/types.ts";
import { ifThere } from "../storage/errors.ts";
import { readFile } from "../storage/read-file.ts";
import type { Storage } from "../storage/types.ts";
import { discover } from "./discover.ts";
import { IndexCorrupt, IndexStale, indexCommand } from "./errors.ts";
import { decodeShards, decodeTable, tableName } from "./index-layout.ts";
import type { Manifest, ShardTable } from "./index-layout.ts";
import type { BytesByField } from "./largest-block.ts";
import { isKnownNonData } from "./non-data.ts";
import type { DatasetIndex, IgnoredFile, MissingChunks, PastSet, ShardRow } from "./types.ts";

export interface IndexPlace {
  storage: Storage;
  /** Where the index lies when it is not beside the data (read-only data). @default `.athanor` in the folder */
  indexDir?: string | undefined;
}

/** Undefined: there is no index yet. Throws ATH_INDEX_STALE, ATH_INDEX_CORRUPT and what `discover` throws. */
export async function openIndex(source: string, place: IndexPlace): Promise<DatasetIndex | undefined> {
  const { root, indexDir, paths } = await discover(source, place.storage, place.indexDir);
  const index = await readIndex(root, indexDir, place.storage);
  if (index === undefined) return undefined;
  const known = new Set([...index.shards, ...index.ignored].map(({ path }) => path));
  const remedy = indexCommand(source, place.indexDir);
  // What is gone first: half a Megatron pair counts as a file that came, and says less.
  const present = new Set(paths);
  const gone = index.shards.find(({ path }) => !present.has(path));
  if (gone !== undefined)
    throw new IndexStale("this shard of the index is gone", { file: join(root, gone.path) }, remedy);
  const added = paths.find((path) => !known.has(path) && !isKnownNonData(path));
  if (added !== undefined)
    throw new IndexStale("this file is not in the index: it came later", { file: join(root, added) }, remedy);
  return index;
}

/** The index in `indexDir` as it is, whatever files there are now. */
export async function readIndex(root: string, indexDir: string, storage: Storage): Promise<StoredIndex | undefined> {
  const file = join(indexDir, "shards.bin");
  const bytes = await ifThere(readFile(storage, file));
  if (bytes === undefined) return undefined;
  const { manifest, shards } = decodeShards(bytes, file);
  return new StoredIndex({ root, folder: indexDir, manifest, shards }, (shard) => readTable(storage, indexDir, shard));
}

export async function readTable(storage: Storage, indexDir: string, shard: ShardRow): Promise<ShardTable> {
  const file = join(indexDir, "blocks", tableName(shard));
  const bytes = await ifThere(readFile(storage, file));
  const stored = bytes === undefined ? undefined : decodeTable(bytes, file);
  if (
    stored === undefined ||
    stored.path !== shard.path ||
    stored.size !== shard.size ||
    stored.crc32c !== shard.crc32c
  ) {
    throw new IndexCorrupt(
      `the block table of ${shard.path} is ${stored === undefined ? "missing" : `that of ${stored.path}`}`,
      { file },
      "run `athanor index --rebuild` on the data",
    );
  }
  return stored;
}

export interface IndexContent {
  root: string;
  /** Where it lies; undefined: in memory only. */
  folder: string | undefined;
  manifest: Manifest;
  shards: ShardRow[];
}

/** An index over its decoded `shards.bin`; block tables come when asked for. */
export class StoredIndex implements DatasetIndex {
  readonly root: string;
  readonly folder: string | undefined;
  readonly format: string;
  readonly shards: ShardRow[];
  readonly ignored: IgnoredFile[];
  readonly schema: Schema;
  readonly totals: DatasetIndex["totals"];
  readonly fingerprint: string;
  readonly past: PastSet[];
  readonly missing: MissingChunks | undefined;
  readonly largestBlock: BytesByField | undefined;
  private readonly load: (shard: ShardRow) => Promise<ShardTable>;
  private readonly tables = new Map<number, Promise<ShardTable>>();

  constructor({ root, folder, manifest, shards }: IndexContent, load: (shard: ShardRow) => Promise<ShardTable>) {
    this.root = root;
    this.folder = folder;
    this.shards = shards;
    this.format = manifest.format;
    this.ignored = manifest.ignored;
    this.schema = manifest.schema;
    this.totals = manifest.totals;
    this.fingerprint = manifest.fingerprint;
    this.past = manifest.past ?? [];
    this.missing = manifest.missing;
    this.largestBlock = manifest.largestBlock;
    this.load = load;
  }

  shardTable(shard: number): Promise<ShardTable> {
    const known = this.tables.get(shard);
    if (known !== undefined) return known;
    const row = this.shards[shard];
    if (row === undefined)
      return Promise.reject(new RangeError(`shard must be below ${this.shards.length}, got ${shard}`));
    const table = this.load(row);
    this.tables.set(shard, table);
    // A failed read must not poison later ones.
    table.catch(() => this.tables.delete(shard));
    return table;
  }
}
