/**
 * Held supply: a view that fits the shuffle memory is decoded once, in file order, and kept; every epoch after the
 * first costs no read and no decoding.
 */
import type { BlockTable } from "../formats/types.ts";
import type { EarlyRows } from "./early.ts";
import type { Intake, RowSink } from "./intake.ts";
import type { GroupMemory } from "./memory.ts";
import type { RecordRun, Source } from "./source.ts";
import { spanOf } from "./spans.ts";
import { ROW_COMING, ROW_FIRST, ROW_SCHEDULED } from "./supply.ts";
import type { Strand, Supply } from "./supply.ts";
import type { SourceOrder } from "../order/source-order.ts";
import { READ_BYTES } from "../order/residency.ts";

/** Shards whose places are asked for at the start. */
const FORESEEN = 1024;

export interface HeldParts {
  /** Position at which the run begins. */
  from: number;
  order: SourceOrder;
  source: Source;
  memory: GroupMemory;
  intake: Intake;
  early: EarlyRows;
  changed: () => void;
  failed: (error: Error) => void;
}

export class HeldSupply implements Supply, Strand {
  /** By sample number. */
  private readonly address: Uint32Array;
  private readonly parts: HeldParts;
  private shard = 0;
  private planned: RecordRun[] = [];
  private loading = false;
  private rest: number;
  /** Samples whose reads have begun. */
  private started = 0;

  constructor(parts: HeldParts) {
    this.parts = parts;
    this.rest = parts.order.samples;
    // Few enough to be held are few enough to be asked for; should they be many after all, the first ones.
    const { foresees, index } = parts.source;
    if (foresees)
      parts.source.foresee(
        index.shards.slice(0, FORESEEN).map(({ records }, shard) => ({ shard, from: 0, to: records })),
      );
    this.address = new Uint32Array(this.rest);
  }

  find(position: number): number {
    const found = this.address[this.parts.order.sampleAt(position)] as number;
    if (found >= ROW_FIRST) return found;
    return this.parts.early.get(position) ?? found;
  }

  take(position: number): void {
    // Whichever row of the position was used: the one that was fetched singly has served.
    if (this.parts.early.size > 0) this.parts.early.take(position);
  }

  prepare(): void {}

  starving(positions: Float64Array): void {
    if (!this.parts.early.isWorth(this.rest)) return;
    this.parts.early.fetch(positions.filter((position) => this.find(position) === ROW_COMING));
  }

  sweep(): void {}

  strands(): readonly Strand[] {
    return this.planned.length === 0 && this.shard >= this.parts.source.index.shards.length ? [] : [this];
  }

  /** As if its samples were served in the order in which they are read: beside other sources it reads at their pace. */
  get frontier(): number {
    return this.parts.from + this.started * this.parts.order.spread;
  }

  close(): void {
    this.parts.early.close();
  }

  advance(): boolean {
    const { source, intake } = this.parts;
    if (this.planned.length === 0 && !this.plan()) return false;
    const first = this.planned[0] as RecordRun;
    const table = source.tableNow(first.shard);
    if (table === undefined) return false;
    // A stream is taken whole: its inflater is opened here and closed behind its last block.
    const stream = table.stream ? intake.openStream(first.shard) : undefined;
    const runs = stream === undefined ? this.nextRuns(table) : [...this.planned];
    const load = intake.load(table, runs, false, this.sink(), stream);
    if (load === undefined) {
      stream?.close();
      return false;
    }
    this.planned.splice(0, runs.length);
    for (const { from, to } of runs) this.started += to - from;
    load
      .finally(() => stream?.close())
      .then(
        () => this.parts.changed(),
        (error: Error) => this.parts.failed(error),
      );
    return true;
  }

  /** What one read brings. */
  private nextRuns(table: BlockTable): RecordRun[] {
    const { source } = this.parts;
    let bytes = 0;
    const end = this.planned.findIndex(({ shard, block, from, to }) => {
      if (bytes >= READ_BYTES) return true;
      // The table of its rows lies beside it: all there is of a block that its format reads itself.
      bytes += spanOf(table, block, from, to, source.wants(shard)).length + 4 * (to - from);
      return false;
    });
    return end < 0 ? [...this.planned] : this.planned.slice(0, end);
  }

  private plan(): boolean {
    const { source } = this.parts;
    if (this.shard >= source.index.shards.length) return false;
    const shard = this.shard;
    const table = source.tableNow(shard);
    if (table === undefined) {
      if (!this.loading) {
        this.loading = true;
        source.table(shard).then(
          () => {
            this.loading = false;
            this.parts.changed();
          },
          (error: Error) => this.parts.failed(error),
        );
      }
      return false;
    }
    this.shard++;
    const records = source.shard(shard).records;
    if (source.foresees && source.hasMoreFiles(shard)) source.foresee([{ shard, from: 0, to: records }], FORESEEN);
    this.planned = records === 0 ? [] : source.runs(table, shard, 0, records);
    return this.planned.length > 0 || this.plan();
  }

  private sink(): RowSink {
    const { source, memory } = this.parts;
    return {
      place: (run, record) => {
        const row = memory.rows.alloc();
        if (row === 0) throw new Error("row pool is empty although the whole view was reserved");
        this.address[source.sampleOf(run.shard, record)] = ROW_SCHEDULED;
        return row;
      },
      done: (run, record, row) => {
        this.address[source.sampleOf(run.shard, record)] = row;
        this.rest--;
      },
    };
  }
}
