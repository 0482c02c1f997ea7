/**
 * Attempts: long work that several sessions of a node wait for together, such as an index build. It goes on while one of them
 * still waits.
 *
 * @example
 * const index = await attempts.join("/d", waiter, (all) => build("/d", all));
 */
import { ProtocolMessage } from "./errors.ts";

export type Progress = (stage: string, done: number, total: number) => void;

/** Who waits for a view: is told how far it is, says whether it still waits, and whether it may have things made. */
export interface Waiter {
  progress: Progress;
  alive: () => boolean;
  builds: () => boolean;
}

/** An attempt ended because all who waited for it were gone. */
export class Unwanted extends ProtocolMessage {}

export class Attempts<Result> {
  private readonly running = new Map<string, Promise<Result>>();
  private readonly waiters = new Map<string, Set<Waiter>>();

  /** `work` is given all who wait as one, and throws `Unwanted` when none is left. */
  async join(key: string, waiter: Waiter, work: (all: Waiter) => Promise<Result>): Promise<Result> {
    const waiters = this.waiters.get(key) ?? new Set<Waiter>();
    this.waiters.set(key, waiters);
    waiters.add(waiter);
    let attempt = this.running.get(key);
    if (attempt === undefined) {
      attempt = work({
        progress: (stage, done, total) => {
          for (const each of waiters) each.progress(stage, done, total);
        },
        alive: () => [...waiters].some((each) => each.alive()),
        // One that may build can come behind one that may not.
        builds: () => [...waiters].some((each) => each.builds()),
      });
      this.running.set(key, attempt);
      // Not kept beyond the attempt: the next loader of this node looks at the files again.
      void attempt.then(
        () => this.running.delete(key),
        () => this.running.delete(key),
      );
    }
    try {
      return await attempt;
    } catch (error) {
      // It was being given up when this one came to wait for it: a launch behind one that was killed.
      if (!(error instanceof Unwanted) || !waiter.alive()) throw error;
      return await this.join(key, waiter, work);
    } finally {
      waiters.delete(waiter);
      if (waiters.size === 0 && this.waiters.get(key) === waiters) this.waiters.delete(key);
    }
  }
}
