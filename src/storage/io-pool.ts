/**
 * Pool of I/O threads: deals requests to threads, at most `perTarget` in flight a target, and watches for calls
 * that do not return. Opens, stats and listings wait for the job's caps as well (`polite.ts`).
 *
 * A call may be for several targets (a read over the stripes of a file) and then counts for each. A target that has
 * nothing in flight gets a thread even when `threads` are at work: a slow one keeps those of the others waiting for nothing.
 * Such a call stands beyond `threads` and takes no place there: else many targets would leave none to opens, stats and listings.
 *
 * A call that is older than a second no longer counts as a working thread: if work waits, another thread is
 * started (up to `perNode` in all), so that one lost target cannot stop reads of the others. A call that is
 * older than three seconds no longer counts for its target, but no other call for the same file is started before it
 * returns: on a mount of many servers one lost file holds up nothing but itself. Where the target is known to be one
 * server's it goes on counting: a lost server costs `perTarget` threads, however many files it has. A call
 * that is older than `hangAfterMs` is reported; its promise stays open and its buffer untouched until it returns.
 */
import { dirname } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { Worker } from "node:worker_threads";
import { spawnThread } from "../base/threads.ts";
import { StorageIo } from "./errors.ts";
import type { SystemFault } from "./errors.ts";
import type { IoCall, IoReply, IoRequest, IoResults } from "./io-thread.ts";
import { NO_CAPS, Polite } from "./polite.ts";
import type { Asked, PoliteStats } from "./polite.ts";
import { TargetClocks } from "./target-clocks.ts";
import type { TargetStats } from "./target-clocks.ts";

export interface HungRequest {
  path: string;
  offset: number;
  op: IoRequest["op"];
  /** Several ones with `, ` between them. */
  target: string;
  sinceMs: number;
}

/** The call in words: only a read has a byte. */
export function hungText({ op, path, offset }: Pick<HungRequest, "op" | "path" | "offset">): string {
  const what = op === "names" || op === "list" ? "listing" : op;
  return `${what} of ${path}${op === "read" ? ` at byte ${offset}` : ""}`;
}

/** What a call waits for: a device or folder, or (`known`) the servers that hold the bytes it asks for. */
export interface Targets {
  names: readonly string[];
  known: boolean;
}

export interface IoPoolOptions {
  /** Threads that work at a time. */
  threads: number;
  /** Requests in flight a target. */
  perTarget: number;
  /** Threads in all, hung ones included. */
  perNode: number;
  hangAfterMs: number;
  onHang: ((request: HungRequest) => void) | undefined;
  /** @default no caps */
  polite?: Polite | undefined;
}

export interface IoPoolStats {
  requests: number;
  bytesRead: number;
  /** Sum over requests of the time in a thread. */
  busySeconds: number;
  inFlight: number;
  queued: number;
  threads: number;
  hung: number;
  /** Reads by target; of servers that are known one by one, else of devices. */
  targets: TargetStats[];
  /** Calls that wait for the job's caps, and did. */
  polite: PoliteStats;
}

interface Job {
  request: IoCall;
  targets: Targets;
  since: number;
  reported: boolean;
  /** Has lasted for so long that it does not count for its target any more. */
  stuck: boolean;
  /** Got a thread beyond `threads`. */
  beyond: boolean;
  /** When it could have begun but for a cap, and who is told of the time. */
  capped: { since: number; done: (ms: number) => void } | undefined;
  onThread: ((thread: IoThread) => void) | undefined;
  resolve(value: never): void;
  reject(error: unknown): void;
}

interface Closing {
  path: string;
  since: number;
  reported: boolean;
}

/** A started thread; `job` is what it does now, behind it `closings`. A close may hang like any other call. */
export interface IoThread {
  worker: Worker;
  job: Job | undefined;
  closings: Closing[];
}

/** Thrown inside storage and turned into a clear error there. */
export class FaultError extends Error {
  readonly fault: SystemFault;
  constructor(fault: SystemFault) {
    super(fault.message);
    this.fault = fault;
  }
}

/** What a call asks of a metadata server. */
const ASKS: Partial<Record<IoRequest["op"], Asked>> = { open: "opens", stat: "stats", names: "stats", list: "stats" };

/** Calls in flight a target. */
export const PER_TARGET = 4;
/** A thread in one call for longer is not counted as working. */
const SLOW_MS = 1000;
/** A call under way for longer leaves its place to calls for other files of its target. */
const STUCK_MS = 3000;

export class IoPool {
  private readonly options: IoPoolOptions;
  private readonly startThread: () => Worker;
  private readonly threads = new Set<IoThread>();
  private readonly queue: Job[] = [];
  private readonly inFlight = new Map<string, number>();
  /** Stuck calls by path. */
  private readonly stuck = new Map<string, number>();
  private watchdog: NodeJS.Timeout | undefined;
  /** Set while calls wait for a cap. */
  private later: NodeJS.Timeout | undefined;
  private readonly polite: Polite;
  private closed = false;
  private requests = 0;
  private bytesRead = 0;
  private busyMs = 0;
  private readonly clocks = new TargetClocks();

