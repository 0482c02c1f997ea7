/**
 * Client counters: what each OST gave this node since an agent first read from its file system, as the Lustre client counts it.
 *
 * Contract: nobody waits here. The counters are read in the background by a tool that is given up after some seconds, when a data set on
 * Lustre is opened, then only when somebody asks and {@link EVERY_MS} have passed since that was done last. Where they cannot be read in
 * full at first (a user, a pod, no tools), they are not asked for again. They are the node's: other processes that read are in them.
 *
 * @example
 * const counters = new ClientCounters();
 * counters.begin("trainfs");
 * counters.told();   // a Map by OST; undefined: not known (yet)
 */
import type { Reads } from "./counters.ts";
import { readCounters } from "./read-counters.ts";
import type { ReadCountersOptions, Snapshot } from "./read-counters.ts";
import { spentBetween } from "./spent.ts";

/** Between two looks, milliseconds: a look is one short process. */
const EVERY_MS = 10_000;

export interface ClientCountersOptions extends ReadCountersOptions {
  /** @default 10000 */
  everyMs?: number;
}

interface System {
  last: Snapshot;
  /** Since the first look. */
  total: Map<string, Reads>;
  /** There was a second one. */
  known: boolean;
  /** When that was done for somebody who asked. */
  looked: number;
}

export class ClientCounters {
  private readonly options: ClientCountersOptions;
  /** By name; undefined: it cannot be read, or not yet. */
  private readonly systems = new Map<string, System | undefined>();
  private looking = false;

  constructor(options: ClientCountersOptions = {}) {
    this.options = options;
  }

  /** Data of this file system is read from now on. */
  begin(system: string): void {
    if (this.systems.has(system)) return;
    this.systems.set(system, undefined);
    void readCounters(system, this.options).then((snapshot) => {
      if (snapshot?.missing.length !== 0) return;
      this.systems.set(system, { last: snapshot, total: new Map(), known: false, looked: -Infinity });
    });
  }

  /** By target; those of the last look, while a new one is under way where that is old. */
  told(): ReadonlyMap<string, Reads> | undefined {
    void this.look();
    const known = [...this.systems.values()].filter((system) => system?.known === true);
    return known.length === 0 ? undefined : new Map(known.flatMap((system) => [...(system?.total ?? [])]));
  }

  private async look(): Promise<void> {
    if (this.looking) return;
    this.looking = true;
    const { everyMs = EVERY_MS } = this.options;
    for (const [name, system] of this.systems) {
      if (system === undefined || performance.now() - system.looked < everyMs) continue;
      system.looked = performance.now();
      const snapshot = await readCounters(name, this.options);
      // What is incomplete this once is left out: the next look counts from the last whole one.
      if (snapshot?.missing.length !== 0) continue;
      for (const [target, { requests, bytes, ms }] of spentBetween(system.last, snapshot).reads) {
        const old = system.total.get(target) ?? { requests: 0, bytes: 0, ms: 0 };
        system.total.set(target, {
          requests: old.requests + requests,
          bytes: old.bytes + bytes,
          ms: old.ms + ms,
        });
      }
      system.last = snapshot;
      system.known = true;
    }
    this.looking = false;
  }
}
