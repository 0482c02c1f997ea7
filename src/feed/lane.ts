/**
 * Lane: one strand of the order on this node. Reads its laid-out extents front to back with merged large reads and
 * puts rows into its windows; a window that was copied out leaves room for the next one, so reading follows
 * consumption evenly.
 *
 * ```
 *  laid rows   … ░░░░░░░░▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓│▓▓▓▓▓▓▓▓▒▒▒▒▒▒····
 *                 taken    window w       window w+1 ↑cursor      ▓ in memory  ▒ being read or decoded
 * ```
 */
import type { SourceOrder } from "../order/source-order.ts";
import type { Audience } from "./audience.ts";
import type { EarlyRows } from "./early.ts";
import { Intake } from "./intake.ts";
import type { RowSink, RunningStream } from "./intake.ts";
import type { GroupMemory } from "./memory.ts";
import type { RecordRun, Source } from "./source.ts";
import { spanOf } from "./spans.ts";
import type { Piece } from "./spans.ts";
import type { TargetLoad } from "./target-load.ts";
import { ROW_COMING, ROW_FIRST, ROW_SCHEDULED, ROW_SKIPPED, ROW_TAKEN } from "./supply.ts";

interface LaneWindow {
  pass: number;
  firstRow: number;
  rows: number;
  /** i-th row served → laid row of the window. */
  perm: Uint32Array;
  /** Laid row of the window → i-th row served. */
  inverse: Uint32Array;
  /** Address or ROW_… by laid row. */
  address: Uint32Array;
  /** Rows whose decoding has not ended. */
  missing: number;
  /** The furthest position of its rows. */
  reach: number;
}

/** Runs of adjacent blocks of one shard that one read brings, and the lane row of each run's first record. */
interface PlannedRead {
  shard: number;
  pass: number;
  runs: RecordRun[];
  laneRows: number[];
  rows: number;
  /** The file that it begins with, and its first and last byte wanted of that; undefined: of what its format reads itself. */
  where: { file: number; from: number; to: number } | undefined;
  /** All files that it reads. */
  files: Set<number>;
}

/** Room for rows that all lanes of a run have together. */
export interface SharedRoom {
  /** Rows beyond the lanes' own capacity: what lets reads be large. */
  free: number;
  /** Rows of the pool that no lane holds: the last word where more lanes are at work than expected. */
  left: number;
}

export interface LaneParts {
  order: SourceOrder;
  source: Source;
  memory: GroupMemory;
  intake: Intake;
  audience: Audience;
  early: EarlyRows;
  /** Laid rows of a window (the order's window; some thousand where the order is not shuffled). */
  window: number;
  /** Samples of a step: a batch needs all its rows at once. */
  step: number;
  /** Rows each lane may hold by itself: a window, a step's rows and the largest block, so that rows in need have a place. */
  capacity: number;
  shared: SharedRoom;
  /** Where reads of all lanes of the run are under way. */
  load: TargetLoad;
  /** Bytes at which a read ends, with the block that reaches them, and rows it may bring. Can change: places are told later. */
  reads: () => { bytes: number; rows: number };
  /** Samples of the largest extent. */
  largestExtent: number;
  changed: () => void;
  failed: (error: Error) => void;
}

/** Extents of a lane whose shards are asked for ahead. */
const AHEAD = 16;

export class Lane {
  readonly number: number;
  private readonly parts: LaneParts;
  private windows: LaneWindow[] = [];
  private planned: PlannedRead[] = [];
  private pass: number;
  /** Next lane row to plan. */
  private cursor: number;
  /** Rows in memory or promised to reads under way. */
  private held = 0;
  private stream: { shard: number; pass: number; running: RunningStream; last: Promise<void> } | undefined;
  private loadingTable = false;
  private firstWindowDone = false;
  /** Rows of `held` that are taken from the shared allowance. */
  private borrowed = 0;
  /** Somebody waits for a row that has not been read. */
  private inNeed = false;
  /** Position of the next row to read; undefined: it has changed. */
  private next: number | undefined;
  /** What lies before this row of this pass was foreseen, but for the files of shard `blind`, which were not known. */
  private foreseen: { pass: number; row: number; blind: number | undefined } = { pass: -1, row: 0, blind: undefined };

  constructor(number: number, pass: number, row: number, parts: LaneParts) {
    this.number = number;
    this.parts = parts;
    this.pass = pass;
    this.cursor = row - (row % parts.window);
  }

