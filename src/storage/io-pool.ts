/**
 * Pool of I/O threads: deals requests to threads, at most `perTarget` in flight a target, and watches for calls
 * that do not return.
 *
 * A call that is older than a second no longer counts as a working thread: if work waits, another thread is
 * started (up to `perNode` in all), so that one lost target cannot stop reads of the others. A call that is
 * older than `hangAfterMs` is reported; its promise stays open and its buffer untouched until it returns.
 */
import type { Worker } from "node:worker_threads";
import { spawnThread } from "../base/threads.ts";
import { StorageIo } from "./errors.ts";
import type { SystemFault } from "./errors.ts";
import type { IoCall, IoReply, IoRequest, IoResults } from "./io-thread.ts";

export interface HungRequest {
  path: string;
  offset: number;
  op: keyof IoResults;
  target: string;
  sinceMs: number;
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
}

interface Job {
  request: IoCall;
  target: string;
  since: number;
  reported: boolean;
  onThread: ((thread: IoThread) => void) | undefined;
  resolve(value: never): void;
  reject(error: unknown): void;
}

/** A started thread; `job` is what it does now. */
export interface IoThread {
  worker: Worker;
  job: Job | undefined;
}

/** Thrown inside storage and turned into a clear error there. */
export class FaultError extends Error {
  readonly fault: SystemFault;
  constructor(fault: SystemFault) {
    super(fault.message);
    this.fault = fault;
  }
}

/** A thread in one call for longer is not counted as working. */
const SLOW_MS = 1000;

export class IoPool {
  private readonly options: IoPoolOptions;
  private readonly threads = new Set<IoThread>();
  private readonly queue: Job[] = [];
  private readonly inFlight = new Map<string, number>();
  private watchdog: NodeJS.Timeout | undefined;
  private closed = false;
  private requests = 0;
  private bytesRead = 0;
  private busyMs = 0;

  constructor(options: IoPoolOptions) {
    this.options = options;
  }

  /** Runs `request` in a thread; rejects with FaultError. `onThread` tells which thread took it. */
  run<Op extends keyof IoResults>(
    request: IoCall & { op: Op },
    target: string,
    onThread?: (thread: IoThread) => void,
  ): Promise<IoResults[Op]> {
    if (this.closed) return Promise.reject(closedError(request));
    return new Promise<IoResults[Op]>((resolve, reject) => {
      const settle = resolve as (value: never) => void;
      this.queue.push({ request, target, since: 0, reported: false, onThread, resolve: settle, reject });
      this.pump();
    });
  }

  /** Closes a descriptor in the thread that opened it, behind whatever that thread does now. */
  closeIn(thread: IoThread, path: string, fd: number): void {
    if (!this.closed && this.threads.has(thread))
      thread.worker.postMessage({ op: "close", path, fd } satisfies IoRequest);
  }

  hanging(): HungRequest[] {
    const now = performance.now();
    return [...this.threads]
      .filter(({ job }) => job !== undefined && now - job.since >= this.options.hangAfterMs)
      .map(({ job }) => hungRequest(job!, now));
  }

  stats(): IoPoolStats {
    const busy = [...this.threads].filter(({ job }) => job !== undefined).length;
    return {
      requests: this.requests,
      bytesRead: this.bytesRead,
      busySeconds: this.busyMs / 1000,
      inFlight: busy,
      queued: this.queue.length,
      threads: this.threads.size,
      hung: this.hanging().length,
    };
  }

  /** Ends the threads. Waits for idle ones only: a hung one may never return. */
  async close(): Promise<void> {
    if (this.closed) return;
    this.closed = true;
    clearInterval(this.watchdog);
    for (const job of this.queue.splice(0)) job.reject(closedError(job.request));
    const idle: Promise<number>[] = [];
    for (const { worker, job } of this.threads) {
      const ended = worker.terminate();
      if (job === undefined) idle.push(ended);
      else job.reject(closedError(job.request));
    }
    this.threads.clear();
    await Promise.all(idle);
  }

  private pump(): void {
    for (let at = 0; at < this.queue.length;) {
      const job = this.queue[at]!;
      const flying = this.inFlight.get(job.target) ?? 0;
      if (flying >= this.options.perTarget) {
        at++;
        continue;
      }
      const thread = this.freeThread();
      if (thread === undefined) return;
      this.queue.splice(at, 1);
      this.inFlight.set(job.target, flying + 1);
      this.start(thread, job);
    }
  }

  private freeThread(): IoThread | undefined {
    const now = performance.now();
    let working = 0;
    for (const thread of this.threads) {
      if (thread.job === undefined) return thread;
      if (now - thread.job.since < SLOW_MS) working++;
    }
    if (working >= this.options.threads || this.threads.size >= this.options.perNode) return undefined;
    return this.spawn();
  }

  private spawn(): IoThread {
    const worker = spawnThread("io", new URL("./io-thread.js", import.meta.url));
    const thread: IoThread = { worker, job: undefined };
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
    this.watchdog ??= setInterval(() => this.watch(), Math.min(SLOW_MS, this.options.hangAfterMs / 2)).unref();
  }

  private finish(thread: IoThread, reply: IoReply): void {
    const job = thread.job;
    if (job === undefined) return;
    this.release(thread, job);
    if ("fault" in reply) {
      job.reject(new FaultError(reply.fault));
    } else {
      if (job.request.op === "read") this.bytesRead += reply.value as number;
      job.resolve(reply.value as never);
    }
    this.pump();
  }

  private release(thread: IoThread, job: Job): void {
    thread.job = undefined;
    thread.worker.unref();
    this.requests++;
    this.busyMs += performance.now() - job.since;
    const flying = this.inFlight.get(job.target)! - 1;
    if (flying === 0) this.inFlight.delete(job.target);
    else this.inFlight.set(job.target, flying);
  }

  private lose(thread: IoThread, error: Error): void {
    if (!this.threads.delete(thread)) return;
    const job = thread.job;
    if (job !== undefined) {
      this.release(thread, job);
      job.reject(new StorageIo("the I/O thread failed", { file: job.request.path }, undefined, error));
    }
    this.pump();
  }

  private watch(): void {
    const now = performance.now();
    for (const { job } of this.threads) {
      if (job === undefined || job.reported || now - job.since < this.options.hangAfterMs) continue;
      job.reported = true;
      this.options.onHang?.(hungRequest(job, now));
    }
    // Threads that have become slow make room for others.
    this.pump();
  }
}

function hungRequest(job: Job, now: number): HungRequest {
  const { path, op } = job.request;
  const offset = job.request.op === "read" ? job.request.offset : 0;
  return { path, offset, op, target: job.target, sinceMs: Math.round(now - job.since) };
}

function closedError(request: IoCall): Error {
  return new StorageIo("storage was closed while this was being read", { file: request.path });
}
