/**
 * Source: one indexed data set as the feed sees it: shards by number, block tables in memory, reads that are
 * counted and checked against the index.
 */
import { lastAtMost } from "../base/search.ts";
import { unlessAborted } from "../base/unless-aborted.ts";
import type { DatasetIndex, ShardRow, StoredTable } from "../dataset/types.ts";
import { versionOf } from "../dataset/shard-files.ts";
import { columnReader, formatOf } from "../formats/registry.ts";
import type { BlockSamples, BlockTable, ColumnReader, RowFormat, ShardMeta, ValueKind } from "../formats/types.ts";
import { shardKey } from "../order/proof.ts";
import type { Home } from "../storage/places.ts";
import type { ExtentTable } from "../order/types.ts";
import { returnBounce, takeBounce } from "../storage/bounce.ts";
import { changedError } from "../storage/errors.ts";
import type { ObjectVersion, Storage } from "../storage/types.ts";
import type { StageClocks } from "../telemetry/clocks.ts";
import { nowNs } from "../telemetry/clocks.ts";
import type { OpenStream } from "./decoders.ts";
import { blockOf, spanOf } from "./spans.ts";

/** A run of records of one block: what one decode task produces. */
export interface RecordRun {
  shard: number;
  block: number;
  /** Records [from, to) of the shard. */
  from: number;
  to: number;
}

/**
 * What a running decoder is given at once. Each stream holds one or two such pieces; larger ones gain nothing, because a file that is
 * read from its beginning to its end is what read-ahead of file systems is made for.
 */
const STREAM_BYTES = 2 * 1024 * 1024;

/** Files of a shard that are asked for ahead; lanes are many, and what is read much later is asked for later. */
const MOST_FILES = 512;

let nextStream = 1;

/** What came of foreseeing. */
export interface Foreseen {
  /** Records of which all files are asked for; undefined: of all. */
  records: number | undefined;
  /** The first shard of which it is not known which files it has. */
  blind: number | undefined;
}

export class Source {
  readonly index: DatasetIndex;
  readonly extents: ExtentTable;
  /** Name in proof and state; part of the shard keys. */
  readonly name: string;
  readonly clocks: StageClocks;
  readonly format: RowFormat | ColumnReader;
  /** Features that the view delivers. */
  private readonly features: ReadonlySet<string>;
  /** Kinds of these. */
  private readonly kinds: { readonly [feature: string]: ValueKind };
  private readonly storage: Storage;
  private readonly home: Home | undefined;
  private readonly tables: (StoredTable | undefined)[];
  private readonly keys: (bigint | undefined)[];
  private readonly opened = new Set<number>();
  /** Sample number at which each shard begins (samples = records for record formats), plus the total. */
  private readonly shardStart: Float64Array;

  /**
   * `asColumns`: its records are wanted as columns, whatever the format decodes them into. `home`: where its files lie, if that can be
   * known.
   */
  constructor(
    index: DatasetIndex,
    extents: ExtentTable,
    name: string,
    storage: Storage,
    clocks: StageClocks,
    features: ReadonlySet<string>,
    asColumns = false,
    home?: Home,
  ) {
    this.index = index;
    this.extents = extents;
    this.name = name;
    this.storage = storage;
    this.home = home;
    this.clocks = clocks;
    this.format = asColumns ? columnReader(index.format) : formatOf(index.format);
    this.features = features;
    this.kinds = Object.fromEntries(
      index.schema.fields.filter(({ name }) => features.has(name)).map(({ name, kind }) => [name, kind]),
    );
    this.tables = index.shards.map(() => undefined);
    this.keys = index.shards.map(() => undefined);
    this.shardStart = new Float64Array(index.shards.length + 1);
    index.shards.forEach((shard, i) => {
      this.shardStart[i + 1] = (this.shardStart[i] as number) + shard.records;
    });
  }

  get shardsOpened(): number {
    return this.opened.size;
  }

  shard(number: number): ShardRow {
    return this.index.shards[number] as ShardRow;
  }