  /** `startThread`: of a thread that answers as `io-thread.ts` does. */
  constructor(options: IoPoolOptions, startThread: () => Worker = startIoThread) {
    this.options = options;
    this.startThread = startThread;
    this.polite = options.polite ?? new Polite(NO_CAPS);
  }

  /** Runs `request` in a thread; rejects with FaultError. `onThread` tells which thread took it. */
  run<Op extends keyof IoResults>(
    request: IoCall & { op: Op },
    targets: Targets,
    onThread?: (thread: IoThread) => void,
  ): Promise<IoResults[Op]> {
    if (this.closed) return Promise.reject(closedError(request));
    return new Promise<IoResults[Op]>((resolve, reject) => {
      const settle = resolve as (value: never) => void;
      const fresh = { since: 0, reported: false, stuck: false, beyond: false, capped: undefined };
      this.queue.push({ request, targets, ...fresh, onThread, resolve: settle, reject });
      this.pump();
    });
  }

  /** Closes a descriptor in the thread that opened it, behind whatever that thread does now. */
  closeIn(thread: IoThread, path: string, fd: number): void {
    if (this.closed || !this.threads.has(thread)) return;
    thread.closings.push({ path, since: performance.now(), reported: false });
    thread.worker.ref();
    thread.worker.postMessage({ op: "close", path, fd } satisfies IoRequest);
    this.startWatch();
  }

  /** Calls that have been under way for `forMs` or longer, the oldest first. */
  hanging(forMs = this.options.hangAfterMs): HungRequest[] {
    const now = performance.now();
    return [...this.threads]
      .flatMap((thread) => callOf(thread, now) ?? [])
      .filter(({ sinceMs }) => sinceMs >= forMs)
      .sort((a, b) => b.sinceMs - a.sinceMs);
  }

  stats(): IoPoolStats {
    const busy = [...this.threads].filter(isBusy).length;
    return {
      requests: this.requests,
      bytesRead: this.bytesRead,
      busySeconds: this.busyMs / 1000,
      inFlight: busy,
      queued: this.queue.length,
      threads: this.threads.size,
      hung: this.hanging().length,
      targets: this.clocks.stats(),
      polite: this.polite.stats(),
    };
  }

  /**
   * Ends the threads, which close what they have opened. Waits for `patienceMs` at most: a call that hangs may never
   * return. False: some thread is still in a call.
   */
  async close(patienceMs: number): Promise<boolean> {
    if (this.closed) return this.threads.size === 0;
    this.closed = true;
    clearInterval(this.watchdog);
    clearTimeout(this.later);
    for (const job of this.queue.splice(0)) job.reject(closedError(job.request));
    const ends = [...this.threads].map(async (thread) => {
      thread.job?.reject(closedError(thread.job.request));
      await thread.worker.terminate();
      this.threads.delete(thread);
    });
    const patience = new AbortController();
    const late = sleep(patienceMs, undefined, { signal: patience.signal }).catch(() => undefined);
    await Promise.race([Promise.all(ends), late]);
    patience.abort();
    return this.threads.size === 0;
  }

  private pump(): void {
    let working = this.working();
    let soonest = Infinity;
    for (let at = 0; at < this.queue.length;) {
      const job = this.queue[at]!;
      const { names, known } = job.targets;
      const flying = this.flying(names);
      const beyond = working >= this.options.threads;
      const waits = flying >= this.options.perTarget || (beyond && !(known && flying === 0));
      if (waits || this.stuck.has(job.request.path)) {
        at++;
        continue;
      }
      const capMs = this.capMs(job);
      if (capMs > 0) {
        soonest = Math.min(soonest, capMs);
        at++;
        continue;
      }
      const thread = this.freeThread();
      if (thread === undefined) break;
      this.begin(job);
      job.beyond = beyond;
      if (!beyond) working++;
      this.queue.splice(at, 1);
      for (const name of names) add(this.inFlight, name, 1);
      this.start(thread, job);
    }
    if (soonest < Infinity)
      this.later ??= setTimeout(() => {
        this.later = undefined;
        this.pump();
      }, Math.ceil(soonest));
  }

  /** Milliseconds until the job's caps let it begin. */
  private capMs(job: Job): number {
    const kind = ASKS[job.request.op];
    const capMs = kind === undefined ? 0 : this.polite.waitMs(kind);
    if (capMs > 0) job.capped ??= { since: performance.now(), done: this.polite.waits(kind!) };
    return capMs;
  }

  private begin({ request, capped }: Job): void {
    const kind = ASKS[request.op];
    if (kind !== undefined) this.polite.take(kind);
    capped?.done(performance.now() - capped.since);
  }

  /** Calls in flight of the busiest of these targets. */
  private flying(names: readonly string[]): number {
    let most = 0;
    for (const name of names) most = Math.max(most, this.inFlight.get(name) ?? 0);
    return most;
  }