  /** Still filling for the first time: single rows may be fetched meanwhile. */
  get opening(): boolean {
    return !this.firstWindowDone;
  }

  /** Rows of the first window that are still to come. */
  get toFill(): number {
    if (this.firstWindowDone) return 0;
    return this.windows[0]?.missing ?? Math.min(this.parts.window, this.parts.order.laneRows(this.number));
  }

  /** Position of the next row to read: the lane furthest behind reads first. */
  get frontier(): number {
    this.next ??= this.nextPosition();
    return this.next;
  }

  find(pass: number, row: number): number {
    const window = this.windowOf(pass, row);
    const found =
      window === undefined ? ROW_COMING : (window.address[window.perm[row - window.firstRow] as number] as number);
    if (found === ROW_COMING) this.inNeed = true;
    return found;
  }

  take(pass: number, row: number, address: number): void {
    const window = this.windowOf(pass, row);
    if (window === undefined) throw new Error("a row was taken from a window that is gone");
    window.address[window.perm[row - window.firstRow] as number] = ROW_TAKEN;
    this.free(address);
  }

  /** Frees rows that nobody here will ask for any more. */
  sweep(): void {
    for (const window of this.windows) {
      for (let laid = 0; laid < window.rows; laid++) {
        const address = window.address[laid] as number;
        if (address < ROW_FIRST || this.wanted(window, laid)) continue;
        window.address[laid] = ROW_SKIPPED;
        this.free(address);
      }
    }
  }

  /** Starts one read if there is one to start and room for it. Returns whether it did. */
  advance(): boolean {
    this.retire();
    if (this.isFarAhead()) return false;
    const next = this.planned[0] ?? this.plan();
    if (next === undefined) return false;
    const { source, intake, audience } = this.parts;
    const table = source.tableNow(next.shard);
    if (table === undefined) return false;
    if (!audience.everybody && !this.anyWanted(next)) {
      this.skip(next);
      return true;
    }
    const read = this.fits(next.rows) ? next : this.inNeed ? this.firstBlock(next) : undefined;
    if (read === undefined || !this.fits(read.rows)) return false;
    const targets = this.targetsOf(read);
    // Somebody waits, or another lane may have more of it: memory for reads is not spent on what a slow target queues.
    if (!this.inNeed && this.mayWait(read, targets)) return false;
    const stream = table.stream ? this.streamOf(read) : undefined;
    const load = intake.load(table, read.runs, false, this.sink(read), stream);
    if (load === undefined) return false;
    if (targets !== undefined) this.parts.load.during(targets, load);
    this.planned.shift();
    this.next = undefined;
    this.inNeed = false;
    this.hold(read.rows);
    if (this.stream !== undefined && stream !== undefined) this.stream.last = load;
    load.then(
      () => this.parts.changed(),
      (error: Error) => this.parts.failed(error),
    );
    return true;
  }

  close(): void {
    this.stream?.running.close();
  }

  private targetsOf({ shard, where }: PlannedRead): readonly string[] | undefined {
    const { source } = this.parts;
    if (!source.foresees || where === undefined) return undefined;
    return source.targetsOf(shard, where.file, where.from, where.to - where.from);
  }

  private mayWait(read: PlannedRead, targets: readonly string[] | undefined): boolean {
    return (
      this.parts.source.isAway(read.shard, read.files) || (targets !== undefined && this.parts.load.isFull(targets))
    );
  }

  /** Has the places of the next shards asked for, well before they are read. */
  private foresee(): void {
    const { order, source, largestExtent } = this.parts;
    if (!source.foresees) return;
    const { pass, row, blind } = this.foreseen;
    const knowsMore = blind !== undefined && source.hasMoreFiles(blind);
    if (pass === this.pass && this.cursor < row && !knowsMore) return;
    const rows = AHEAD * largestExtent;
    const pieces = order.pieces(this.pass, this.number, this.cursor, this.cursor + rows);
    const seen = source.foresee(
      pieces.map(({ extent, first, count }) => {
        const from = source.extentRecord(extent) + first;
        return { shard: order.extents.shard[extent] as number, from, to: from + count };
      }),
    );
    this.foreseen = { pass: this.pass, row: this.cursor + (seen.records ?? rows) / 2, blind: seen.blind };
  }

