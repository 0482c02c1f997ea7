/**
 * Clocks of targets: what reads of each OST, server or device cost, and which of them is slower than the others.
 *
 * Contract: only reads that lie on one target tell of it; those over several are counted for each, without time or bytes. Times are
 * those of our own reads in an I/O thread, waiting in our queue left out. A slow target is one whose reads take {@link SLOW} times as
 * long a MiB as the median of the others of its file system (`NAME-SERVER`), over the last reads of each.
 *
 * @example
 * clocks.add(["lustre-OST0003"], 8 << 20, 640);
 * clocks.stats()[0].slower; // 10.4
 */

export interface TargetStats {
  target: string;
  /** Reads of this target alone. */
  reads: number;
  bytes: number;
  /** Sum of the time of `reads` in a thread. */
  seconds: number;
  slowestMs: number;
  /** Reads over this target and others. */
  shared: number;
  /** How many times as long as the median of the others, where that is much. */
  slower?: number;
}

/** From here on a target is called slow. */
export const SLOW = 3;
/** Fewer reads tell of chance. */
const ENOUGH = 8;
/** Weight of the newest read in the running mean. */
const NEWEST = 0.1;
/** A read of few bytes is a round trip: it says nothing of the time a MiB takes. */
const LEAST_BYTES = 64 * 1024;
const MIB = 1024 * 1024;

interface Clock {
  reads: number;
  bytes: number;
  ms: number;
  slowestMs: number;
  shared: number;
  /** Reads that `pace` is the mean of. */
  paced: number;
  /** Milliseconds a MiB, of the last reads. */
  pace: number;
}

export class TargetClocks {
  private readonly clocks = new Map<string, Clock>();

  /** A read of `bytes` that took `ms`. */
  add(targets: readonly string[], bytes: number, ms: number): void {
    if (targets.length > 1) {
      for (const target of targets) this.clock(target).shared++;
      return;
    }
    const clock = this.clock(targets[0]!);
    clock.reads++;
    clock.bytes += bytes;
    clock.ms += ms;
    clock.slowestMs = Math.max(clock.slowestMs, ms);
    if (bytes < LEAST_BYTES) return;
    const pace = (ms * MIB) / bytes;
    clock.pace += (pace - clock.pace) * Math.max(NEWEST, 1 / ++clock.paced);
  }

  /** By name. */
  stats(): TargetStats[] {
    return [...this.clocks]
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([target, { reads, bytes, ms, slowestMs, shared }]) => {
        const slower = this.slower(target);
        const told = slower === undefined ? {} : { slower: Math.round(slower * 10) / 10 };
        return { target, reads, bytes, seconds: ms / 1000, slowestMs: Math.round(slowestMs), shared, ...told };
      });
  }

  /** How many times as long its reads take as the median of the others; undefined where that is not much, or not known. */
  slower(target: string): number | undefined {
    const own = this.clocks.get(target);
    const system = target.slice(0, target.lastIndexOf("-") + 1);
    if (own === undefined || own.paced < ENOUGH || system === "") return undefined;
    const others = [...this.clocks]
      .filter(([name, { paced }]) => name !== target && name.startsWith(system) && paced >= ENOUGH)
      .map(([, { pace }]) => pace)
      .sort((a, b) => a - b);
    // One other one says nothing: it may be that one which is fast.
    if (others.length < 2) return undefined;
    const times = own.pace / Math.max(others[others.length >> 1]!, Number.EPSILON);
    return times >= SLOW ? times : undefined;
  }

  private clock(target: string): Clock {
    let clock = this.clocks.get(target);
    if (clock === undefined) {
      clock = { reads: 0, bytes: 0, ms: 0, slowestMs: 0, shared: 0, paced: 0, pace: 0 };
      this.clocks.set(target, clock);
    }
    return clock;
  }
}
