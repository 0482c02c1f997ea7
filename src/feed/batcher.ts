/**
 * Batcher: fills the slots of one session: deals its next step, waits until the rows are in memory, gathers them into
 * a staging area laid out like the slot, and hands the slot over with one write and one sequence number.
 */
import type { Kernels } from "../kernels/kernels.ts";
import { nowNs } from "../telemetry/clocks.ts";
import type { StageClocks } from "../telemetry/clocks.ts";
import type { Dealt } from "../order/deal.ts";
import type { ConsumerId, Steps } from "./audience.ts";
import type { SlotLayout, ViewLayout } from "./columns.ts";
import type { GroupMemory } from "./memory.ts";
import { ROW_FIRST } from "./supply.ts";
import type { Supply } from "./supply.ts";

/** Offsets of a slot, from `agent/layout.json`. */
export interface SlotOffsets {
  position: number;
  step: number;
  rows: number;
  flags: number;
  truncated: number;
  replaced: number;
  identities: number;
  identityBytes: number;
  paddedFlag: number;
}

/** The segment file of a session, as the feed sees it. */
export interface SlotTarget {
  /** Is the slot of the next batch free? When it is not, the client has been asked to ring. */
  writable(): boolean;
  /** Writes the slot's bytes from offset 8 on, then its sequence number. */
  publish(slot: Uint8Array): void;
  /** Nothing that was published is unread. */
  drained(): boolean;
}

/** Writing to a client's segment failed. */
export class SlotError extends Error {
  override readonly cause: Error;

  constructor(cause: Error) {
    super(cause.message);
    this.cause = cause;
  }
}

/** What the batcher needs of the supply that serves it now. */
export interface Served {
  supply: Supply;
  memory: GroupMemory;
  kernels: Kernels;
  steps: Pick<Steps, "after" | "number">;
  /** Address of the run's staging slot and of u32[batch] in front of it. */
  staging: number;
  rowTable: number;
  /** Number of the source of a position; undefined: the run has one, number 0. */
  sourceOf: ((position: number) => number) | undefined;
  deal(start: number): Dealt;
  /** This consumer's next step begins at `position`. */
  advance(position: number): void;
  /** Did all peers of this consumer take the step that begins at `start`? Its rows may go then. */
  passed(start: number): boolean;
}

const HEADER_WORDS = 8;
/** Batches of a session in one go. */
const MOST_BATCHES = 8;

export class Batcher {
  id: ConsumerId;
  position: number;
  /** Steps from here on have not been asked for (random access: requests arrive one by one). */
  limit = Number.POSITIVE_INFINITY;
  private readonly batch: number;
  private readonly layout: ViewLayout;
  private readonly slot: SlotLayout;
  private readonly offsets: SlotOffsets;
  private readonly target: SlotTarget;
  private readonly clocks: StageClocks;
  private readonly rows: Uint32Array;
  private dealt: Dealt | undefined;
  private have = 0;
  private ahead: number;
  private state: "idle" | "trainer" | "feed" = "idle";
  private since = 0;

  constructor(parts: {
    id: ConsumerId;
    position: number;
    batch: number;
    layout: ViewLayout;
    slot: SlotLayout;
    offsets: SlotOffsets;
    target: SlotTarget;
    clocks: StageClocks;
  }) {
    this.id = parts.id;
    this.position = parts.position;
    this.ahead = parts.position;
    this.batch = parts.batch;
    this.layout = parts.layout;
    this.slot = parts.slot;
    this.offsets = parts.offsets;
    this.target = parts.target;
    this.clocks = parts.clocks;
    this.rows = new Uint32Array(parts.batch);
  }

  /** Milliseconds it has been waiting for rows (0: it is not). */
  get waitingMs(): number {
    return this.state === "feed" ? (nowNs() - this.since) / 1e6 : 0;
  }

  /** Seconds it has been waiting for what `waitsFor` says. */
  get seconds(): number {
    return this.state === "idle" ? 0 : (nowNs() - this.since) / 1e9;
  }

  get waitsFor(): "trainer" | "feed" | "idle" {
    return this.state;
  }

  moveTo(position: number, id: ConsumerId): void {
    this.id = id;
    this.position = position;
    this.ahead = position;
    this.dealt = undefined;
    this.have = 0;
    this.enter("idle");
  }

  /**
   * Fills slots until none is free or rows are missing. True: it stopped before, at `MOST_BATCHES`, to let others have a turn: a
   * trainer that is as fast as this would keep reads from being started and decoded rows from being seen.
   */
  fill(served: Served, lookAhead: number): boolean {
    for (let batches = 0; this.position < this.limit && this.target.writable(); batches++) {
      if (batches === MOST_BATCHES) return true;
      this.prepare(served, lookAhead);
      if (!this.collect(served)) {
        this.enter("feed");
        if (this.target.drained()) served.supply.starving((this.dealt as Dealt).positions.subarray(this.have));
        return false;
      }
      this.enter("idle");
      this.hand(served);
    }
    this.enter(this.position < this.limit ? "trainer" : "idle");
    return false;
  }

