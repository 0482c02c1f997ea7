/**
 * Quarantine: records that stand in for bad ones (docs/reference/quarantine.md has the rule). The slow path: it reads the
 * whole block of a bad record once more, into a memory of its own, and has a decode worker find all that is bad in it (blocks of
 * TFRecord, which take some milliseconds, are surveyed here).
 *
 * Contract: which record stands in is a function of the shard's bytes, its block table and the view, whoever asks for which
 * part of the block, in whatever order. Only blocks that cannot be read depend on the moment. One block at a time.
 *
 * @example
 * const { begin, end, faults } = await quarantine.survey(shard, block, { group, memory, decoders });
 * await quarantine.replace(shard, block, [{ record, row, fault }], { group, memory, decoders });
 */
import { AthanorError } from "../base/errors.ts";
import { lastAtMost } from "../base/search.ts";
import { startOf } from "../formats/dense.ts";
import { storeRows } from "../formats/rows.ts";
import { openStream } from "../formats/stream.ts";
import type { BlockColumns, BlockSurvey, BlockTable, Column } from "../formats/types.ts";
import { type Kernels, TABLE_BYTES } from "../kernels/kernels.ts";
import { createKernels } from "../kernels/load.ts";
import type { LedgerEntry } from "../order/ledger.ts";
import type { ViewLayout } from "./columns.ts";
import type { Decoders } from "./decoders.ts";
import { isBadContent, isBadRecord, NoGoodRecord, RowTooLong } from "./errors.ts";
import type { Ledger } from "./ledger.ts";
import { align } from "./memory.ts";
import type { GroupMemory } from "./memory.ts";
import type { Source } from "./source.ts";
import { restartsOf, spanOf } from "./spans.ts";
import type { Piece } from "./spans.ts";

const PLAN_BYTES = 64 * 1024;
/** Bytes behind the raw ones that a kernel may load (never use). */
const SLACK = 32;
/** A workspace goes back when nothing was asked of it for so long: bad blocks come in bursts. */
const KEEP_MS = 5000;
/** Larger ones are let go. */
const MAX_KEPT_BYTES = 64 * 1024 * 1024;

/** Workspaces for later quarantines: like the memories of runs they are used again, not left to the collector. */
const idle: Kernels[] = [];

/** Of a stored row. */
export const FLAGS_AT = 20;
export const FLAG_CUT = 1;
const FLAG_REPLACED = 2;

export interface QuarantineOptions {
  /** Replace records whose bytes are bad. */
  content: boolean;
  /** Replace records of blocks that cannot be read. */
  io: boolean;
  /** A list longer than max_length is an error, also in a record that stands in. */
  strict: boolean;
}

/** A block as it lies in its shard. */
export interface SurveyedBlock extends BlockSurvey {
  /** Offset of the block in the shard (in the decompressed stream). */
  offset: number;
  firstRecord: number;
  records: number;
}

/** The run that is to have the rows: its view is attached to the decoders under the number of its group. */
export interface ForRun {
  group: number;
  memory: GroupMemory;
  decoders: Decoders;
  /** Aborted when the run has ended. */
  over: AbortSignal;
}

export interface BadRecord {
  record: number;
  /** Address of its row in the group's memory. */
  row: number;
  fault: AthanorError;
}

interface Loaded {
  shard: number;
  block: number;
  raw: number;
  rows: number;
  survey: SurveyedBlock;
  /** Of a `ColumnFormat`: its records, decoded. */
  columns: BlockColumns | undefined;
}

export class Quarantine {
  private readonly source: Source;
  private readonly layout: ViewLayout;
  private readonly ledger: Ledger;
  private readonly options: QuarantineOptions;
  private kernels: Kernels | undefined;
  private loaded: Loaded | undefined;
  /** Surveys with bad records, by shard and block; the quota bounds them. */
  private readonly surveys = new Map<string, SurveyedBlock>();
  /** Numbers of good records. */
  private readonly good = new WeakMap<SurveyedBlock, Uint32Array>();
  private tail: Promise<unknown> = Promise.resolve();
  private active = 0;
  private leave: NodeJS.Timeout | undefined;

