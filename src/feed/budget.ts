/**
 * Budget: memory of the node's agent. Groups reserve from it and fail early instead of growing.
 *
 * A run that closes gives its share back at once, because the next one often takes its place while its last reads are
 * still coming in; what is not back after {@link DRAIN_MS} is kept by a read that hangs, and counts again until that
 * returns: it stays mapped.
 */
import { MemoryPool } from "./memory.ts";

/** Reads under way when a run closes take milliseconds, on a busy OST a second. */
const DRAIN_MS = 2000;

export class Budget {
  readonly total: number;
  readonly memories = new MemoryPool();
  /** Bytes of runs at work. */
  reserved = 0;
  /** Bytes of closed runs, kept by reads that hang. */
  stuck = 0;

  constructor(total: number) {
    this.total = total;
  }

  get free(): number {
    return this.total - this.reserved - this.stuck;
  }

  /** Gives back what a run had reserved. `drained` resolves when nothing works in that memory any more. */
  release(bytes: number, drained: Promise<void>): void {
    this.reserved -= bytes;
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