  /** Announces coming positions to supplies that read nothing ahead by themselves. */
  private prepare(served: Served, lookAhead: number): void {
    const { steps } = served;
    let next = this.position;
    for (let k = 0; k < lookAhead && next < this.limit; k++) {
      if (next >= this.ahead) {
        const { positions, valid } = served.deal(next);
        served.supply.prepare(positions.subarray(0, valid));
        this.ahead = this.next(steps, next);
      }
      next = this.next(steps, next);
    }
  }

  private collect(served: Served): boolean {
    this.dealt ??= served.deal(this.position);
    const { positions, valid } = this.dealt;
    for (; this.have < valid; this.have++) {
      const row = served.supply.find(positions[this.have] as number);
      if (row < ROW_FIRST) return false;
      this.rows[this.have] = row;
    }
    return true;
  }

  private hand(served: Served): void {
    const start = nowNs();
    const { positions, valid } = this.dealt as Dealt;
    const { memory, supply, steps, staging } = served;
    const stepStart = this.position;
    this.gather(served, positions, valid);
    this.line(memory.words, staging, stepStart, steps.number(stepStart), valid);
    const bytes = memory.bytes.subarray(staging + 8, staging + this.slot.bytes);
    this.position = this.next(steps, stepStart);
    this.dealt = undefined;
    this.have = 0;
    served.advance(this.position);
    try {
      this.target.publish(bytes);
    } catch (error) {
      throw new SlotError(error as Error);
    }
    if (served.passed(stepStart)) {
      for (let i = 0; i < valid; i++) supply.take(positions[i] as number, this.rows[i] as number);
    }
    this.clocks.batches++;
    this.clocks.rows += valid;
    this.clocks.gatherNs += nowNs() - start;
  }

  private gather(served: Served, positions: Float64Array, valid: number): void {
    const { memory, kernels, staging, rowTable } = served;
    const { words } = memory;
    // Rows beyond the end of an epoch repeat the batch's last row; a rank that has none gets zeros.
    this.rows.fill(valid === 0 ? 0 : (this.rows[valid - 1] as number), valid);
    words.set(this.rows, rowTable >>> 2);
    const identities = staging + this.offsets.identities;
    let at = identities >>> 2;
    if (valid === 0) words.fill(0, at, at + this.batch * HEADER_WORDS);
    for (let i = 0; i < this.batch; i++, at += HEADER_WORDS) {
      const position = positions[i] as number;
      setU64(words, at, position);
      if (valid > 0) words[at + 7] = (i < valid ? 1 : 0) | ((served.sourceOf?.(position) ?? 0) << 1);
    }
    const { cut, replaced } = kernels.gatherHeads(rowTable, valid, identities);
    if (valid > 0 && valid < this.batch) {
      kernels.gatherHeads(rowTable + valid * 4, this.batch - valid, identities + valid * this.offsets.identityBytes);
    }
    words[(staging + this.offsets.replaced) >>> 2] = replaced;
    words[(staging + this.offsets.truncated) >>> 2] = cut;
    this.layout.stored.forEach((column, c) => {
      const out = staging + (this.slot.offsets[c] as number);
      if (valid === 0) memory.bytes.fill(0, out, out + this.batch * column.rowBytes);
      else kernels.gather(rowTable, this.batch, column.rowOffset, column.rowBytes, out);
    });
  }

  private line(words: Uint32Array, staging: number, position: number, step: number, valid: number): void {
    setU64(words, (staging + this.offsets.position) >>> 2, position);
    setU64(words, (staging + this.offsets.step) >>> 2, step);
    words[(staging + this.offsets.rows) >>> 2] = this.batch;
    words[(staging + this.offsets.flags) >>> 2] = valid < this.batch ? this.offsets.paddedFlag : 0;
  }

  /** This consumer's step after the one that begins at `start`. */
  private next(steps: Served["steps"], start: number): number {
    let next = start;
    for (let k = 0; k < this.id.stride; k++) next = steps.after(next);
    return next;
  }

  private enter(state: "idle" | "trainer" | "feed"): void {
    if (state === this.state) return;
    const now = nowNs();
    if (this.state === "trainer") this.clocks.waitTrainerNs += now - this.since;
    if (this.state === "feed") this.clocks.waitFeedNs += now - this.since;
    this.state = state;
    this.since = now;
  }
}

function setU64(words: Uint32Array, at: number, value: number): void {
  words[at] = value >>> 0;
  words[at + 1] = value / 4294967296;
}

/** Bytes of staging that a run needs in the raw arena: a slot is filled and handed over in one go. */
export function stagingBytes(slot: SlotLayout, batch: number): number {
  return slot.bytes + batch * 4 + 64;
}