  /** Threads at work that count against `threads`. */
  private working(): number {
    const now = performance.now();
    let working = 0;
    for (const thread of this.threads) {
      const call = thread.job ?? thread.closings[0];
      if (call !== undefined && thread.job?.beyond !== true && now - call.since < SLOW_MS) working++;
    }
    return working;
  }

  private freeThread(): IoThread | undefined {
    for (const thread of this.threads) if (!isBusy(thread)) return thread;
    return this.threads.size < this.options.perNode ? this.spawn() : undefined;
  }

  private spawn(): IoThread {
    const worker = this.startThread();
    const thread: IoThread = { worker, job: undefined, closings: [] };
    worker.on("message", (reply: IoReply) => this.finish(thread, reply));
    worker.on("error", (error) => this.lose(thread, error));
    worker.on("exit", () => this.lose(thread, new Error("the I/O thread ended")));
    worker.unref();
    this.threads.add(thread);
    return thread;
  }

  private start(thread: IoThread, job: Job): void {
    thread.job = job;
    job.since = performance.now();
    job.onThread?.(thread);
    thread.worker.ref();
    thread.worker.postMessage(job.request);
    this.startWatch();
  }

  private startWatch(): void {
    this.watchdog ??= setInterval(() => this.watch(), Math.min(SLOW_MS, this.options.hangAfterMs / 2)).unref();
  }

  private finish(thread: IoThread, reply: IoReply): void {
    if ("closed" in reply) {
      thread.closings.shift();
      if (!isBusy(thread)) thread.worker.unref();
      return this.pump();
    }
    const job = thread.job;
    if (job === undefined) return;
    // A read that failed brought nothing, and says nothing of how long a MiB takes.
    const bytes = job.request.op === "read" && "value" in reply ? (reply.value as IoResults["read"]).bytes : 0;
    this.release(thread, job, bytes);
    this.bytesRead += bytes;
    if (reply.more !== undefined) this.polite.take("stats", reply.more);
    if ("fault" in reply) job.reject(new FaultError(reply.fault));
    else job.resolve(reply.value as never);
    this.pump();
  }

  private release(thread: IoThread, job: Job, bytes: number): void {
    thread.job = undefined;
    if (!isBusy(thread)) thread.worker.unref();
    this.requests++;
    const tookMs = performance.now() - job.since;
    this.busyMs += tookMs;
    if (job.request.op === "read") this.clocks.add(job.targets.names, bytes, tookMs);
    if (job.stuck) add(this.stuck, job.request.path, -1);
    if (!job.stuck || keepsPlace(job)) this.leave(job);
  }

  private leave({ targets }: Job): void {
    for (const name of targets.names) add(this.inFlight, name, -1);
  }

  private lose(thread: IoThread, error: Error): void {
    if (!this.threads.delete(thread)) return;
    const job = thread.job;
    if (job !== undefined) {
      this.release(thread, job, 0);
      job.reject(new StorageIo("the I/O thread failed", { file: job.request.path }, undefined, error));
    }
    this.pump();
  }

  private watch(): void {
    const now = performance.now();
    for (const thread of this.threads) {
      const { job } = thread;
      if (job !== undefined && !job.stuck && now - job.since >= STUCK_MS) {
        job.stuck = true;
        if (!keepsPlace(job)) this.leave(job);
        add(this.stuck, job.request.path, 1);
      }
      const call = job ?? thread.closings[0];
      if (call === undefined || call.reported || now - call.since < this.options.hangAfterMs) continue;
      call.reported = true;
      this.options.onHang?.(callOf(thread, now)!);
    }
    // Threads that have become slow, and places of stuck calls, make room for others.
    this.pump();
  }
}

function startIoThread(): Worker {
  return spawnThread("io", new URL("./io-thread.js", import.meta.url));
}

/** Does a stuck call go on counting? Of several servers nobody knows which one it waits for. */
function keepsPlace({ targets: { names, known } }: Job): boolean {
  return known && names.length === 1;
}

function isBusy({ job, closings }: IoThread): boolean {
  return job !== undefined || closings.length > 0;
}

function add(counts: Map<string, number>, key: string, change: number): void {
  const count = (counts.get(key) ?? 0) + change;
  if (count === 0) counts.delete(key);
  else counts.set(key, count);
}

/** What a thread is doing. */
function callOf({ job, closings: [closing] }: IoThread, now: number): HungRequest | undefined {
  if (job === undefined) {
    if (closing === undefined) return undefined;
    const { path, since } = closing;
    return { path, offset: 0, op: "close", target: `folder ${dirname(path)}`, sinceMs: Math.round(now - since) };
  }
  const { request, targets, since } = job;
  const offset = request.op === "read" ? request.offset : 0;
  const target = targets.names.join(", ");
  return { path: request.path, offset, op: request.op, target, sinceMs: Math.round(now - since) };
}

function closedError(request: IoCall): Error {
  return new StorageIo("storage was closed while this was being read", { file: request.path });
}