  /** Of the shard, or of its file number `file`. */
  path(number: number, file = 0): string {
    return file === 0 ? `${this.index.root}/${this.shard(number).path}` : this.file(number, file).path;
  }

  key(number: number): bigint {
    return (this.keys[number] ??= shardKey(this.name, this.shard(number).path));
  }

  /** The block table, if it is in memory already. */
  tableNow(shard: number): BlockTable | undefined {
    return this.tables[shard]?.table;
  }

  async table(shard: number): Promise<BlockTable> {
    const stored = await this.index.shardTable(shard);
    this.tables[shard] = stored;
    return stored.table;
  }

  /** First record of a block whose table is in memory. */
  firstRecord(shard: number, block: number): number | undefined {
    return this.tables[shard]?.table.firstRecord[block];
  }

  /** Which fields of a shard are delivered, by the numbers of its segments; undefined where segments are of no field. */
  wants(shard: number): ((field: number) => boolean) | undefined {
    const fields = this.tables[shard]?.meta?.fields;
    return fields === undefined ? undefined : (field) => this.features.has(fields[field - 1] as string);
  }

  /** Its format's library opens shards itself. */
  get readsItself(): boolean {
    return this.format.kind === "columns" && this.format.selfReading === true;
  }

  /**
   * What the format keeps of a shard whose block table is in memory. A row format keeps nothing: to read columns it needs to know of
   * which kinds the set's fields are.
   */
  meta(shard: number): ShardMeta {
    return this.tables[shard]?.meta ?? { kinds: this.kinds };
  }

  /** Records are samples that a view has cut out of the shard's: nothing stands in for one of them. */
  get isCut(): boolean {
    return this.index.cut !== undefined;
  }

  /** What the samples of a block are; undefined where they are its records. */
  samplesOf(shard: number, block: number): Promise<BlockSamples> | undefined {
    return this.index.cut?.of(shard, block);
  }

  /** The record of the shard in which a byte lies, where records are samples. */
  recordAt(shard: number, byteOffset: number): Promise<number> | undefined {
    return this.index.cut?.recordAt?.(shard, byteOffset);
  }

  /** Shard and record of a sample number. */
  placeOf(sample: number): { shard: number; record: number } {
    const shard = lastAtMost(this.shardStart, this.index.shards.length, sample);
    return { shard, record: sample - (this.shardStart[shard] as number) };
  }

  /** First record, in its shard, of an extent. */
  extentRecord(extent: number): number {
    const shard = this.extents.shard[extent] as number;
    return (this.extents.sampleStart[extent] as number) - (this.shardStart[shard] as number);
  }

  sampleOf(shard: number, record: number): number {
    return (this.shardStart[shard] as number) + record;
  }

  /** Splits records [from, to) of a shard at its block borders. */
  runs(table: BlockTable, shard: number, from: number, to: number): RecordRun[] {
    const runs: RecordRun[] = [];
    let at = from;
    for (let block = blockOf(table, from); at < to; block++) {
      const end = Math.min(to, table.firstRecord[block + 1] as number);
      if (end > at) runs.push({ shard, block, from: at, to: end });
      at = Math.max(at, end);
    }
    return runs;
  }

  /** Reads bytes of a shard (of its file number `file`) as stored into shared memory at `at`. `over`: nobody waits for them any more. */
  async read(
    shard: number,
    file: number,
    offset: number,
    length: number,
    buffer: SharedArrayBuffer,
    at: number,
    small: boolean,
    over?: AbortSignal,
  ): Promise<void> {
    const start = nowNs();
    this.opened.add(shard);
    const { path, version } = this.file(shard, file);
    await this.arrived(path, over);
    await this.storage.readShared(path, version, buffer, at, offset, length, over);
    this.clocks.reads++;
    if (small) this.clocks.smallReads++;
    this.clocks.readBytes += length;
    this.clocks.readNs += nowNs() - start;
  }

  /** A released file is not read before it is back: such a read hangs where nobody can end it. */
  private async arrived(path: string, over: AbortSignal | undefined): Promise<void> {
    const arrival = this.home?.arrival(path);
    if (arrival !== undefined) await unlessAborted(arrival, over);
  }

