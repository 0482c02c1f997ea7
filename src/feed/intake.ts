/**
 * Intake: from records of a shard to rows in memory: reserve raw bytes, read, decode, hand the rows over.
 * Raw bytes are held only between the read and the end of its decoding, and a read is only started when the rows
 * it will produce have their place, so that the arena always drains.
 */
import type { BlockTable, DecodeReport, DecodeRequest } from "../formats/types.ts";
import type { AthanorError } from "../base/errors.ts";
import type { StageClocks } from "../telemetry/clocks.ts";
import type { Decoders, StreamPlace } from "./decoders.ts";
import { formatSize } from "../base/units.ts";
import { MemoryBudget, RowTooLong } from "./errors.ts";
import type { GroupMemory } from "./memory.ts";
import { align } from "./memory.ts";
import { FLAG_CUT, FLAGS_AT } from "./quarantine.ts";
import type { BadRecord, Quarantine } from "./quarantine.ts";
import type { RecordRun, Source } from "./source.ts";
import type { Span } from "./spans.ts";
import { spanOf } from "./spans.ts";

/** Bytes behind the raw bytes that a kernel may load (never use) beyond their end. */
const SLACK = 32;

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
}

export class Intake {
  /** Reads issued and not arrived: what a watchdog or `why` names. */
  private readonly reading = new Map<number, { shard: number; offset: number; length: number; since: number }>();
  private nextRead = 1;
  private active = 0;
  private whenIdle: (() => void) | undefined;
  private readonly group: number;
  private readonly source: Source;
  private readonly memory: GroupMemory;
  private readonly decoders: Decoders;
  private readonly options: IntakeOptions;
  /** Replaces bad records where the job asked for that. */
  private readonly quarantine: Quarantine | undefined;
  private readonly clocks: StageClocks;

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
  }

  /** Raw bytes that `load` would need for these runs. */
  static need(table: BlockTable, runs: readonly RecordRun[]): number {
    const { length, spans } = extentOf(table, runs);
    return table.stream
      ? Math.max(...spans.map((span) => align(span.length + SLACK, 64) + align(span.records * 4, 64)))
      : align(length + SLACK, 64) + spans.reduce((sum, span) => sum + align(span.records * 4, 64), 0);
  }

  openStream(shard: number): RunningStream {
    const { id, place } = this.source.openStream(shard);
    return { place, close: () => this.decoders.closeStream(id) };
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
    const need = Intake.need(table, runs);
    const raw = this.memory.raw.alloc(need);
    if (raw === 0) {
      if (need <= this.memory.raw.size / 2) return undefined;
      throw new MemoryBudget(
        `a read of ${formatSize(need)} does not fit the ${formatSize(this.memory.raw.size)} for reads`,
        { file: this.source.path((runs[0] as RecordRun).shard) },
        "its records are very large: split them, or report it",
      );
    }
    const work =
      stream === undefined
        ? this.readAndDecode(table, runs, raw, urgent, sink)
        : this.inflateAndDecode(table, runs, raw, urgent, sink, stream);
    return this.during(work.finally(() => this.memory.raw.release(raw)));
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
    let oldest: { shard: number; offset: number; since: number } | undefined;
    for (const read of this.reading.values()) if (oldest === undefined || read.since < oldest.since) oldest = read;
    if (oldest === undefined) return undefined;
    const seconds = ((performance.now() - oldest.since) / 1000).toFixed(1);
    return `storage: reading ${this.source.path(oldest.shard)} at byte ${oldest.offset} for ${seconds} s`;
  }

  /** Resolves when no read and no decoding of this run is under way. */
  drained(): Promise<void> {
    return this.active === 0 ? Promise.resolve() : new Promise((resolve) => (this.whenIdle = resolve));
  }

  private async readAndDecode(
    table: BlockTable,
    runs: readonly RecordRun[],
    raw: number,
    urgent: boolean,
    sink: RowSink,
  ): Promise<void> {
    const { offset, length, spans } = extentOf(table, runs);
    const shard = (runs[0] as RecordRun).shard;
    let unread: (AthanorError | undefined)[] = [];
    try {
      await this.read(shard, offset, length, raw, urgent);
    } catch (error) {
      if (this.quarantine?.takesIo(error) !== true) throw error;
      unread = await this.readSingly(shard, spans, raw - offset, error as AthanorError);
    }
    let tableAt = raw + align(length + SLACK, 64);
    const tasks = runs.map((run, i) => {
      const span = spans[i] as Span;
      const fault = unread[i];
      const task =
        fault === undefined
          ? this.decode(run, span, raw + span.offset - offset, tableAt, urgent, sink, undefined)
          : this.replaceAll(run, fault, sink);
      tableAt += align(span.records * 4, 64);
      return task;
    });
    await settled(tasks);
  }

  private async read(shard: number, offset: number, length: number, at: number, urgent: boolean): Promise<void> {
    const id = this.nextRead++;
    this.reading.set(id, { shard, offset, length, since: performance.now() });
    try {
      await this.source.read(shard, offset, length, this.memory.buffer, at, urgent);
    } finally {
      this.reading.delete(id);
    }
  }

  /** Reads spans one by one behind a read of all that failed; their faults. `base`: address of byte 0 of the shard. */
  private async readSingly(
    shard: number,
    spans: readonly Span[],
    base: number,
    fault: AthanorError,
  ): Promise<(AthanorError | undefined)[]> {
    if (spans.length === 1) return [fault];
    const faults: (AthanorError | undefined)[] = [];
    for (const { offset, length } of spans) {
      try {
        await this.read(shard, offset, length, base + offset, true);
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
    await this.quarantine?.replace(run.shard, run.block, bad, this.memory, true);
    for (const { record, row } of bad) sink.done(run, record, row);
  }

  private async inflateAndDecode(
    table: BlockTable,
    runs: readonly RecordRun[],
    raw: number,
    urgent: boolean,
    sink: RowSink,
    stream: RunningStream,
  ): Promise<void> {
    for (const run of runs) {
      const span = spanOf(table, run.block, run.from, run.to);
      await this.decode(
        run,
        span,
        raw,
        raw + align(span.length + SLACK, 64),
        urgent,
        sink,
        stream.place(span.offset, span.length),
      );
    }
  }

  private async decode(
    run: RecordRun,
    span: Span,
    raw: number,
    rows: number,
    urgent: boolean,
    sink: RowSink,
    stream: StreamPlace | undefined,
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
    const request: DecodeRequest = {
      raw,
      rawBytes: span.length,
      firstRecord: span.firstRecord,
      records: span.records,
      rows,
      plan: this.memory.plan,
      shardKey: this.source.key(run.shard),
      checkCrc: this.options.checkCrc,
      file: this.source.path(run.shard),
      fileOffset: span.offset,
    };
    const report = await this.decoders.decode(this.group, request, urgent, stream).catch((error: unknown) => {
      if (this.quarantine?.takes(error) !== true) throw error;
      return this.salvage(this.quarantine, run, request, urgent);
    });
    this.count(report);
    if (report.truncated > 0 && this.options.strict) this.refuse(run, span, at);
    for (let i = 0; i < span.records; i++) {
      const row = words[at + i] as number;
      if (row !== 0) sink.done(run, span.firstRecord + i, row);
    }
  }

  /** Bad records among those of a span (its raw bytes are in memory): decodes the good ones, others stand in for the rest. */
  private async salvage(
    quarantine: Quarantine,
    { shard, block }: RecordRun,
    request: DecodeRequest,
    urgent: boolean,
  ): Promise<DecodeReport & { decodeNs: number }> {
    const { begin, end, faults, offset, firstRecord } = await quarantine.survey(shard, block);
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
      const report = await this.decoders.decode(this.group, { ...request, ...piece, ...place }, urgent);
      sum.rows += report.rows;
      sum.truncated += report.truncated;
      sum.decodeNs += report.decodeNs;
    }
    await quarantine.replace(shard, block, bad, this.memory);
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

function extentOf(table: BlockTable, runs: readonly RecordRun[]): { offset: number; length: number; spans: Span[] } {
  const spans = runs.map((run) => spanOf(table, run.block, run.from, run.to));
  const first = spans[0] as Span;
  const last = spans[spans.length - 1] as Span;
  return { offset: first.offset, length: last.offset + last.length - first.offset, spans };
}

/** Waits for all, then throws the first failure: raw bytes may not be released under a running decoder. */
async function settled(tasks: Promise<void>[]): Promise<void> {
  for (const result of await Promise.allSettled(tasks)) {
    if (result.status === "rejected") throw result.reason;
  }
}