  /** More than a step and two windows beyond the first of the local ranks: a lane nobody reads from must not run away. */
  private isFarAhead(): boolean {
    const { audience, order, window, step } = this.parts;
    return this.frontier > audience.top + step + 2 * window * order.spread;
  }

  private nextPosition(): number {
    const { order, window } = this.parts;
    const pass = this.planned[0]?.pass ?? this.pass;
    const row = this.planned[0]?.laneRows[0] ?? this.cursor;
    const found = order.frontier(pass, this.number, row);
    // Where a source leaves the mix in the middle of a window, the rows to read may be any of those that are still served.
    return found < Infinity ? found : order.frontier(pass, this.number, row - (row % window));
  }

  private anyWanted(read: PlannedRead): boolean {
    return read.runs.some((run, i) => {
      const first = read.laneRows[i] as number;
      for (let row = first; row < first + run.to - run.from; row++) {
        const window = this.windowOf(read.pass, row) as LaneWindow;
        if (this.wanted(window, row - window.firstRow)) return true;
      }
      return false;
    });
  }

  /** Rows that no rank of this node will ask for cost no read. */
  private skip(read: PlannedRead): void {
    this.planned.shift();
    this.next = undefined;
    read.runs.forEach((run, i) => {
      const first = read.laneRows[i] as number;
      for (let row = first; row < first + run.to - run.from; row++) {
        const window = this.windowOf(read.pass, row) as LaneWindow;
        window.address[row - window.firstRow] = ROW_SKIPPED;
        this.arrive(window);
      }
    });
  }

  private free(address: number): void {
    this.parts.memory.rows.release(address);
    this.hold(-1);
  }

  private fits(rows: number): boolean {
    const { capacity, shared } = this.parts;
    return rows <= shared.left && this.held - this.borrowed + rows <= capacity + shared.free;
  }

  /** Takes or gives back room for rows; what the lane's own capacity does not hold is borrowed. */
  private hold(rows: number): void {
    const { capacity, shared } = this.parts;
    this.held += rows;
    const borrowed = Math.max(0, this.held - capacity);
    shared.free -= borrowed - this.borrowed;
    shared.left -= rows;
    this.borrowed = borrowed;
  }

  /** Splits a planned read that does not fit: a single block always does when its lane is the one waited for. */
  private firstBlock(read: PlannedRead): PlannedRead {
    const [run, ...rest] = read.runs as [RecordRun, ...RecordRun[]];
    if (rest.length === 0) return read;
    const rows = run.to - run.from;
    const first: PlannedRead = { ...read, runs: [run], laneRows: read.laneRows.slice(0, 1), rows };
    const second: PlannedRead = { ...read, runs: rest, laneRows: read.laneRows.slice(1), rows: read.rows - rows };
    this.planned.splice(0, 1, first, second);
    return first;
  }

  private windowOf(pass: number, row: number): LaneWindow | undefined {
    for (const window of this.windows) {
      if (window.pass === pass && row >= window.firstRow && row < window.firstRow + window.rows) return window;
    }
    return undefined;
  }

  private positionOf(window: LaneWindow, laid: number): number {
    return this.parts.order.positionAt(window.pass, this.number, window.firstRow + (window.inverse[laid] as number));
  }

  private wanted(window: LaneWindow, laid: number): boolean {
    const position = this.positionOf(window, laid);
    return position >= 0 && this.parts.audience.wants(position) && !this.parts.early.has(position);
  }

  /** Forgets windows that everybody here has passed. */
  private retire(): void {
    const { audience } = this.parts;
    const floor = audience.floor();
    for (let window = this.windows[0]; window !== undefined && window.missing === 0; window = this.windows[0]) {
      if (window.reach >= floor) return;
      for (const address of window.address) if (address >= ROW_FIRST) this.free(address);
      this.windows.shift();
    }
  }

