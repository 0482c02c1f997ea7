/**
 * Decoders: the decode workers of an agent and the queue in front of them. Small fetches (the first batches after
 * a start, random access) go before bulk decoding; a worker gets two tasks at a time, so that it never idles
 * between them and the queue stays here, where it can be reordered.
 */
import type { Worker } from "node:worker_threads";
import { AthanorError } from "../base/errors.ts";
import { spawnThread } from "../base/threads.ts";
import type { DecodeReport, DecodeRequest, Encoding } from "../formats/types.ts";
import type { DecodeAnswer, DecodeMessage } from "./decode-thread.ts";
import type { GroupMemory } from "./memory.ts";

const DEPTH = 2;

interface Task {
  id: number;
  group: number;
  request: DecodeRequest;
  stream: StreamPlace | undefined;
  resolve: (report: DecodeReport & { decodeNs: number }) => void;
  reject: (error: Error) => void;
}

/** Where a decompressed block lies, and how to get more compressed bytes of its stream. */
export interface StreamPlace {
  stream: number;
  encoding: Encoding;
  offset: number;
  length: number;
  /** Next piece of the compressed shard. */
  pull: () => Promise<{ bytes: Uint8Array; last: boolean }>;
}

interface Lane {
  worker: Worker;
  running: Map<number, Task>;
}

export class Decoders {
  private readonly workers: Lane[];
  private readonly urgent: Task[] = [];
  private readonly bulk: Task[] = [];
  private readonly pulls = new Map<number, StreamPlace["pull"]>();
  private nextTask = 1;
  private closed = false;

  constructor(threads: number) {
    this.workers = Array.from({ length: threads }, () => this.start());
  }

  get queued(): number {
    return this.urgent.length + this.bulk.length + this.workers.reduce((sum, lane) => sum + lane.running.size, 0);
  }

  attach(group: number, memory: GroupMemory, format: string): void {
    this.broadcast({ type: "attach", group, memory: memory.memory, tables: memory.tables, format });
  }

  detach(group: number): void {
    this.broadcast({ type: "detach", group });
  }

  /** Streams stay with one worker, which keeps the running inflater. */
  closeStream(stream: number): void {
    this.pulls.delete(stream);
    this.workerOf(stream).worker.postMessage({ type: "close-stream", stream } satisfies DecodeMessage);
  }

  decode(
    group: number,
    request: DecodeRequest,
    urgent: boolean,
    stream?: StreamPlace,
  ): Promise<DecodeReport & { decodeNs: number }> {
    return new Promise((resolve, reject) => {
      if (this.closed) return reject(new Error("decoders are closed"));
      const task: Task = { id: this.nextTask++, group, request, stream, resolve, reject };
      (urgent ? this.urgent : this.bulk).push(task);
      this.dispatch();
    });
  }

  async close(): Promise<void> {
    this.closed = true;
    await Promise.all(this.workers.map((lane) => lane.worker.terminate()));
  }

  private start(): Lane {
    const worker = spawnThread("decode", new URL("./decode-thread.js", import.meta.url));
    const lane: Lane = { worker, running: new Map() };
    worker.on("message", (answer: DecodeAnswer) => this.receive(lane, answer));
    worker.on("error", (error: Error) => this.fail(lane, error));
    return lane;
  }

  private receive(lane: Lane, answer: DecodeAnswer): void {
    if (answer.type === "need") return this.feedStream(lane, answer.stream);
    const task = lane.running.get(answer.task);
    if (task === undefined) return;
    lane.running.delete(answer.task);
    this.dispatch();
    if (answer.type === "done") task.resolve(answer);
    else task.reject(AthanorError.fromRecord(answer.error));
  }

  private feedStream(lane: Lane, stream: number): void {
    const pull = this.pulls.get(stream);
    if (pull === undefined) {
      // Closed with a block of it in work: that task ends with an error nobody waits for.
      const end: DecodeMessage = { type: "chunk", stream, bytes: new Uint8Array(0), last: true };
      return lane.worker.postMessage(end);
    }
    pull().then(
      (chunk) => {
        const message: DecodeMessage = { type: "chunk", stream, ...chunk };
        lane.worker.postMessage(message, [chunk.bytes.buffer as ArrayBuffer]);
      },
      (error: Error) => {
        for (const task of [...lane.running.values()].filter((running) => running.stream?.stream === stream)) {
          lane.running.delete(task.id);
          task.reject(error);
        }
        this.closeStream(stream);
        this.dispatch();
      },
    );
  }

  /** A worker that died of an exception outside a task is a defect: its tasks fail and name it. */
  private fail(lane: Lane, error: Error): void {
    for (const task of lane.running.values()) task.reject(error);
    lane.running.clear();
  }

  private dispatch(): void {
    for (const queue of [this.urgent, this.bulk]) {
      for (let at = 0; at < queue.length;) {
        const task = queue[at] as Task;
        const lane = task.stream === undefined ? this.idlest() : this.workerOf(task.stream.stream);
        if (lane.running.size >= DEPTH) {
          if (task.stream === undefined) break;
          at++;
          continue;
        }
        queue.splice(at, 1);
        this.send(lane, task);
      }
    }
  }

  private send(lane: Lane, task: Task): void {
    lane.running.set(task.id, task);
    const message: DecodeMessage = { type: "decode", task: task.id, group: task.group, request: task.request };
    if (task.stream !== undefined) {
      const { stream, encoding, offset, length, pull } = task.stream;
      this.pulls.set(stream, pull);
      message.stream = { stream, encoding, offset, length };
    }
    lane.worker.postMessage(message);
  }

  private idlest(): Lane {
    return this.workers.reduce((best, lane) => (lane.running.size < best.running.size ? lane : best));
  }

  private workerOf(stream: number): Lane {
    return this.workers[stream % this.workers.length] as Lane;
  }

  private broadcast(message: DecodeMessage): void {
    for (const lane of this.workers) lane.worker.postMessage(message);
  }
}
