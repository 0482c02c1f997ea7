/**
 * Rows of pieces: the index of a view with the rule `split` or `pack`, in rows where the data's own index counts records.
 * Order and feed see an ordinary index; what the rows of a block hold, its `SampleCut` says.
 *
 * Contract: docs/reference/formats.md. Nothing crosses a block. Memory: 8 bytes a block; the counts of records stay on disk and are
 * read a block at a time. Counts that are others than those that the rows were made of are refused.
 *
 * @example
 * const { index, most } = await pieceIndex(data, { fingerprint, tokens, rule: "pack", maxLength: 4096 }, storage);
 * index.totals.records;   // rows
 */
import { join } from "node:path";
import type { BlockPieces, BlockSamples, BlockTable } from "../formats/types.ts";
import { ifThere } from "../storage/errors.ts";
import { readFile } from "../storage/read-file.ts";
import type { Storage } from "../storage/types.ts";
import { countsFile, CountsReader, uncounted } from "./counts.ts";
import { IndexCorrupt, ViewMissing } from "./errors.ts";
import { RUN_BLOCKS } from "./index-layout.ts";
import { KeptSamples } from "./kept-samples.ts";
import { BAD_COUNT, mostPieces, packRecords } from "./pack.ts";
import { totalsOf } from "./past.ts";
import { nameOf } from "./set-name.ts";
import type { DatasetIndex, PieceSpec, SampleCut, ShardRow } from "./types.ts";
import { countsCrcOf, decodeView, encodeView, VIEW_REMEDY, type ViewRows } from "./view-layout.ts";

export interface PieceView extends PieceSpec {
  /** Of the view; names its file. */
  fingerprint: string;
}

/** `index`: in rows; `most`: pieces of one row. `bad`: records that are in no row. */
export interface PieceRows extends Pick<ViewRows, "most" | "bad" | "firstBad"> {
  index: DatasetIndex;
  tokens: number;
}

/** `keep`: puts the rows beside the counts, for the next ones. */
export async function pieceIndex(
  index: DatasetIndex,
  view: PieceView,
  storage: Storage,
  keep?: (name: string, parts: Uint8Array[]) => Promise<void>,
): Promise<PieceRows> {
  // Made of the counts alone, which have CRCs of their own: damaged rows are as good as none.
  let rows = await storedRows(index, view.fingerprint, storage).catch(unlessCorrupt);
  if (rows === undefined || rows.tokens !== view.tokens) {
    rows = await makeRows(index, view, storage);
    await keep?.(`${view.fingerprint}.bin`, encodeView(rows));
  }
  const { most, bad, firstBad } = rows;
  return { index: rowIndex(index, rows, storage), most, tokens: sum(rows.shardTokens), bad, firstBad };
}

/** The view of a fingerprint in rows, if it was kept; undefined: it is not known here. */
export async function keptView(
  index: DatasetIndex,
  fingerprint: string,
  storage: Storage,
): Promise<DatasetIndex | undefined> {
  const rows = await storedRows(index, fingerprint, storage);
  return rows === undefined ? undefined : rowIndex(index, rows, storage);
}

async function storedRows(index: DatasetIndex, fingerprint: string, storage: Storage): Promise<ViewRows | undefined> {
  if (index.folder === undefined) return undefined;
  const file = join(index.folder, "views", `${fingerprint}.bin`);
  const bytes = await ifThere(readFile(storage, file));
  const rows = bytes === undefined ? undefined : decodeView(bytes, file);
  if (rows === undefined) return undefined;
  if (rows.data !== index.fingerprint || rows.rows.length !== index.totals.blocks) {
    const what = `file of a view is damaged: expected data ${index.fingerprint}, found ${rows.data}`;
    throw new IndexCorrupt(what, { file }, VIEW_REMEDY);
  }
  return rows;
}

function unlessCorrupt(error: unknown): undefined {
  if (!(error instanceof IndexCorrupt)) throw error;
}

/** Throws ATH_VIEW_MISSING where records have not been counted. */
async function makeRows(index: DatasetIndex, view: PieceView, storage: Storage): Promise<ViewRows> {
  const { tokens, rule, maxLength } = view;
  const missing = await uncounted(index, tokens, storage);
  if (missing.length > 0) {
    const what = `sample_rule "${rule}" needs the tokens of every record counted: ${missing.length} of ${index.shards.length} shards are not`;
    throw new ViewMissing(what, { file: nameOf(index) }, "run `athanor index --view` with the options of the loader");
  }
  const shardTokens = new Float64Array(index.shards.length);
  const rows = new Uint32Array(index.totals.blocks);
  const countsCrc = new Uint32Array(index.totals.blocks);
  let most = 0;
  let bad = 0;
  let firstBad: ViewRows["firstBad"] = null;
  let at = 0;
  for (const [shard, row] of index.shards.entries()) {
    const { table } = await index.shardTable(shard);
    const reader = await CountsReader.open(storage, countsFile(index, tokens, row), table);
    try {
      let block = 0;
      for await (const counts of reader.all()) {
        const packed = packRecords(counts, rule, maxLength);
        countsCrc[at] = countsCrcOf(counts);
        rows[at++] = packed.rows;
        most = Math.max(most, mostPieces(packed));
        for (const [record, count] of counts.entries()) {
          if (count !== BAD_COUNT) shardTokens[shard]! += count;
          else if (bad++ === 0) firstBad = { path: row.path, record: table.firstRecord[block]! + record };
        }
        block++;
      }
    } finally {
      await reader.close();
    }
  }
  return { data: index.fingerprint, tokens, rule, maxLength, most, bad, firstBad, shardTokens, rows, countsCrc };
}

