/**
 * Samples ≠ records: the index of a view over shards of tokens. It counts samples where the data's own index counts records, so
 * that order and feed see an ordinary index; what the samples of a block are, `SampleCut` says.
 *
 * Contract: docs/reference/formats.md. Memory does not grow with documents: their borders are read from the `.idx`, a stretch at a
 * time to count samples, and those of one block when it is decoded.
 *
 * @example
 * const rule = sampleRule(index, undefined);                          // "document"
 * const samples = await sampleIndex(index, rule, 4096, storage);
 * samples.totals.records;                                             // samples
 */
import { join } from "node:path";
import { formatOf } from "../formats/registry.ts";
import { blockBorder, blockBorders } from "../formats/tokens.ts";
import type { BlockSamples, BlockTable, SampleRule, TokenFormat } from "../formats/types.ts";
import type { ReadableObject, Storage } from "../storage/types.ts";
import { versionOf } from "./shard-files.ts";
import { CutTable, documentSamples, streamSamples, type Documents } from "./cut.ts";
import { SampleRuleUnknown } from "./errors.ts";
import { KeptSamples } from "./kept-samples.ts";
import type { PieceRule } from "./pack.ts";
import { runsOf } from "./shard-scan.ts";
import { totalsOf } from "./past.ts";
import { nameOf } from "./set-name.ts";
import type { DatasetIndex, SampleCut, ShardRow, StoredTable } from "./types.ts";

/** Shards counted at a time. */
const CONCURRENT = 8;
/** Documents whose borders are read at a time: 1 MiB. */
const PIECE = 1 << 17;
/** Tables of samples are kept for sets of so many blocks (256 GiB); of larger ones they are made again as they are needed. */
const KEPT_BLOCKS = 1 << 16;

/** What the data's format has, the default first. */
export function sampleRules(index: DatasetIndex): readonly SampleRule[] {
  const format = formatOf(index.format);
  return (format.kind === "columns" ? format.tokens?.rules : undefined) ?? ["record", "split", "pack"];
}

/** The rule makes rows of pieces of records (`piece-index.ts`), not samples by arithmetic alone. */
export function isPieceRule(rule: SampleRule): rule is PieceRule {
  return rule === "split" || rule === "pack";
}

/** The rule of a view, the named one or the format's own. Throws ATH_SAMPLE_RULE for one that the data does not have. */
export function sampleRule(index: DatasetIndex, wanted: string | undefined): SampleRule {
  const rules = sampleRules(index);
  const rule = wanted === undefined ? rules[0] : rules.find((known) => known === wanted);
  if (rule !== undefined) return rule;
  throw new SampleRuleUnknown(
    `sample_rule "${wanted}" does not go with this data, which has ${rules.join(" or ")}`,
    { file: nameOf(index) },
    "leave sample_rule out, or see docs/reference/formats.md",
  );
}

/** The same shards with samples in place of records. */
export async function sampleIndex(
  index: DatasetIndex,
  rule: SampleRule,
  maxLength: number,
  storage: Storage,
): Promise<DatasetIndex> {
  const format = tokenFormat(index);
  if (format === undefined || rule === "record") return index;
  const cut = new TokenCut(index, format, rule, maxLength, storage);
  const shards: ShardRow[] = [];
  for (let from = 0; from < index.shards.length; from += CONCURRENT) {
    const some = index.shards.slice(from, from + CONCURRENT);
    shards.push(...(await Promise.all(some.map((row, i) => cut.row(row, from + i)))));
  }
  const { root, ignored, schema, fingerprint } = index;
  return {
    root,
    format: index.format,
    ignored,
    schema,
    fingerprint,
    past: [],
    shards,
    totals: totalsOf(shards),
    shardTable: (shard) => cut.table(shard),
    cut,
  };
}

function tokenFormat(index: DatasetIndex): TokenFormat | undefined {
  const format = formatOf(index.format);
  return format.kind === "columns" ? format.tokens : undefined;
}

class TokenCut implements SampleCut {
  private readonly index: DatasetIndex;
  private readonly format: TokenFormat;
  private readonly rule: SampleRule;
  private readonly length: number;
  private readonly storage: Storage;
  private readonly tables = new Map<number, Promise<StoredTable>>();
  private readonly kept = new KeptSamples();

