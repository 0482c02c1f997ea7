/**
 * Intake: from records of a shard to rows in memory: reserve raw bytes, read, decode, hand the rows over.
 * Raw bytes are held only between the read and the end of its decoding, and a read is only started when the rows
 * it will produce have their place, so that the arena always drains.
 */
import { setMaxListeners } from "node:events";
import type { BlockSamples, BlockTable, DecodeReport, DecodeRequest } from "../formats/types.ts";
import { AthanorError } from "../base/errors.ts";
import type { StageClocks } from "../telemetry/clocks.ts";
import type { ColumnsRequest } from "./decode-thread.ts";
import { faultsOf } from "./decoders.ts";
import type { Decoders, StreamPlace } from "./decoders.ts";
import { formatSize } from "../base/units.ts";
import { MemoryBudget, RowTooLong } from "./errors.ts";
import type { GroupMemory } from "./memory.ts";
import { align } from "./memory.ts";
import { SLACK, placeRuns } from "./placed-runs.ts";
import type { PlacedRead, PlacedRun, PlacedRuns } from "./placed-runs.ts";
import { FLAG_CUT, FLAGS_AT } from "./quarantine.ts";
import type { BadRecord, Quarantine } from "./quarantine.ts";
import type { RecordRun, Source } from "./source.ts";
import type { Piece, Span } from "./spans.ts";
import { restartsOf } from "./spans.ts";

export interface RowSink {
  /** Address for a record of the run, 0 to skip it. Called once a record, right before decoding. */
  place(run: RecordRun, record: number): number;
  /** The record's row is in memory. */
  done(run: RecordRun, record: number, row: number): void;
}

export interface IntakeOptions {
  checkCrc: boolean;
  /** A list longer than max_length is an error. */
  strict: boolean;
}

/** A running inflater of one shard, made by `Source.openStream`. */
export interface RunningStream {
  place: (offset: number, length: number) => StreamPlace;
  close: () => void;
  /** Samples of blocks are looked up one behind the other: the inflater cannot go back. */
  turn: Promise<unknown>;
}

/** A read that has not arrived. */
interface Reading {
  shard: number;
  file: number;
  offset: number;
  since: number;
}

export class Intake {
  /** Reads issued and not arrived: what a watchdog or `why` names. */
  private readonly reading = new Map<number, Reading>();
  private nextRead = 1;
  private active = 0;
  private whenIdle: (() => void) | undefined;
  readonly group: number;
  readonly memory: GroupMemory;
  readonly decoders: Decoders;
  private readonly source: Source;
  private readonly options: IntakeOptions;
  /** Replaces bad records where the job asked for that. */
  private readonly quarantine: Quarantine | undefined;
  private readonly clocks: StageClocks;
  private readonly ending = new AbortController();

  constructor(
    group: number,
    source: Source,
    memory: GroupMemory,
    decoders: Decoders,
    options: IntakeOptions,
    quarantine: Quarantine | undefined,
  ) {
    this.group = group;
    this.source = source;
    this.memory = memory;
    this.decoders = decoders;
    this.options = options;
    this.quarantine = quarantine;
    this.clocks = source.clocks;
    // As many wait at it as there are reads.
    setMaxListeners(0, this.ending.signal);
  }

  openStream(shard: number): RunningStream {
    const stream = this.source.openStream(shard, this.over);
    return {
      place: (offset, length) => ({ stream, offset, length }),
      close: () => this.decoders.closeStream(stream),
      turn: Promise.resolve(),
    };
  }

  /**
   * Loads runs of adjacent blocks of one shard with one read. Undefined: no room in the raw arena now.
   * With `stream` the shard is compressed and its running inflater gives the bytes.
   */
  load(
    table: BlockTable,
    runs: readonly RecordRun[],
    urgent: boolean,
    sink: RowSink,
    stream?: RunningStream,
  ): Promise<void> | undefined {
    const placed = placeRuns(table, runs, this.source.wants((runs[0] as RecordRun).shard));
    const { need } = placed;
    const raw = this.memory.raw.alloc(need);
    if (raw === 0) {
      if (need <= this.memory.raw.size / 2) return undefined;
      // Blocks can share segments, which each of them reads: a few are more than all the bytes of a small set.
      if (runs.length > 1 && stream === undefined) return this.during(this.loadSingly(table, runs, urgent, sink));
      throw new MemoryBudget(
        `a read of ${formatSize(need)} does not fit the ${formatSize(this.memory.raw.size)} for reads`,
        { file: this.source.path((runs[0] as RecordRun).shard) },
        "its records are very large: split them, or report it",
      );
    }
    const work =
      stream === undefined
        ? this.readAndDecode(placed, raw, urgent, sink)
        : this.inflateAndDecode(placed, raw, urgent, sink, stream);
    return this.during(work.finally(() => this.memory.raw.release(raw)));
  }

