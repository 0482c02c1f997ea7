/**
 * Served: what each target gave this node, beside the clocks of our own reads: from the counters of the Lustre client where they are known,
 * else from those clocks. Pure.
 *
 * @example
 * withServed(storage.stats(), counters.told()).targets[0].served;   // { requests: 812, bytes: 3405774848, meanMs: 4.1 }
 */
import type { PosixStorageStats } from "../storage/posix.ts";
import type { TargetStats } from "../storage/target-clocks.ts";
import type { Reads } from "./counters.ts";

export interface Served {
  requests: number;
  bytes: number;
  /** Of a request. */
  meanMs: number;
}

export interface ServedStats extends Omit<PosixStorageStats, "targets"> {
  /**
   * Where `served` comes from: `client counters` are requests over the network, of all processes of this node; `own reads` are calls of this
   * agent, which may be several requests each.
   */
  from: "client counters" | "own reads";
  targets: (TargetStats & {
    /** Undefined: the client does not count it, such as a file whose OSTs are not known. */
    served?: Served;
  })[];
}

/** `counted`: since data of its file system was first read here. By name, those that only the client knows too. */
export function withServed(stats: PosixStorageStats, counted: ReadonlyMap<string, Reads> | undefined): ServedStats {
  if (counted === undefined) {
    const targets = stats.targets.map((own) => ({
      ...own,
      served: servedOf({ requests: own.reads, bytes: own.bytes, ms: own.seconds * 1000 }),
    }));
    return { ...stats, from: "own reads", targets };
  }
  const own = new Map(stats.targets.map((target) => [target.target, target]));
  const names = [...new Set([...own.keys(), ...counted.keys()])].sort();
  const targets = names.map((name) => ({
    ...(own.get(name) ?? { target: name, reads: 0, bytes: 0, seconds: 0, slowestMs: 0, shared: 0 }),
    // An OST that gave nothing: all came from the memory of this node.
    ...(isServer(name) ? { served: servedOf(counted.get(name) ?? { requests: 0, bytes: 0, ms: 0 }) } : {}),
  }));
  return { ...stats, from: "client counters", targets };
}

function isServer(name: string): boolean {
  return /-(OST|MDT)[0-9a-f]{4}$/.test(name);
}

function servedOf({ requests, bytes, ms }: Reads): Served {
  return { requests, bytes, meanMs: Math.round((1000 * ms) / Math.max(requests, 1)) / 1000 };
}
