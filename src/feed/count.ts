/**
 * Counting the tokens of every record of a set, once for all views of them: each shard is read whole, decoded and tokenized by
 * workers, and its counts are written (`.athanor/views/`). A shard that is counted is not read again.
 *
 * Contract: the first bad record of a shard ends it, with its number and byte. Memory: two blocks a worker, and the counts of blocks
 * that came before their turn.
 *
 * @example
 * await countTokens(index, countedTokens(layout), { storage, source: "/d", threads: 8, progress });
 */
import type { Worker } from "node:worker_threads";
import { AthanorError } from "../base/errors.ts";
import type { ErrorRecord } from "../base/errors.ts";
import { spawnThread } from "../base/threads.ts";
import { uncounted } from "../dataset/counts.ts";
import type { DatasetIndex } from "../dataset/types.ts";
import { ViewWriter } from "../dataset/view-write.ts";
import type { PosixStorage } from "../storage/posix.ts";
import type { Counted } from "./counted.ts";
import type { CountAnswer, CountMessage, CountRequest } from "./count-thread.ts";
import { featuresOfText } from "./token-column.ts";
import { BlockMemory, ShardBlocks } from "./shard-blocks.ts";

export interface CountOptions {
  storage: PosixStorage;
  /** The data as the user named it. */
  source: string;
  threads: number;
  /** Stored bytes counted of those to be counted, and the path in work. What it throws ends the work. */
  progress?: ((done: number, total: number, path: string) => void) | undefined;
  /** Counts shards anew that are counted; the rows of views that were made of them are removed. @default false */
  again?: boolean;
  /** Bad records are told of and count as such: they will be in no row. @default the first one is thrown */
  onBad?: ((fault: AthanorError) => void) | undefined;
}

/** Shards in work at a time: each stream has one inflater. */
const CONCURRENT = 4;
/** Blocks that a worker has, the one in work and the next. */
const DEPTH = 2;

/** What there was to do. */
export interface CountReport {
  shards: number;
  bytes: number;
}

export async function countTokens(index: DatasetIndex, counted: Counted, options: CountOptions): Promise<CountReport> {
  const { storage, source, threads, progress } = options;
  const missing = options.again === true ? [...index.shards.keys()] : await uncounted(index, counted.hash, storage);
  const bytes = missing.reduce((sum, shard) => sum + index.shards[shard]!.size, 0);
  if (missing.length === 0) return { shards: 0, bytes };
  const writer = new ViewWriter(index, counted.hash, source);
  await writer.prepare();
  if (options.again === true) await writer.dropRows();
  const counters = new Counters(threads, counted, options.onBad);
  const memory = new BlockMemory();
  let done = 0;
  try {
    const queue = missing.values();
    const work = async (): Promise<void> => {
      for (const shard of queue) {
        const row = index.shards[shard]!;
        const features = counted.text === undefined ? [counted.feature] : featuresOfText(counted.text);
        const blocks = new ShardBlocks(index, shard, features, storage, memory);
        const advance = (block: number): void => {
          done += row.size / Math.max(row.blocks, 1);
          if (block >= 0) progress?.(Math.round(done), bytes, row.path);
        };
        await writer.write(row, countsOf(blocks, counters, advance));
      }
    };
    await settled(Array.from({ length: Math.min(CONCURRENT, threads) }, work));
    await writer.finish();
    // Once more: a job may have made rows of old and new counts meanwhile.
    if (options.again === true) await writer.dropRows();
  } finally {
    await counters.close();
  }
  return { shards: missing.length, bytes };
}

/** Counts of the blocks of a shard in order, while later ones are in work. */
async function* countsOf(
  blocks: ShardBlocks,
  counters: Counters,
  advance: (block: number) => void,
): AsyncGenerator<Uint32Array> {
  const count = await blocks.open();
  const ahead: Promise<Uint32Array>[] = [];
  try {
    for (let next = 0, block = 0; block < count; block++) {
      for (; next < count && ahead.length < counters.depth; next++) {
        const number = next;
        const counts = counters.count(() => blocks.read(number));
        // Awaited in its turn: until then its failure is nobody's.
        counts.catch(() => undefined);
        ahead.push(counts);
      }
      yield await ahead.shift()!;
      advance(block);
    }
  } finally {
    blocks.close();
  }
}

interface Job {
  resolve: (counts: Uint32Array) => void;
  reject: (error: Error) => void;
  giveBack: () => void;
}

class Counters {
  readonly depth: number;
  private readonly workers: { worker: Worker; jobs: Map<number, Job> }[];
  private readonly waiting: (() => void)[] = [];
  private free: number;
  private nextTask = 1;
  private failure: Error | undefined;
  private readonly onBad: CountOptions["onBad"];

  constructor(threads: number, { feature, text }: Counted, onBad: CountOptions["onBad"]) {
    this.onBad = onBad;
    const keepBad = onBad !== undefined;
    this.depth = threads * DEPTH;
    this.free = this.depth;
    this.workers = Array.from({ length: threads }, () => {
      const worker = spawnThread("count", new URL("./count-thread.js", import.meta.url));
      const jobs = new Map<number, Job>();
      worker.on("message", (answer: CountAnswer) => this.answered(jobs, answer));
      worker.on("error", (error) => this.fail(error));
      worker.postMessage({ type: "open", feature, text, keepBad } satisfies CountMessage);
      return { worker, jobs };
    });
  }

  /** Reads a block when there is room for it, and counts it. */
  async count(read: () => Promise<{ request: CountRequest; giveBack: () => void }>): Promise<Uint32Array> {
    if (this.free === 0) await new Promise<void>((resolve) => this.waiting.push(resolve));
    else this.free--;
    try {
      if (this.failure !== undefined) throw this.failure;
      const { request, giveBack } = await read();
      const { worker, jobs } = this.workers.reduce((best, next) => (next.jobs.size < best.jobs.size ? next : best));
      const task = this.nextTask++;
      return await new Promise<Uint32Array>((resolve, reject) => {
        if (this.failure !== undefined) return reject(this.failure);
        jobs.set(task, { resolve, reject, giveBack });
        worker.postMessage({ type: "count", task, request } satisfies CountMessage);
      });
    } finally {
      const next = this.waiting.shift();
      if (next === undefined) this.free++;
      else next();
    }
  }

  /** Ends the workers; what is in work fails. */
  async close(): Promise<void> {
    this.fail(new Error("the counting has ended"));
    await Promise.all(this.workers.map(({ worker }) => worker.terminate()));
  }

  private answered(jobs: Map<number, Job>, answer: CountAnswer): void {
    const job = jobs.get(answer.task);
    jobs.delete(answer.task);
    job?.giveBack();
    if ("fault" in answer) job?.reject(AthanorError.fromRecord(answer.fault satisfies ErrorRecord));
    else {
      for (const fault of answer.bad) this.onBad?.(AthanorError.fromRecord(fault));
      job?.resolve(answer.counts);
    }
  }

  private fail(error: Error): void {
    this.failure ??= error;
    for (const { jobs } of this.workers) {
      for (const job of jobs.values()) job.reject(error);
      jobs.clear();
    }
  }
}

/** Waits for all, then throws the first failure. */
async function settled(tasks: Promise<void>[]): Promise<void> {
  for (const result of await Promise.allSettled(tasks)) if (result.status === "rejected") throw result.reason;
}