  private async loadSingly(
    table: BlockTable,
    runs: readonly RecordRun[],
    urgent: boolean,
    sink: RowSink,
  ): Promise<void> {
    for (const run of runs) {
      let load = this.load(table, [run], urgent, sink);
      for (; load === undefined; load = this.load(table, [run], urgent, sink)) await this.memory.raw.room();
      await load;
    }
  }

  /** Counts work that uses the run's memory: it is not given to another run before that is over. */
  during(work: Promise<void>): Promise<void> {
    this.active++;
    return work.finally(() => {
      if (--this.active === 0) this.whenIdle?.();
    });
  }

  get idle(): boolean {
    return this.active === 0;
  }

  /** The read that has been under way for longest, in words. */
  oldest(): string | undefined {
    let oldest: Reading | undefined;
    for (const read of this.reading.values()) if (oldest === undefined || read.since < oldest.since) oldest = read;
    if (oldest === undefined) return undefined;
    const { source } = this;
    const { shard, file, offset, since } = oldest;
    const seconds = ((performance.now() - since) / 1000).toFixed(1);
    const targets = source.foresees ? source.targetsOf(shard, file, offset, 1) : undefined;
    const notes = [targets?.join(", "), source.noteOf(shard, file)].filter((note) => note !== undefined);
    const why = notes.length === 0 ? "" : ` (${notes.join(", ")})`;
    return `storage: reading ${source.path(shard, file)} at byte ${offset} for ${seconds} s${why}`;
  }

  /** Aborted: nobody waits for what is read here any more. */
  get over(): AbortSignal {
    return this.ending.signal;
  }

  /** Reads that wait for their file to come back from an archive are given up. */
  end(): void {
    this.ending.abort();
  }

  /** Resolves when no read and no decoding of this run is under way. */
  drained(): Promise<void> {
    return this.active === 0 ? Promise.resolve() : new Promise((resolve) => (this.whenIdle = resolve));
  }

  private async readAndDecode(
    { shard, runs, reads, rowsAt }: PlacedRuns,
    raw: number,
    urgent: boolean,
    sink: RowSink,
  ): Promise<void> {
    let unread: (AthanorError | undefined)[] = [];
    if (this.source.readsItself) await this.check(shard);
    const samples = Promise.all(runs.map(async ({ run }) => await this.source.samplesOf(shard, run.block)));
    // Awaited below: until then its failure is nobody's.
    samples.catch(() => undefined);
    try {
      await settled(reads.map((read) => this.read(shard, read, raw, urgent)));
    } catch (error) {
      if (this.quarantine?.takesIo(error) !== true) throw error;
      unread = await this.readSingly(shard, runs, raw, error as AthanorError);
    }
    let at = raw + rowsAt;
    const cut = await samples;
    const tasks = runs.map(({ run, span, places }, i) => {
      const fault = unread[i];
      const rows = at;
      at += align(span.records * 4, 64);
      const addresses = places.map((place) => raw + place);
      return fault === undefined
        ? this.decode(run, span, addresses, rows, urgent, sink, undefined, cut[i])
        : this.replaceAll(run, fault, sink);
    });
    await settled(tasks);
  }

  /** Of what its format reads itself: is the file there, and the one of the index? */
  private check(shard: number): Promise<void> {
    return this.counted({ shard, file: 0, offset: 0 }, () => this.source.check(shard, this.over));
  }

  private async counted(what: Omit<Reading, "since">, work: () => Promise<void>): Promise<void> {
    const id = this.nextRead++;
    this.reading.set(id, { ...what, since: performance.now() });
    try {
      await work();
    } finally {
      this.reading.delete(id);
    }
  }

  /** Reads `place` bytes behind `raw`. */
  private async read(shard: number, read: PlacedRead, raw: number, urgent: boolean): Promise<void> {
    const { file, offset, length, place } = read;
    const { buffer } = this.memory;
    await this.counted({ shard, file, offset }, () =>
      this.source.read(shard, file, offset, length, buffer, raw + place, urgent, this.over),
    );
  }