  constructor(index: DatasetIndex, format: TokenFormat, rule: SampleRule, length: number, storage: Storage) {
    this.index = index;
    this.format = format;
    this.rule = rule;
    this.length = length;
    this.storage = storage;
  }

  async row(row: ShardRow, shard: number): Promise<ShardRow> {
    const keeps = this.index.totals.blocks <= KEPT_BLOCKS;
    const { table } = keeps ? await this.table(shard) : await this.cutTable(shard);
    return { ...row, records: table.firstRecord[table.blocks]!, ...runsOf(table) };
  }

  table(shard: number): Promise<StoredTable> {
    const known = this.tables.get(shard);
    if (known !== undefined) return known;
    const table = this.cutTable(shard);
    this.tables.set(shard, table);
    // A failed read must not poison later ones.
    table.catch(() => this.tables.delete(shard));
    return table;
  }

  of(shard: number, block: number): Promise<BlockSamples> {
    return this.kept.get(`${shard} ${block}`, () => this.samplesOf(shard, block));
  }

  async recordAt(shard: number, byteOffset: number): Promise<number> {
    const { table, meta = {} } = await this.index.shardTable(shard);
    const place = this.format.place(meta);
    const token = Math.floor((byteOffset - place.offset) / place.itemBytes);
    const borders = blockBorders(place);
    const block = borders.findIndex((_, b) => token < borders[b + 1]!);
    const documents = await this.documentsOf(shard, table, block);
    if (documents === undefined) return token;
    const behind = documents.borders.findIndex((first) => first > token);
    return documents.first + (behind < 0 ? documents.borders.length : behind) - 1;
  }

  private async samplesOf(shard: number, block: number): Promise<BlockSamples> {
    const { table, meta = {} } = await this.index.shardTable(shard);
    const place = this.format.place(meta);
    const [from, to] = [blockBorder(place, block), blockBorder(place, block + 1)];
    const documents = await this.documentsOf(shard, table, block);
    return this.rule === "document" && documents !== undefined
      ? documentSamples(this.length, from, to, documents)
      : streamSamples(place, this.length, from, to, documents);
  }

  /** Documents that hold tokens of a block: the last one that began before it, and those that begin in it. */
  private async documentsOf(shard: number, table: BlockTable, block: number): Promise<Documents | undefined> {
    const first = Math.max(table.firstRecord[block]! - 1, 0);
    const behind = table.firstRecord[block + 1]!;
    return this.withBorders(shard, async (read) => ({ first, borders: await read(first, behind) }));
  }

  /** The shard's own table with samples in place of records. */
  private async cutTable(shard: number): Promise<StoredTable> {
    const stored = await this.index.shardTable(shard);
    const place = this.format.place(stored.meta ?? {});
    const cut = new CutTable(place, this.length);
    const { records } = this.index.shards[shard]!;
    if (this.rule === "stream") {
      cut.add(0, place.tokens);
    } else {
      await this.withBorders(shard, async (read) => {
        for (let from = 0; from < records; from += PIECE) {
          const borders = await read(from, Math.min(from + PIECE, records));
          for (let i = 0; i + 1 < borders.length; i++) cut.add(borders[i]!, borders[i + 1]!);
        }
      });
    }
    return { ...stored, table: cut.finish() };
  }

  private async withBorders<Result>(
    shard: number,
    work: (read: (from: number, to: number) => Promise<Float64Array>) => Promise<Result>,
  ): Promise<Result | undefined> {
    const { borders } = this.format;
    if (borders === undefined) return undefined;
    const { meta = {}, files = [] } = await this.index.shardTable(shard);
    const file = await this.openBeside(files[0]!);
    try {
      return await work((from, to) => borders(meta, file, from, to));
    } finally {
      await file.close();
    }
  }

  private openBeside(file: NonNullable<StoredTable["files"]>[number]): Promise<ReadableObject> {
    return this.storage.open(join(this.index.root, file.path), versionOf(file));
  }
}
