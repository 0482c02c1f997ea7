/**
 * Group: all sessions of one job that read the same view in the same order. Owns the runs (memory, reading, decoding)
 * and the loop that moves rows into slots: nothing is polled, every arrival and every released slot calls `wake`.
 */
import { formatSize } from "../base/units.ts";
import type { Order } from "../order/order.ts";
import type { StageClocks } from "../telemetry/clocks.ts";
import type { ConsumerId } from "./audience.ts";
import { Batcher, SlotError } from "./batcher.ts";
import type { Served, SlotOffsets, SlotTarget } from "./batcher.ts";
import type { Budget, Purpose } from "./budget.ts";
import type { SlotLayout, ViewLayout } from "./columns.ts";
import type { Decoders } from "./decoders.ts";
import type { Patience } from "./early.ts";
import { MemoryBudget } from "./errors.ts";
import { Run } from "./run.ts";
import type { RunParts } from "./run.ts";
import type { SourceView } from "./run-source.ts";

/** An opened view: what every session of the group shares. */
export interface GroupView {
  order: Order;
  /** By number; undefined: the job does not name it any more. */
  sources: readonly (SourceView | undefined)[];
  layout: ViewLayout;
  clocks: StageClocks;
}

export interface GroupOptions {
  batch: number;
  world: number;
  strict: boolean;
  checkCrc: boolean;
  patience: Patience;
  slot: SlotLayout;
  offsets: SlotOffsets;
}

export interface MemberRequest {
  rank: number;
  /** Ranks of this node, one entry for each session that will take rows of it. */
  localRanks: readonly number[];
  stride: number;
  offset: number;
  position: number;
  random: boolean;
  slots: number;
  target: SlotTarget;
  failed: (error: Error) => void;
}

/** One session in the group. */
export interface Member {
  readonly batcher: Batcher;
  seek(position: number): void;
  /** Random access: one more batch of sample numbers. */
  ask(samples: Float64Array): void;
  leave(): void;
}

/** A rank that was announced but never connected holds others up for this long, then its rows are given up. */
const ABSENT_MS = 3000;

/** Steps by which ranks may stand apart when they come back. */
const REJOIN_STEPS = 8;

interface Seat {
  request: MemberRequest;
  batcher: Batcher;
  run: Run;
  served: Served;
  questions: Map<number, Float64Array>;
  asked: number;
}

export class Group {
  readonly view: GroupView;
  readonly options: GroupOptions;
  private readonly decoders: Decoders;
  private readonly budget: Budget;
  private readonly runs = new Set<Run>();
  private readonly seats = new Set<Seat>();
  private awake = false;
  private readonly watch: NodeJS.Timeout;

  constructor(view: GroupView, options: GroupOptions, decoders: Decoders, budget: Budget) {
    this.view = view;
    this.options = options;
    this.decoders = decoders;
    this.budget = budget;
    this.watch = setInterval(() => this.giveUpAbsent(), 1000);
    this.watch.unref();
  }

  /** Padded epochs are those of an evaluation. */
  private get purpose(): Purpose {
    return this.view.order.last === "pad" ? "evaluation" : "training";
  }

  get reserved(): number {
    let sum = 0;
    for (const run of this.runs) sum += run.reserved;
    return sum;
  }

  join(request: MemberRequest): Member {
    const seat = this.seat(request, request.position);
    this.seats.add(seat);
    this.wake();
    return {
      batcher: seat.batcher,
      seek: (position) => this.move(seat, position),
      ask: (samples) => {
        seat.questions.set(seat.asked++, samples);
        seat.batcher.limit = seat.asked;
        this.wake();
      },
      leave: () => this.remove(seat),
    };
  }

  /** Something arrived or a slot came free: goes round once, soon. */
  wake(): void {
    if (this.awake) return;
    this.awake = true;
    setImmediate(() => {
      this.awake = false;
      this.round();
    });
  }

  /** What a session waits for, in words. */
  why(batcher: Batcher): string {
    if (batcher.waitsFor !== "feed") return "nothing: batches are ready, or the trainer has not asked";
    for (const seat of this.seats) {
      if (seat.batcher === batcher) {
        return `no rows for ${(batcher.waitingMs / 1000).toFixed(1)} s; ${seat.run.why()}`;
      }
    }
    return "the session is closing";
  }

  /** For whom each session waits: `feed` for rows, `trainer` for a free slot; and for how long. */
  waits(): { rank: number; waitsFor: Batcher["waitsFor"]; seconds: number }[] {
    return [...this.seats].map(({ request, batcher }) => ({
      rank: request.rank,
      waitsFor: batcher.waitsFor,
      seconds: batcher.seconds,
    }));
  }

  close(): void {
    clearInterval(this.watch);
    for (const seat of this.seats) this.remove(seat);
  }

  private round(): void {
    for (const seat of this.seats) {
      try {
        if (seat.batcher.fill(seat.served, this.lookAhead(seat))) this.wake();
      } catch (error) {
        // What goes wrong with one client's segment is that client's alone.
        if (error instanceof SlotError) seat.request.failed(error.cause);
        else this.fail(seat.run, error as Error);
      }
    }
    for (const run of this.runs) {
      try {
        run.pump();
      } catch (error) {
        this.fail(run, error as Error);
      }
    }
  }

  /** Steps announced ahead: only supplies that read nothing by themselves need it. */
  private lookAhead(seat: Seat): number {
    return seat.request.random || this.isSparse ? Math.min(seat.request.slots, 8) : 0;
  }

  /** Some source is read row by row. */
  private get isSparse(): boolean {
    return this.view.sources.some((source) => {
      const { shuffle, held } = source?.order.resolved ?? {};
      return shuffle === "global" && held === false;
    });
  }

