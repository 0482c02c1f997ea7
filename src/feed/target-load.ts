/**
 * Load of targets: which servers the reads under way of a run wait for. A lane whose next read would only queue behind them lets other
 * lanes read first; who gets which sample is the order's, and does not change.
 *
 * @example
 * if (!load.isFull(["lustre-OST0003"])) load.during(["lustre-OST0003"], read());
 */
import { PER_TARGET } from "../storage/io-pool.ts";

export class TargetLoad {
  private readonly counts = new Map<string, number>();

  /** Has one of them as many reads of the run, under way or queued, as storage has in flight? */
  isFull(targets: readonly string[]): boolean {
    return targets.some((target) => (this.counts.get(target) ?? 0) >= PER_TARGET);
  }

  during(targets: readonly string[], work: Promise<unknown>): void {
    this.add(targets, 1);
    const over = (): void => this.add(targets, -1);
    work.then(over, over);
  }

  private add(targets: readonly string[], change: number): void {
    for (const target of targets) {
      const count = (this.counts.get(target) ?? 0) + change;
      if (count === 0) this.counts.delete(target);
      else this.counts.set(target, count);
    }
  }
}
