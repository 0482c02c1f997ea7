/**
 * Decoders: the decode workers of an agent and the queue in front of them. Small fetches (the first batches after
 * a start, random access) go before bulk decoding; a worker gets two tasks at a time, so that it never idles
 * between them and the queue stays here, where it can be reordered.
 */
import type { Worker } from "node:worker_threads";
import { AthanorError } from "../base/errors.ts";
import type { ErrorRecord } from "../base/errors.ts";
import { spawnThread } from "../base/threads.ts";
import type { BlockColumns, DecodeReport, DecodeRequest, Encoding, StoredColumn } from "../formats/types.ts";
import type {
  BadInBlock,
  ColumnsRequest,
  DecodeAnswer,
  DecodeMessage,
  MemoryMessage,
  SurveyRequest,
} from "./decode-thread.ts";
import type { GroupMemory } from "./memory.ts";
import type { TextView } from "./text.ts";

const DEPTH = 2;

/** What came of one task. `faults`: of a `ColumnFormat` only, whose good records are decoded all the same. */
export interface Decoded extends DecodeReport {
  decodeNs: number;
  faults: BadInBlock;
}

type Work =
  | { type: "decode"; format: string; request: DecodeRequest }
  | { type: "columns"; request: ColumnsRequest }
  | { type: "survey"; request: SurveyRequest };
type Result = Extract<DecodeAnswer, { type: "done" | "surveyed" }>;

interface Task {
  id: number;
  group: number;
  work: Work;
  stream: StreamPlace | undefined;
  resolve: (result: Result) => void;
  reject: (error: Error) => void;
}

/** A compressed shard that is read from its beginning on. */
export interface OpenStream {
  /** No other stream of the agent has it. */
  id: number;
  encoding: Encoding;
  /** Next piece of the compressed shard. */
  pull: () => Promise<{ bytes: Uint8Array; last: boolean }>;
  /** Nothing more is wanted of it. Set by `Decoders.closeStream`; here, so that nobody keeps a list for ever. */
  closed: boolean;
}

/** Where a decompressed block lies. */
export interface StreamPlace {
  stream: OpenStream;
  offset: number;
  length: number;
}

interface Thread {
  worker: Worker;
  running: Map<number, Task>;
}

export class Decoders {
  private readonly workers: Thread[];
  private readonly urgent: Task[] = [];
  private readonly bulk: Task[] = [];
  /** Those of which something was asked, by number. */
  private readonly streams = new Map<number, OpenStream>();
  /** Memories are never let go of (`MemoryPool`), so each thread is told of one once. */
  private readonly memories = new Map<WebAssembly.Memory, MemoryMessage>();
  private readonly attached = new Map<number, DecodeMessage>();
  private nextTask = 1;
  private closed = false;

  constructor(threads: number) {
    this.workers = Array.from({ length: threads }, () => this.start());
  }

  get queued(): number {
    return this.urgent.length + this.bulk.length + this.workers.reduce((sum, thread) => sum + thread.running.size, 0);
  }

  attach(group: number, memory: GroupMemory, columns: readonly StoredColumn[], text?: TextView): void {
    const message: DecodeMessage = { type: "attach", group, memory: this.numberOf(memory), columns, text };
    this.attached.set(group, message);
    this.broadcast(message);
  }

  private numberOf({ memory, tables }: GroupMemory): number {
    const known = this.memories.get(memory);
    if (known !== undefined) return known.number;
    const message: MemoryMessage = { type: "memory", number: this.memories.size, memory, tables };
    this.memories.set(memory, message);
    this.broadcast(message);
    return message.number;
  }

  detach(group: number): void {
    this.attached.delete(group);
    this.broadcast({ type: "detach", group });
  }

  /** Streams stay with one worker, which keeps the running inflater. */
  closeStream(stream: OpenStream): void {
    stream.closed = true;
    this.streams.delete(stream.id);
    this.workerOf(stream).worker.postMessage({ type: "close-stream", stream: stream.id } satisfies DecodeMessage);
  }

  /** A block of a `RowFormat`: throws its first fault. */
  decode(
    group: number,
    format: string,
    request: DecodeRequest,
    urgent: boolean,
    stream?: StreamPlace,
  ): Promise<Decoded> {
    return this.enqueue<"done">(group, { type: "decode", format, request }, urgent, stream);
  }

  /** A block of a `ColumnFormat`. */
  columns(group: number, request: ColumnsRequest, urgent: boolean, stream?: StreamPlace): Promise<Decoded> {
    return this.enqueue<"done">(group, { type: "columns", request }, urgent, stream);
  }