  /** Every row of every source is kept. */
  private get isHeld(): boolean {
    return this.view.sources.every((source) => source?.order.resolved.held !== false);
  }

  private fail(run: Run, error: Error): void {
    for (const seat of this.seats) {
      if (seat.run === run) seat.request.failed(error);
    }
  }

  private seat(request: MemberRequest, position: number): Seat {
    const questions = new Map<number, Float64Array>();
    const { run, start, id } = this.runFor(request, position, questions, this.slack(request, position));
    const { batch, slot, offsets } = this.options;
    const { layout, clocks } = this.view;
    const target = request.target;
    const batcher = new Batcher({
      id,
      position: request.random ? 0 : start,
      batch,
      layout,
      slot,
      offsets,
      target,
      clocks,
    });
    const joined = run.join(id, start);
    const served = request.random ? randomServed(joined, questions, batch) : joined;
    if (request.random) batcher.limit = 0;
    return { request, batcher, run, served, questions, asked: 0 };
  }

  private move(seat: Seat, position: number): void {
    const old = seat.run;
    old.leave(seat.batcher.id);
    // A run that nobody uses and that has nothing for the new position goes first: its memory may be needed.
    if (!this.isHeld) this.tidy(old);
    try {
      const { run, start, id } = this.runFor(seat.request, position, seat.questions, 0);
      seat.run = run;
      seat.served = run.join(id, start);
      seat.batcher.moveTo(start, id);
    } finally {
      this.tidy(old);
    }
    this.wake();
  }

  private remove(seat: Seat): void {
    if (!this.seats.delete(seat)) return;
    seat.run.leave(seat.batcher.id);
    this.tidy(seat.run);
    this.wake();
  }

  private tidy(run: Run): void {
    if (run.users > 0 || !this.runs.delete(run)) return;
    this.budget.release(run.reserved, this.purpose, run.close());
  }

  /** A run that can serve the consumer from `position` on, or a new one. */
  private runFor(
    request: MemberRequest,
    position: number,
    questions: Map<number, Float64Array>,
    slack: number,
  ): { run: Run; start: number; id: ConsumerId } {
    const seatIn = (run: Run): { run: Run; start: number; id: ConsumerId } | undefined => {
      const { rank, stride, offset } = request;
      const start = run.firstStep(position, offset);
      const id = run.seat(rank, stride, run.residue(position, offset, stride), start);
      return id && { run, start, id };
    };
    if (!request.random) {
      for (const run of this.runs) {
        const found = seatIn(run);
        if (found !== undefined) return found;
      }
    }
    const run = this.open(request, request.random ? 0 : position - slack, questions);
    this.runs.add(run);
    this.budget.reserve(run.reserved, this.purpose);
    const found = seatIn(run);
    if (found === undefined) throw new Error(`a new run has no seat for rank ${request.rank} at position ${position}`);
    return found;
  }

  private open(request: MemberRequest, from: number, questions: Map<number, Float64Array>): Run {
    const localRanks = new Map<number, number>();
    for (const rank of request.random ? [request.rank] : request.localRanks) {
      localRanks.set(rank, (localRanks.get(rank) ?? 0) + 1);
    }
    const parts: RunParts = {
      ...this.view,
      ...this.options,
      decoders: this.decoders,
      memories: this.budget.memories,
      localRanks,
      stride: request.stride,
      changed: () => this.wake(),
      failed: (error) => this.fail(run, error),
    };
    const need = Run.need(parts, from, request.random);
    const { stuck, kept } = this.budget;
    const free = this.budget.free(this.purpose);
    if (need.bytes > free) {
      throw new MemoryBudget(
        `this loader needs ${formatSize(need.bytes)} on this node (${need.rows} rows of ${this.view.layout.rowBytes} bytes), ` +
          `free are ${formatSize(Math.max(0, free))} of ${formatSize(this.budget.total)}` +
          (this.purpose === "training" ? `, besides ${formatSize(kept)} for evaluation` : "") +
          (stuck > 0 ? `; reads that hang keep ${formatSize(stuck)}` : ""),
        {},
        "lower shuffle_memory, give the agent more (ATHANOR_AGENT_MEMORY), or use more nodes",
      );
    }
    const { batch } = this.options;
    const asked = (position: number): number =>
      (questions.get(Math.floor(position / batch)) as Float64Array)[position % batch] as number;
    const run: Run = new Run(parts, need, from, request.random ? asked : undefined);
    return run;
  }

  /**
   * After the death of an agent the ranks come back one by one, a step or two apart: a run begins some steps before its
   * first rank, in the same pass over the data, so that those behind it find their rows here too.
   */
  private slack(request: MemberRequest, position: number): number {
    const { batch, world } = this.options;
    const before = position - this.view.order.timeline.stretchStart(position);
    return Math.min(REJOIN_STEPS * request.stride, Math.floor(before / (batch * world))) * batch * world;
  }

  private giveUpAbsent(): void {
    for (const seat of this.seats) {
      if (seat.batcher.waitingMs < ABSENT_MS || !seat.run.idle || seat.run.audience.dropAbsent() === 0) continue;
      seat.run.supply.sweep();
      this.wake();
    }
  }
}

/** Random access: request n is "step" n; its positions are n · batch … so that no two requests share a row. */
function randomServed(served: Served, questions: Map<number, Float64Array>, batch: number): Served {
  return {
    ...served,
    steps: { after: (n) => n + 1, number: (n) => n },
    deal: (n) => {
      const samples = questions.get(n) as Float64Array;
      return { positions: Float64Array.from({ length: batch }, (_, i) => n * batch + i), valid: samples.length };
    },
    advance: (n) => void questions.delete(n - 1),
    passed: () => true,
  };
}
