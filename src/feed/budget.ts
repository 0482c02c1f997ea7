/**
 * Budget: memory of the node's agent. Groups reserve from it and fail early instead of growing.
 *
 * A run that closes gives its share back at once, because the next one often takes its place while its last reads are
 * still coming in; what is not back after {@link DRAIN_MS} is kept by a read that hangs, and counts again until that
 * returns: it stays mapped.
 *
 * A part is kept for evaluation, so that training, whatever it asks for, leaves room to evaluate beside it.
 *
 * ```
 *  ┌ total ───────────────────────────────────────────────┐
 *  │ training, and evaluation too where it is free │ kept │   kept: evaluation alone
 * ```
 */
import { MemoryPool } from "./memory.ts";

/** Reads under way when a run closes take milliseconds, on a busy OST a second. */
const DRAIN_MS = 2000;

/** Enough for the lane, the reads and the batches of an evaluation over rows of usual size. */
const KEPT_MOST = 256 * 1024 * 1024;
/** A small budget is not given away to evaluations that may never come. */
const KEPT_PART = 1 / 8;

/** What a group reserves for. */
export type Purpose = "training" | "evaluation";

export class Budget {
  readonly total: number;
  /** Bytes that only evaluation may reserve. */
  readonly kept: number;
  readonly memories = new MemoryPool();
  /** Bytes of runs at work. */
  private readonly used = { training: 0, evaluation: 0 };
  /** Bytes of closed runs, kept by reads that hang. */
  stuck = 0;

  constructor(total: number) {
    this.total = total;
    this.kept = Math.min(KEPT_MOST, Math.floor(total * KEPT_PART));
  }

  get reserved(): number {
    return this.used.training + this.used.evaluation;
  }

  /** Bytes that may still be reserved. */
  free(purpose: Purpose): number {
    const left = this.total - this.reserved - this.stuck;
    return purpose === "evaluation" ? left : left - Math.max(0, this.kept - this.used.evaluation);
  }

  reserve(bytes: number, purpose: Purpose): void {
    this.used[purpose] += bytes;
  }

  /** Gives back what a run had reserved. `drained` resolves when nothing works in that memory any more. */
  release(bytes: number, purpose: Purpose, drained: Promise<void>): void {
    this.used[purpose] -= bytes;
    let late = 0;
    const timer = setTimeout(() => {
      late = bytes;
      this.stuck += bytes;
    }, DRAIN_MS);
    timer.unref();
    void drained.finally(() => {
      clearTimeout(timer);
      this.stuck -= late;
    });
  }
}