  constructor(source: Source, layout: ViewLayout, ledger: Ledger, options: QuarantineOptions) {
    this.source = source;
    this.layout = layout;
    this.ledger = ledger;
    this.options = options;
  }

  /** Is it a bad record that is to be replaced? */
  takes(error: unknown): boolean {
    return this.options.content && error instanceof AthanorError && isBadRecord(error.code);
  }

  /** The same for records of a block of a `ColumnFormat`, which share the fault of a page that cannot be decompressed. */
  takesInBlock(error: AthanorError): boolean {
    return this.options.content && isBadContent(error.code);
  }

  /** Is it a block that cannot be read and is to be replaced? A stream cannot go on behind such a place. */
  takesIo(error: unknown): boolean {
    return this.options.io && error instanceof AthanorError && error.code === "ATH_STORAGE_IO";
  }

  survey(shard: number, block: number, run: ForRun): Promise<SurveyedBlock> {
    const known = this.surveys.get(`${shard} ${block}`);
    return known === undefined
      ? this.exclusive(async () => (await this.load(shard, block, run)).survey)
      : Promise.resolve(known);
  }

  /** Writes the rows of what stands in for `bad`, all of one block, and enters them in the ledger. */
  replace(shard: number, block: number, bad: readonly BadRecord[], run: ForRun, unreadable = false): Promise<void> {
    return this.exclusive(async () => {
      const table = await this.source.table(shard);
      const first = table.firstRecord[block] as number;
      const path = this.source.shard(shard).path;
      const entries: LedgerEntry[] = [];
      for (const { record, row, fault } of bad) {
        const instead = await this.standIn(shard, block, record - first, unreadable, fault, table, run);
        this.decode(instead.loaded, instead.number, row, run.memory);
        const replacement = { shard: path, record: instead.loaded.survey.firstRecord + instead.number };
        // A read that failed may have begun in another block. What a format reads itself has no segments.
        const [from, to] = [table.segmentStart[block] as number, table.segmentStart[block + 1] as number];
        const begin = from < to ? (table.segmentOffset[from] as number) : 0;
        const byteOffset = unreadable ? begin : (fault.where.byteOffset ?? begin);
        entries.push({ source: this.source.name, shard: path, record, byteOffset, code: fault.code, replacement });
      }
      await this.ledger.add(entries, this.source.path(shard));
      this.source.clocks.replacedRows += bad.length;
      this.source.clocks.badRecords = this.ledger.distinct;
    });
  }

  private exclusive<Result>(work: () => Promise<Result>): Promise<Result> {
    this.active++;
    clearTimeout(this.leave);
    const turn = this.tail.then(work).finally(() => {
      if (--this.active === 0) this.leave = setTimeout(() => this.release(), KEEP_MS).unref();
    });
    this.tail = turn.catch(() => undefined);
    return turn;
  }

  /** Gives the workspace back. */
  private release(): void {
    const { kernels } = this;
    this.kernels = undefined;
    this.loaded = undefined;
    if (kernels === undefined || kernels.memory.buffer.byteLength > MAX_KEPT_BYTES) return;
    idle.push(kernels);
  }

  /** Which record stands in for number `i` of a block: the rule. */
  private async standIn(
    shard: number,
    block: number,
    i: number,
    unreadable: boolean,
    fault: AthanorError,
    table: BlockTable,
    run: ForRun,
  ): Promise<{ loaded: Loaded; number: number }> {
    if (!unreadable) {
      const good = await this.goodIn(shard, block, run);
      if (good.length > 0) {
        const before = lastAtMost(good, good.length, i);
        // The first one behind it, else the last one.
        const number = (good[before] as number) > i ? good[before] : (good[before + 1] ?? good[before]);
        return { loaded: await this.load(shard, block, run), number: number as number };
      }
    }
    for (const other of neighbours(block, table.blocks)) {
      try {
        const good = await this.goodIn(shard, other, run);
        if (good.length === 0) continue;
        return { loaded: await this.load(shard, other, run), number: good[i % good.length] as number };
      } catch (error) {
        if (!this.takesIo(error)) throw error;
      }
    }
    throw new NoGoodRecord(
      `no record of the shard can stand in for this one: ${fault.what}`,
      fault.where,
      "restore the shard, or leave it out",
      fault,
    );
  }