/** The same shards with rows in place of records. */
function rowIndex(index: DatasetIndex, view: ViewRows, storage: Storage): DatasetIndex {
  const firstBlock = [0];
  const shards = index.shards.map((row, shard): ShardRow => {
    const begin = firstBlock[shard]!;
    firstBlock.push(begin + row.blocks);
    const rows = view.rows.subarray(begin, begin + row.blocks);
    const runRecords = new Float64Array(Math.ceil(row.blocks / RUN_BLOCKS));
    rows.forEach((count, block) => (runRecords[Math.floor(block / RUN_BLOCKS)]! += count));
    const largestBlock = rows.reduce((most, count) => Math.max(most, count), 0);
    return { ...row, records: sum(runRecords), tokens: view.shardTokens[shard]!, largestBlock, runRecords };
  });
  const { root, format, ignored, schema, fingerprint, folder, missing, largestBlock } = index;
  return {
    root,
    format,
    ignored,
    schema,
    fingerprint,
    folder,
    missing,
    largestBlock,
    past: [],
    shards,
    totals: totalsOf(shards),
    shardTable: async (shard) => {
      const stored = await index.shardTable(shard);
      return { ...stored, table: rowTable(stored.table, view.rows.subarray(firstBlock[shard])) };
    },
    pieces: { tokens: view.tokens, rule: view.rule, maxLength: view.maxLength },
    cut: new PieceCut(index, view, firstBlock, storage),
  };
}

/** Blocks are read whole: a row is made of records from all over its block. */
function rowTable(table: BlockTable, rows: Uint32Array): BlockTable {
  const firstRecord = new Float64Array(table.blocks + 1);
  for (let block = 0; block < table.blocks; block++) firstRecord[block + 1] = firstRecord[block]! + rows[block]!;
  return { ...table, firstRecord, restartStart: new Uint32Array(table.blocks + 1), restarts: new Uint32Array(0) };
}

class PieceCut implements SampleCut {
  private readonly index: DatasetIndex;
  private readonly view: ViewRows;
  private readonly firstBlock: readonly number[];
  private readonly storage: Storage;
  private readonly kept = new KeptSamples();
  /** By shard: an open a block would ask the metadata server as often as the data is read. */
  private readonly readers = new Map<number, Promise<CountsReader>>();

  /** `firstBlock`: number of the first block of each shard. */
  constructor(index: DatasetIndex, view: ViewRows, firstBlock: readonly number[], storage: Storage) {
    this.index = index;
    this.view = view;
    this.firstBlock = firstBlock;
    this.storage = storage;
  }

  of(shard: number, block: number): Promise<BlockSamples> {
    return this.kept.get(`${shard} ${block}`, () => this.rowsOf(shard, block));
  }

  private async rowsOf(shard: number, block: number): Promise<BlockSamples> {
    const { rule, maxLength } = this.view;
    const { table } = await this.index.shardTable(shard);
    const counts = await this.countsOf(shard, block).catch((error: unknown) => {
      // Counted anew meanwhile: if they are other counts, they are refused below.
      if ((error as { code?: string }).code !== "ATH_SHARD_CHANGED") throw error;
      return this.countsOf(shard, block);
    });
    if (countsCrcOf(counts) !== this.view.countsCrc[this.firstBlock[shard]! + block]) this.refuseCounts(shard, block);
    const { rows, start, record, token, length } = packRecords(counts, rule, maxLength);
    const firstRecord = table.firstRecord[block]!;
    const [from, to] = [table.restartStart[block]!, table.restartStart[block + 1]!];
    const pieces: BlockPieces = {
      firstRecord,
      counts,
      restarts: table.restarts.slice(from, to),
      start,
      record,
      token,
      length,
    };
    const first = start.subarray(0, rows);
    return {
      record: Float64Array.from(first, (piece) => firstRecord + record[piece]!),
      token: token.length === 0 ? new Uint32Array(0) : Uint32Array.from(first, (piece) => token[piece]!),
      length: Uint32Array.from(first, (piece, row) => {
        let tokens = 0;
        for (let p = piece; p < start[row + 1]!; p++) tokens += length[p]!;
        return tokens;
      }),
      pieces,
    };
  }

  private refuseCounts(shard: number, block: number): never {
    const { index, view } = this;
    const row = index.shards[shard]!;
    throw new IndexCorrupt(
      `the rows of this view were made of other counts of ${row.path}: the records of block ${block} were counted anew since`,
      { file: countsFile(index, view.tokens, row) },
      "start the job again after `athanor index --view --rebuild` with the options of the loader: it makes counts and rows anew",
    );
  }

  private async countsOf(shard: number, block: number): Promise<Uint32Array> {
    const reader = this.readers.get(shard) ?? this.openCounts(shard);
    this.readers.set(shard, reader);
    try {
      return await (await reader).block(block);
    } catch (error) {
      this.readers.delete(shard);
      throw error;
    }
  }

  private async openCounts(shard: number): Promise<CountsReader> {
    const { table } = await this.index.shardTable(shard);
    return CountsReader.open(this.storage, countsFile(this.index, this.view.tokens, this.index.shards[shard]!), table);
  }
}

function sum(values: Float64Array): number {
  return values.reduce((all, value) => all + value, 0);
}
