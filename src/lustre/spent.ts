/**
 * Spent: what a Lustre client has asked of its servers between two snapshots of its counters. Pure.
 *
 * Contract: counters of the whole node: what other processes asked meanwhile is in it. Counters that went down or began anew (somebody
 * cleared them, a new mount) count from zero, and the device is named in `reset`: what was counted before that moment is lost. A device
 * that came meanwhile counts from zero where it says that it began since; else what it did is not known, and it is named in `unknown`,
 * as is one that is gone.
 *
 * @example
 * const { requests, bytes } = totalOf(spentBetween(before, after).reads);
 */
import { operationsOf, readsOf } from "./counters.ts";
import type { Device, Reads } from "./counters.ts";
import type { Snapshot } from "./read-counters.ts";

export interface Spent {
  seconds: number;
  /** By target: OSTs, and metadata servers that gave content of files. Only those that were read from. */
  reads: Map<string, Reads>;
  /** Operations of metadata servers; see `operationsOf`. */
  metadata: number;
  operations: Map<string, number>;
  /** Read requests by size in pages, of all OSTs; undefined where some do not tell. */
  readPages: Map<number, number> | undefined;
  /** Names of devices. */
  reset: string[];
  unknown: string[];
}

export function spentBetween(before: Snapshot, after: Snapshot): Spent {
  const then = devicesOf(before);
  const spent: Spent = {
    seconds: after.at - before.at,
    reads: new Map(),
    metadata: 0,
    operations: new Map(),
    readPages: new Map(),
    reset: [],
    unknown: [],
  };
  for (const [key, device] of devicesOf(after)) {
    const old = then.get(key);
    then.delete(key);
    if (old === undefined && !(device.since !== undefined && device.since >= before.at)) {
      spent.unknown.push(device.name);
      continue;
    }
    const anew = old !== undefined && beganAnew(old, device);
    if (anew) spent.reset.push(device.name);
    add(spent, anew ? undefined : old, device);
  }
  for (const { name } of then.values()) spent.unknown.push(name);
  return spent;
}

export function totalOf(reads: ReadonlyMap<string, Reads>): Reads {
  const total = { requests: 0, bytes: 0, ms: 0 };
  for (const one of reads.values()) {
    total.requests += one.requests;
    total.bytes += one.bytes;
    total.ms += one.ms;
  }
  return total;
}

/** What is read from: the mounts' own counters are of calls, not of requests. */
function devicesOf({ devices }: Snapshot): Map<string, Device> {
  const servers = devices.filter(({ kind, counted }) => kind !== "llite" && counted);
  return new Map(servers.map((device) => [`${device.kind}.${device.name}`, device]));
}

function beganAnew(old: Device, now: Device): boolean {
  if (old.since !== undefined && now.since !== undefined && now.since !== old.since) return true;
  return [...old.counters].some(([name, { count, sum = 0 }]) => {
    const counter = now.counters.get(name);
    return (counter?.count ?? 0) < count || (counter?.sum ?? 0) < sum;
  });
}

function add(spent: Spent, old: Device | undefined, now: Device): void {
  const none = { counters: new Map() };
  const [was, is] = [readsOf(old ?? none), readsOf(now)];
  const requests = is.requests - was.requests;
  if (requests > 0) {
    const known = spent.reads.get(now.target) ?? { requests: 0, bytes: 0, ms: 0 };
    spent.reads.set(now.target, {
      requests: known.requests + requests,
      bytes: known.bytes + is.bytes - was.bytes,
      ms: known.ms + is.ms - was.ms,
    });
  }
  if (now.kind === "mdc") {
    const earlier = operationsOf(old ?? none);
    for (const [name, count] of operationsOf(now)) {
      const more = count - (earlier.get(name) ?? 0);
      if (more === 0) continue;
      spent.metadata += more;
      spent.operations.set(name, (spent.operations.get(name) ?? 0) + more);
    }
  }
  if (now.kind === "osc") addPages(spent, old, now);
}

/** `rpc_stats` are cleared by themselves: fewer than before means anew. */
function addPages(spent: Spent, old: Device | undefined, now: Device): void {
  if (now.readPages === undefined) spent.readPages = undefined;
  if (spent.readPages === undefined || now.readPages === undefined) return;
  const earlier = [...(old?.readPages ?? [])];
  const anew = earlier.some(([pages, count]) => (now.readPages!.get(pages) ?? 0) < count);
  for (const [pages, count] of now.readPages) {
    const more = count - (anew ? 0 : (old?.readPages?.get(pages) ?? 0));
    if (more > 0) spent.readPages.set(pages, (spent.readPages.get(pages) ?? 0) + more);
  }
}