  /** Numbers of a block's good records, rising. */
  private async goodIn(shard: number, block: number, run: ForRun): Promise<Uint32Array> {
    const survey = this.surveys.get(`${shard} ${block}`) ?? (await this.load(shard, block, run)).survey;
    // A damaged chunk can make all of 65,536 records bad: each of them asks.
    const known = this.good.get(survey);
    if (known !== undefined) return known;
    const good = Uint32Array.from({ length: survey.records }, (_, i) => i).filter((i) => !survey.faults.has(i));
    this.good.set(survey, good);
    return good;
  }

  /** Reads a block and finds what is bad in it. */
  private async load(shard: number, block: number, run: ForRun): Promise<Loaded> {
    if (this.loaded?.shard === shard && this.loaded.block === block) return this.loaded;
    this.loaded = undefined;
    const table = await this.source.table(shard);
    const firstRecord = table.firstRecord[block] as number;
    const records = (table.firstRecord[block + 1] as number) - firstRecord;
    const span = spanOf(table, block, firstRecord, firstRecord + records, this.source.wants(shard));
    const { pieces, length, origin } = span;
    const offset = pieces[0]?.offset ?? 0;
    const rows = this.row + align(this.layout.rowBytes, 64);
    const raw = rows + align(records * 4, 64);
    const kernels = this.prepare(raw + length + SLACK);
    const { format } = this.source;
    const places: number[] = [];
    let at = raw;
    for (const piece of pieces) {
      places.push(at);
      if (!table.stream) await this.read(shard, piece, at, run.over);
      else if (format.kind === "rows") await this.inflate(shard, piece, at, run.over);
      at += piece.length;
    }
    const place = { firstRecord, records, file: this.source.path(shard) };
    let found: BlockSurvey;
    let columns: BlockColumns | undefined;
    if (format.kind === "rows") {
      const restarts = table.restarts.subarray(table.restartStart[block], table.restartStart[block + 1]);
      const ranges = { raw, rawBytes: length, restarts, row: this.row, plan: this.plan, fileOffset: offset };
      found = format.survey(kernels, { ...place, ...ranges, rows, shardKey: this.source.key(shard) });
    } else {
      const { buffer } = kernels.memory;
      const segments = pieces.map((piece, i) => ({ ...piece, bytes: new Uint8Array(buffer, places[i], piece.length) }));
      const restarts = restartsOf(table, block, span);
      const asRead = { ...place, block, segments, origin, meta: this.source.meta(shard), checkCrc: true };
      const stream = table.stream ? { stream: this.source.openStream(shard, run.over), offset, length } : undefined;
      try {
        columns = await run.decoders.survey(run.group, { ...asRead, format: format.name, restarts }, stream);
      } finally {
        if (stream !== undefined) run.decoders.closeStream(stream.stream);
      }
      if (this.source.readsItself) await this.source.check(shard, run.over);
      found = { begin: new Uint32Array(0), end: new Uint32Array(0), faults: columns.faults };
    }
    const survey = { ...found, offset, firstRecord, records };
    if (found.faults.size > 0) this.surveys.set(`${shard} ${block}`, survey);
    this.loaded = { shard, block, raw, rows, survey, columns };
    return this.loaded;
  }

  private get plan(): number {
    return align((this.kernels as Kernels).tables + TABLE_BYTES, 64);
  }

  private get row(): number {
    this.kernels ??= this.make();
    return this.plan + PLAN_BYTES;
  }

  private make(): Kernels {
    const kernels = idle.pop() ?? createKernels(PLAN_BYTES);
    const { format } = this.source;
    if (format.kind === "rows") {
      format.compilePlan(kernels, align(kernels.tables + TABLE_BYTES, 64), this.layout.stored);
    }
    return kernels;
  }