  /** All columns of a block of a `ColumnFormat` in the view of a group, and its bad records. */
  async survey(group: number, request: SurveyRequest, stream?: StreamPlace): Promise<BlockColumns> {
    const { fields, faults } = await this.enqueue<"surveyed">(group, { type: "survey", request }, true, stream);
    return { fields, faults: faultsOf(faults) };
  }

  private enqueue<Type extends Result["type"]>(
    group: number,
    work: Work,
    urgent: boolean,
    stream: StreamPlace | undefined,
  ): Promise<Extract<Result, { type: Type }>> {
    return new Promise((done, reject) => {
      if (this.closed) return reject(new Error("decoders are closed"));
      const resolve = done as (result: Result) => void;
      const task: Task = { id: this.nextTask++, group, work, stream, resolve, reject };
      (urgent ? this.urgent : this.bulk).push(task);
      this.dispatch();
    });
  }

  async close(): Promise<void> {
    this.closed = true;
    await Promise.all(this.workers.map((thread) => thread.worker.terminate()));
  }

  private start(): Thread {
    const worker = spawnThread("decode", new URL("./decode-thread.js", import.meta.url));
    const thread: Thread = { worker, running: new Map() };
    worker.on("message", (answer: DecodeAnswer) => this.receive(thread, answer));
    worker.on("error", (error: Error) => this.fail(thread, error));
    return thread;
  }

  private receive(thread: Thread, answer: DecodeAnswer): void {
    if (answer.type === "need") return this.feedStream(thread, answer.stream);
    const task = thread.running.get(answer.task);
    if (task === undefined) return;
    thread.running.delete(answer.task);
    this.dispatch();
    if (answer.type === "failed") task.reject(AthanorError.fromRecord(answer.error));
    else task.resolve(answer);
  }

  private feedStream(thread: Thread, id: number): void {
    const stream = this.streams.get(id);
    if (stream === undefined) {
      // Closed with a block of it in work: that task ends with an error nobody waits for.
      const end: DecodeMessage = { type: "chunk", stream: id, bytes: new Uint8Array(0), last: true };
      return thread.worker.postMessage(end);
    }
    stream.pull().then(
      (chunk) => {
        const message: DecodeMessage = { type: "chunk", stream: id, ...chunk };
        thread.worker.postMessage(message, [chunk.bytes.buffer as ArrayBuffer]);
      },
      (error: Error) => {
        for (const task of [...thread.running.values()].filter((running) => running.stream?.stream === stream)) {
          thread.running.delete(task.id);
          task.reject(error);
        }
        this.closeStream(stream);
        this.dispatch();
      },
    );
  }

  /** A worker that dies is a defect, or out of memory: its tasks fail and name it, another takes its place. */
  private fail(thread: Thread, error: Error): void {
    for (const task of thread.running.values()) task.reject(error);
    thread.running.clear();
    const at = this.workers.indexOf(thread);
    if (this.closed || at < 0) return;
    const next = this.start();
    this.workers[at] = next;
    for (const message of [...this.memories.values(), ...this.attached.values()]) next.worker.postMessage(message);
    this.dispatch();
  }

  private dispatch(): void {
    for (const queue of [this.urgent, this.bulk]) {
      for (let at = 0; at < queue.length;) {
        const task = queue[at] as Task;
        const thread = task.stream === undefined ? this.idlest() : this.workerOf(task.stream.stream);
        if (thread.running.size >= DEPTH) {
          if (task.stream === undefined) break;
          at++;
          continue;
        }
        queue.splice(at, 1);
        if (task.stream?.stream.closed === true) {
          task.reject(new Error("the stream was closed"));
          continue;
        }
        this.send(thread, task);
      }
    }
  }

  private send(thread: Thread, task: Task): void {
    thread.running.set(task.id, task);
    const message: Extract<DecodeMessage, { type: Work["type"] }> = { ...task.work, task: task.id, group: task.group };
    if (task.stream !== undefined) {
      const { stream, offset, length } = task.stream;
      this.streams.set(stream.id, stream);
      message.stream = { stream: stream.id, encoding: stream.encoding, offset, length };
    }
    thread.worker.postMessage(message);
  }

  private idlest(): Thread {
    return this.workers.reduce((best, thread) => (thread.running.size < best.running.size ? thread : best));
  }

  private workerOf({ id }: OpenStream): Thread {
    return this.workers[id % this.workers.length] as Thread;
  }

  private broadcast(message: DecodeMessage): void {
    for (const thread of this.workers) thread.worker.postMessage(message);
  }
}

/** Bad records by number; those that share a fault share it here, too. */
export function faultsOf(bad: BadInBlock): Map<number, AthanorError> {
  const known = new Map<ErrorRecord, AthanorError>();
  return new Map(
    bad.map(({ record, error }) => {
      const fault = known.get(error) ?? AthanorError.fromRecord(error);
      known.set(error, fault);
      return [record, fault];
    }),
  );
}