  /** Reads runs one by one behind a read of all that failed; their faults. */
  private async readSingly(
    shard: number,
    runs: readonly PlacedRun[],
    raw: number,
    fault: AthanorError,
  ): Promise<(AthanorError | undefined)[]> {
    if (runs.length === 1) return [fault];
    const faults: (AthanorError | undefined)[] = [];
    for (const { span, places } of runs) {
      try {
        for (const [i, piece] of span.pieces.entries()) {
          await this.read(shard, { ...piece, place: places[i] as number }, raw, true);
        }
        faults.push(undefined);
      } catch (error) {
        if (this.quarantine?.takesIo(error) !== true) throw error;
        faults.push(error as AthanorError);
      }
    }
    return faults;
  }

  /** Nothing of the block can be read: other records stand in for all that are wanted of it. */
  private async replaceAll(run: RecordRun, fault: AthanorError, sink: RowSink): Promise<void> {
    const bad: BadRecord[] = [];
    for (let record = run.from; record < run.to; record++) {
      const row = sink.place(run, record);
      if (row !== 0) bad.push({ record, row, fault });
    }
    await this.quarantine?.replace(run.shard, run.block, bad, this, true);
    for (const { record, row } of bad) sink.done(run, record, row);
  }

  private async inflateAndDecode(
    { shard, runs }: PlacedRuns,
    raw: number,
    urgent: boolean,
    sink: RowSink,
    stream: RunningStream,
  ): Promise<void> {
    for (const { run, span } of runs) {
      const { offset, length } = span.pieces[0] as Piece;
      const rows = raw + align(length + SLACK, 64);
      const samples = this.source.isCut ? await this.samplesInTurn(stream, shard, run.block) : undefined;
      await this.decode(run, span, [raw], rows, urgent, sink, stream.place(offset, length), samples);
    }
  }

  private samplesInTurn(stream: RunningStream, shard: number, block: number): Promise<BlockSamples | undefined> {
    const turn = stream.turn.then(async () => await this.source.samplesOf(shard, block));
    stream.turn = turn.catch(() => undefined);
    return turn;
  }

  /** `places`: address of each piece of the span. */
  private async decode(
    run: RecordRun,
    span: Span,
    places: readonly number[],
    rows: number,
    urgent: boolean,
    sink: RowSink,
    stream: StreamPlace | undefined,
    samples?: BlockSamples,
  ): Promise<void> {
    const words = this.memory.words;
    const at = rows >>> 2;
    let wanted = 0;
    for (let i = 0; i < span.records; i++) {
      const record = span.firstRecord + i;
      const row = record < run.from || record >= run.to ? 0 : sink.place(run, record);
      words[at + i] = row;
      if (row !== 0) wanted++;
    }
    if (wanted === 0 && stream === undefined) return;
    const report =
      this.source.format.kind === "rows"
        ? await this.decodeRows(run, span, places[0] as number, rows, urgent, stream)
        : await this.decodeColumns(run, span, places, rows, urgent, stream, samples);
    this.count(report);
    if (report.truncated > 0 && this.options.strict) this.refuse(run, span, at);
    for (let i = 0; i < span.records; i++) {
      const row = words[at + i] as number;
      if (row !== 0) sink.done(run, span.firstRecord + i, row);
    }
  }

  private decodeRows(
    run: RecordRun,
    span: Span,
    raw: number,
    rows: number,
    urgent: boolean,
    stream: StreamPlace | undefined,
  ): Promise<DecodeReport & { decodeNs: number }> {
    const { offset, length } = span.pieces[0] as Piece;
    const request: DecodeRequest = {
      raw,
      rawBytes: length,
      firstRecord: span.firstRecord,
      records: span.records,
      rows,
      plan: this.memory.plan,
      shardKey: this.source.key(run.shard),
      checkCrc: this.options.checkCrc,
      file: this.source.path(run.shard),
      fileOffset: offset,
    };
    return this.decoders
      .decode(this.group, this.source.format.name, request, urgent, stream)
      .catch((error: unknown) => {
        if (this.quarantine?.takes(error) !== true) throw error;
        return this.salvage(this.quarantine, run, request, urgent);
      });
  }

