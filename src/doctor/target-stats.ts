/**
 * Read times of each OST as this client has counted them, from `lctl get_param osc.*.stats`. As a user the tool ends with status 2 and leaves
 * lines out, so only what it printed counts. Pure.
 */
import { parseCounters, readsOf } from "../lustre/counters.ts";

export interface ReadTimes {
  /** `trainfs-OST0002` */
  name: string;
  requests: number;
  /** Milliseconds, the mean. */
  mean: number;
}

/** Below, a mean says little. */
const REQUESTS = 100;
/** Times the median of the OSTs, and at least so many milliseconds. */
const SLOW = 3;
const SLOW_MS = 5;

export function parseReadTimes(text: string): ReadTimes[] {
  return parseCounters(text).flatMap((device) => {
    const { requests, ms } = readsOf(device);
    const timed = device.kind === "osc" && device.counters.has("ost_read") && requests > 0;
    return timed ? [{ name: device.target, requests, mean: ms / requests }] : [];
  });
}

export interface SlowTarget extends ReadTimes {
  /** Milliseconds, of all OSTs. */
  median: number;
}

/** OSTs whose reads took far longer than those of the others; none where less than three tell. */
export function slowTargets(times: readonly ReadTimes[]): SlowTarget[] {
  const enough = times.filter(({ requests }) => requests >= REQUESTS);
  if (enough.length < 3) return [];
  const sorted = enough.map(({ mean }) => mean).sort((a, b) => a - b);
  const median = sorted[Math.floor((sorted.length - 1) / 2)]!;
  return enough.filter(({ mean }) => mean >= SLOW * median && mean >= SLOW_MS).map((one) => ({ ...one, median }));
}