  /** Bytes that one read should bring, where the file system tells. */
  get requestBytes(): number | undefined {
    return this.home?.requestBytes;
  }

  /** Does it gain from knowing what is read next? */
  get foresees(): boolean {
    return this.home !== undefined;
  }

  /** Records that are read soon, the next ones first: where their files lie is asked meanwhile, of `most` files. */
  foresee(ahead: Iterable<Omit<RecordRun, "block">>, most = MOST_FILES): Foreseen {
    const paths = new Set<string>();
    const seen: Foreseen = { records: undefined, blind: undefined };
    let records = 0;
    for (const { shard, from, to } of ahead) {
      const stored = this.tables[shard];
      if (stored === undefined) seen.blind ??= shard;
      if (stored?.files === undefined) {
        paths.add(this.path(shard));
        records += to - from;
        continue;
      }
      for (const run of this.runs(stored.table, shard, from, to)) {
        const { pieces } = spanOf(stored.table, run.block, run.from, run.to, this.wants(shard));
        for (const { file } of pieces) paths.add(this.path(shard, file));
        records += run.to - run.from;
        if (paths.size >= most) break;
      }
      if (paths.size < most) continue;
      seen.records = records;
      break;
    }
    this.home?.expect([...paths]);
    return seen;
  }

  /** Is it known that a shard is more than one file? */
  hasMoreFiles(shard: number): boolean {
    return this.tables[shard]?.files !== undefined;
  }

  /** What holds bytes of a shard (of its file number `file`); undefined: not known. */
  targetsOf(shard: number, file: number, offset: number, length: number): readonly string[] | undefined {
    return this.home?.targetsOf(this.file(shard, file).path, offset, length);
  }

  /** Would a read of these files of it wait for one to come back from an archive? None: what its format reads itself. */
  isAway(shard: number, files: ReadonlySet<number>): boolean {
    if (this.home?.restoring !== true) return false;
    if (files.size === 0) return this.noteOf(shard, 0) !== undefined;
    return [...files].some((file) => this.noteOf(shard, file) !== undefined);
  }

  /** Why reading a file of it waits, in words. */
  noteOf(shard: number, file: number): string | undefined {
    return this.home?.noteOf(this.path(shard, file));
  }

  /** Is the shard still the one of the index? For formats that read it themselves, by its path: a pooled handle would not tell. */
  async check(shard: number, over?: AbortSignal): Promise<void> {
    const { path, version } = this.file(shard, 0);
    this.opened.add(shard);
    await this.arrived(path, over);
    const found = await this.storage.stat(path);
    if (found.size !== version.size || found.mtimeNs !== version.mtimeNs) throw changedError(path, found, version);
  }

  private file(shard: number, file: number): { path: string; version: ObjectVersion } {
    const { size, mtimeNs } = this.shard(shard);
    if (file === 0) return { path: this.path(shard), version: { size, mtimeNs } };
    const beside = this.tables[shard]?.files?.[file - 1];
    if (beside === undefined) throw new Error(`shard ${this.path(shard)} has no file ${file}`);
    return { path: `${this.index.root}/${beside.path}`, version: versionOf(beside) };
  }

  /** A compressed shard to be read from its beginning. */
  openStream(shard: number, over?: AbortSignal): OpenStream {
    const row = this.shard(shard);
    let at = 0;
    const pull = async (): Promise<{ bytes: Uint8Array; last: boolean }> => {
      const length = Math.min(STREAM_BYTES, row.size - at);
      if (length <= 0) return { bytes: new Uint8Array(0), last: true };
      const bounce = takeBounce(length);
      await this.read(shard, 0, at, length, bounce, 0, false, over);
      const bytes = new Uint8Array(bounce, 0, length).slice();
      returnBounce(bounce);
      at += length;
      return { bytes, last: at >= row.size };
    };
    return { id: nextStream++, encoding: row.encoding, pull, closed: false };
  }
}