  private async decodeColumns(
    { shard, block }: RecordRun,
    span: Span,
    places: readonly number[],
    rows: number,
    urgent: boolean,
    stream: StreamPlace | undefined,
    samples: BlockSamples | undefined,
  ): Promise<DecodeReport & { decodeNs: number }> {
    const { pieces, firstRecord, records, origin } = span;
    const table = this.source.tableNow(shard) as BlockTable;
    const request: ColumnsRequest = {
      format: this.source.format.name,
      block,
      firstRecord,
      records,
      rows,
      restarts:
        samples === undefined ? restartsOf(table, block, span) : (samples.pieces?.restarts ?? new Uint32Array(0)),
      segments: pieces.map((piece, i) => ({ ...piece, at: places[i] as number })),
      origin,
      shardKey: this.source.key(shard),
      checkCrc: this.options.checkCrc,
      file: this.source.path(shard),
      meta: this.source.meta(shard),
      samples: samples && sliceOf(samples, firstRecord - (this.source.firstRecord(shard, block) as number), records),
    };
    const report = await this.decoders.columns(this.group, request, urgent, stream);
    // What its format reads itself may have been replaced while the block was in the queue.
    if (this.source.readsItself) await this.check(shard);
    const bad: BadRecord[] = [];
    for (const [record, fault] of faultsOf(report.faults)) {
      if (samples !== undefined) throw await this.inRecord(shard, fault);
      if (this.quarantine?.takesInBlock(fault) !== true) throw fault;
      bad.push({ record: firstRecord + record, row: this.memory.words[(rows >>> 2) + record] as number, fault });
    }
    if (bad.length > 0) await this.quarantine?.replace(shard, block, bad, this);
    return report;
  }

  /** A fault of a sample, with the record of the shard in which it lies. */
  private async inRecord(shard: number, fault: AthanorError): Promise<AthanorError> {
    const { byteOffset } = fault.where;
    const record = byteOffset === undefined ? undefined : await this.source.recordAt(shard, byteOffset);
    return record === undefined ? fault : AthanorError.fromRecord({ ...fault.toRecord(), record });
  }

  /** Bad records among those of a span (its raw bytes are in memory): decodes the good ones, others stand in for the rest. */
  private async salvage(
    quarantine: Quarantine,
    { shard, block }: RecordRun,
    request: DecodeRequest,
    urgent: boolean,
  ): Promise<DecodeReport & { decodeNs: number }> {
    const { begin, end, faults, offset, firstRecord } = await quarantine.survey(shard, block, this);
    const first = request.firstRecord - firstRecord;
    const stop = first + request.records;
    const base = request.raw + offset - request.fileOffset;
    const sum = { rows: 0, truncated: 0, decodeNs: 0 };
    const bad: BadRecord[] = [];
    for (let from = first, to = first; from < stop; from = to) {
      const rows = request.rows + (from - first) * 4;
      const fault = faults.get(from);
      to = from + 1;
      if (fault !== undefined) {
        const row = this.memory.words[rows >>> 2] as number;
        if (row !== 0) bad.push({ record: firstRecord + from, row, fault });
        continue;
      }
      while (to < stop && !faults.has(to) && begin[to] === end[to - 1]) to++;
      const at = begin[from] as number;
      const piece = { raw: base + at, rawBytes: (end[to - 1] as number) - at, records: to - from, rows };
      const place = { firstRecord: firstRecord + from, fileOffset: offset + at };
      const report = await this.decoders.decode(
        this.group,
        this.source.format.name,
        { ...request, ...piece, ...place },
        urgent,
      );
      sum.rows += report.rows;
      sum.truncated += report.truncated;
      sum.decodeNs += report.decodeNs;
    }
    await quarantine.replace(shard, block, bad, this);
    return sum;
  }

  private count(report: DecodeReport & { decodeNs: number }): void {
    this.clocks.decodedRows += report.rows;
    this.clocks.decodeNs += report.decodeNs;
    this.clocks.truncatedRows += report.truncated;
  }

  private refuse(run: RecordRun, span: Span, at: number): never {
    const words = this.memory.words;
    for (let i = 0; i < span.records; i++) {
      const row = words[at + i] as number;
      if (row !== 0 && ((words[(row + FLAGS_AT) >>> 2] as number) & FLAG_CUT) !== 0) {
        throw new RowTooLong(
          "a list is longer than max_length, and strict=True forbids cutting it",
          { file: this.source.path(run.shard), record: span.firstRecord + i },
          "raise max_length or set strict=False",
        );
      }
    }
    throw new Error("decoder reported a cut row that is not marked");
  }
}

/** Samples [from, from + count) of a block; rows of pieces are those of a whole one. */
function sliceOf(samples: BlockSamples, from: number, count: number): BlockSamples {
  const { record, token, length, pieces } = samples;
  if (pieces !== undefined) return samples;
  const to = from + count;
  return { record: record.slice(from, to), token: token.slice(from, to), length: length.slice(from, to) };
}

/** Waits for all, then throws the first failure: raw bytes may not be released under a running decoder. */
async function settled(tasks: Promise<void>[]): Promise<void> {
  for (const result of await Promise.allSettled(tasks)) {
    if (result.status === "rejected") throw result.reason;
  }
}