  /** Plans the reads of the next extent piece, or starts loading the block table it needs. */
  private plan(): PlannedRead | undefined {
    const { order, source, largestExtent } = this.parts;
    if (this.cursor >= order.laneRows(this.number)) {
      if (order.laneRows(this.number) === 0) return undefined;
      this.pass++;
      this.cursor = 0;
      this.next = undefined;
    }
    this.foresee();
    const piece = order.pieces(this.pass, this.number, this.cursor, this.cursor + largestExtent)[0];
    if (piece === undefined) return undefined;
    const shard = order.extents.shard[piece.extent] as number;
    const table = source.tableNow(shard);
    if (table === undefined) {
      this.loadTable(shard);
      return undefined;
    }
    const from = source.extentRecord(piece.extent) + piece.first;
    const runs = source.runs(table, shard, from, from + piece.count);
    let read: PlannedRead | undefined;
    let bytes = 0;
    const most = this.parts.reads();
    for (const run of runs) {
      const span = spanOf(table, run.block, run.from, run.to, source.wants(shard));
      const rows = run.to - run.from;
      if (read === undefined || table.stream || bytes >= most.bytes || read.rows + rows > most.rows) {
        read = { shard, pass: this.pass, runs: [], laneRows: [], rows: 0, where: undefined, files: new Set() };
        bytes = 0;
        this.planned.push(read);
      }
      bytes += span.length;
      read.runs.push(run);
      read.laneRows.push(this.cursor + run.from - from);
      read.rows += rows;
      for (const piece of span.pieces) {
        read.where = widened(read.where, piece);
        read.files.add(piece.file);
      }
    }
    this.openWindows(this.cursor, this.cursor + piece.count);
    this.cursor += piece.count;
    this.next = undefined;
    return this.planned[0];
  }

  private loadTable(shard: number): void {
    if (this.loadingTable) return;
    this.loadingTable = true;
    this.parts.source.table(shard).then(
      () => {
        this.loadingTable = false;
        this.parts.changed();
      },
      (error: Error) => this.parts.failed(error),
    );
  }

  private openWindows(from: number, to: number): void {
    const { order, window: size } = this.parts;
    for (let row = from - (from % size); row < to; row += size) {
      if (this.windowOf(this.pass, row) !== undefined) continue;
      const rows = Math.min(size, order.laneRows(this.number) - row);
      const perm = this.permutation(row, rows);
      const inverse = new Uint32Array(rows);
      for (let i = 0; i < rows; i++) inverse[perm[i] as number] = i;
      this.windows.push({
        pass: this.pass,
        firstRow: row,
        rows,
        perm,
        inverse,
        address: new Uint32Array(rows),
        missing: rows,
        reach: order.reach(this.pass, this.number, row, row + rows),
      });
    }
  }

  private permutation(row: number, rows: number): Uint32Array {
    const { order, window: size } = this.parts;
    if (order.resolved.shuffle === "none") return Uint32Array.from({ length: rows }, (_, i) => i);
    return order.window(this.pass, this.number, row / size).perm;
  }

  private sink(read: PlannedRead): RowSink {
    const { memory } = this.parts;
    const rowOf = (run: RecordRun, record: number): number =>
      (read.laneRows[read.runs.indexOf(run)] as number) + record - run.from;
    return {
      place: (run, record) => {
        const row = rowOf(run, record);
        const window = this.windowOf(read.pass, row) as LaneWindow;
        const laid = row - window.firstRow;
        if (!this.wanted(window, laid)) {
          window.address[laid] = ROW_SKIPPED;
          this.arrive(window);
          this.hold(-1);
          return 0;
        }
        const address = memory.rows.alloc();
        if (address === 0) throw new Error("row pool is empty although rows were reserved");
        window.address[laid] = ROW_SCHEDULED;
        return address;
      },
      done: (run, record, address) => {
        const row = rowOf(run, record);
        const window = this.windowOf(read.pass, row) as LaneWindow;
        window.address[row - window.firstRow] = address;
        this.arrive(window);
      },
    };
  }

  private arrive(window: LaneWindow): void {
    if (--window.missing === 0) this.firstWindowDone = true;
  }

  /** The running inflater of a read; each pass over a shard begins anew. */
  private streamOf({ shard, pass }: PlannedRead): RunningStream {
    if (this.stream?.shard !== shard || this.stream.pass !== pass) {
      const old = this.stream;
      void old?.last.catch(() => undefined).then(() => old.running.close());
      this.stream = { shard, pass, running: this.parts.intake.openStream(shard), last: Promise.resolve() };
    }
    return this.stream.running;
  }
}

function widened(where: PlannedRead["where"], { file, offset, length }: Piece): PlannedRead["where"] {
  if (where === undefined) return { file, from: offset, to: offset + length };
  if (where.file !== file) return where;
  return { file, from: Math.min(where.from, offset), to: Math.max(where.to, offset + length) };
}