  /** Kernels over at least `bytes` of memory. */
  private prepare(bytes: number): Kernels {
    const { memory } = this.kernels as Kernels;
    const missing = bytes - memory.buffer.byteLength;
    if (missing > 0) memory.grow(Math.ceil(missing / 65536));
    return this.kernels as Kernels;
  }

  private async read(shard: number, { file, offset, length }: Piece, raw: number, over: AbortSignal): Promise<void> {
    const buffer = (this.kernels as Kernels).memory.buffer as SharedArrayBuffer;
    await this.source.read(shard, file, offset, length, buffer, raw, true, over);
  }

  /** A stream has no other way to a block than from its beginning. */
  private async inflate(shard: number, { offset, length }: Piece, raw: number, over: AbortSignal): Promise<void> {
    const { encoding, pull } = this.source.openStream(shard, over);
    const stream = openStream(encoding, this.source.path(shard), () => {
      pull().then(
        ({ bytes, last }) => stream.push(bytes, last),
        (error: Error) => stream.abort(error),
      );
    });
    try {
      await stream.skip(offset);
      await stream.readInto(new Uint8Array((this.kernels as Kernels).memory.buffer, raw, length));
    } finally {
      stream.destroy();
    }
  }

  /** Decodes record `i` of the loaded block and copies its row, identity included. */
  private decode(loaded: Loaded, i: number, row: number, memory: GroupMemory): void {
    const kernels = this.kernels as Kernels;
    const { shard, survey } = loaded;
    const { truncated } = this.decodeOne(kernels, loaded, i);
    if (truncated > 0 && this.options.strict) {
      throw new RowTooLong(
        "a list is longer than max_length, and strict=True forbids cutting it",
        { file: this.source.path(shard), record: survey.firstRecord + i },
        "raise max_length or set strict=False",
      );
    }
    memory.bytes.set(new Uint8Array(kernels.memory.buffer, this.row, this.layout.rowBytes), row);
    memory.words[(row + FLAGS_AT) >>> 2] = (truncated > 0 ? FLAG_CUT : 0) | FLAG_REPLACED;
  }

  private decodeOne(kernels: Kernels, { shard, raw, rows, survey, columns }: Loaded, i: number): { truncated: number } {
    const { format } = this.source;
    const place = { rows, shardKey: this.source.key(shard), file: this.source.path(shard) };
    if (format.kind === "columns") {
      new Uint32Array(kernels.memory.buffer, rows, 1)[0] = this.row;
      const request = { ...place, firstRecord: survey.firstRecord + i, records: 1 };
      return storeRows(kernels.memory.buffer, this.layout.stored, onlyRecord(columns as BlockColumns, i), request);
    }
    new Uint32Array(kernels.memory.buffer, rows, 1)[0] = this.row;
    const begin = survey.begin[i] as number;
    return format.decode(kernels, {
      ...place,
      raw: raw + begin,
      rawBytes: (survey.end[i] as number) - begin,
      firstRecord: survey.firstRecord + i,
      records: 1,
      plan: this.plan,
      checkCrc: true,
      fileOffset: survey.offset + begin,
    });
  }
}

/** The columns of record `i` alone. */
function onlyRecord({ fields }: BlockColumns, i: number): BlockColumns {
  const one = [...fields].map(([name, column]) => {
    const { kind, values, ends, cut } = column;
    const [from, to] = [startOf(column, i), ends[i] as number];
    const own: Column = { kind, values: values.subarray(from, to), ends: Uint32Array.of(to - from) };
    if (cut !== undefined) own.cut = cut.subarray(i, i + 1);
    return [name, own] as const;
  });
  return { fields: new Map(one), faults: new Map() };
}

/** Blocks before, the nearest first, then those behind. */
function* neighbours(block: number, blocks: number): Generator<number> {
  for (let other = block - 1; other >= 0; other--) yield other;
  for (let other = block + 1; other < blocks; other++) yield other;
}
