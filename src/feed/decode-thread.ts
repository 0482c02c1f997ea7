/**
 * Decode worker: turns raw bytes in the group's memory into stored rows, in place. For streams (gzip, zlib) it
 * also owns the running inflater of a shard: compressed bytes are pushed to it, block after block comes out.
 *
 * Messages in: `DecodeMessage`; out: `DecodeAnswer`. One task at a time; the main thread keeps the queue.
 */
import { parentPort } from "node:worker_threads";
import type { MessagePort } from "node:worker_threads";
import { toErrorRecord } from "../base/errors.ts";
import type { ErrorRecord } from "../base/errors.ts";
import { formatOf } from "../formats/registry.ts";
import { InflateStream } from "../formats/tfrecord/stream.ts";
import type { DecodeRequest, Encoding, Format } from "../formats/types.ts";
import type { Kernels } from "../kernels/kernels.ts";
import { loadKernels } from "../kernels/load.ts";

export type DecodeMessage =
  | { type: "attach"; group: number; memory: WebAssembly.Memory; tables: number; format: string }
  | { type: "detach"; group: number }
  | { type: "decode"; task: number; group: number; request: DecodeRequest; stream?: StreamRange }
  | { type: "chunk"; stream: number; bytes: Uint8Array; last: boolean }
  | { type: "close-stream"; stream: number };

/** Bytes [offset, offset + length) of a decompressed stream, to be put at `request.raw` before decoding. */
export interface StreamRange {
  stream: number;
  encoding: Encoding;
  offset: number;
  length: number;
}

export type DecodeAnswer =
  | { type: "done"; task: number; rows: number; truncated: number; decodeNs: number }
  | { type: "failed"; task: number; error: ErrorRecord }
  | { type: "need"; stream: number };

interface Attached {
  kernels: Kernels;
  format: Format;
}

interface OpenStream {
  inflate: InflateStream;
  /** Decompressed bytes handed out so far. */
  at: number;
}

export function run(): void {
  const port = parentPort;
  if (port === null) throw new Error("decode-thread must run in a worker");
  const worker = new DecodeWorker(port);
  port.on("message", (message: DecodeMessage) => worker.receive(message));
}

class DecodeWorker {
  private readonly groups = new Map<number, Attached>();
  private readonly streams = new Map<number, OpenStream>();
  private readonly closed = new Set<number>();
  private readonly port: MessagePort;
  /** Stream tasks run one behind the other: an inflater has one position. */
  private streamTail: Promise<void> = Promise.resolve();

  constructor(port: MessagePort) {
    this.port = port;
  }

  receive(message: DecodeMessage): void {
    switch (message.type) {
      case "attach": {
        const kernels = loadKernels({ memory: message.memory, tables: message.tables });
        this.groups.set(message.group, { kernels, format: formatOf(message.format) });
        return;
      }
      case "detach":
        this.groups.delete(message.group);
        return;
      case "chunk":
        this.streams.get(message.stream)?.inflate.push(message.bytes, message.last);
        return;
      case "close-stream":
        this.streams.get(message.stream)?.inflate.destroy();
        this.streams.delete(message.stream);
        this.closed.add(message.stream);
        return;
      case "decode":
        if (message.stream === undefined) void this.attempt(message);
        else this.streamTail = this.streamTail.then(() => this.attempt(message));
    }
  }

  private async attempt(message: Extract<DecodeMessage, { type: "decode" }>): Promise<void> {
    try {
      await this.decode(message);
    } catch (error) {
      this.answer({ type: "failed", task: message.task, error: toErrorRecord(error) });
    }
  }

  private async decode(message: Extract<DecodeMessage, { type: "decode" }>): Promise<void> {
    const attached = this.groups.get(message.group);
    if (attached === undefined) throw new Error(`decode group ${message.group} is not attached`);
    if (message.stream !== undefined) await this.inflate(attached.kernels, message.request, message.stream);
    const start = process.hrtime.bigint();
    const report = attached.format.decode(attached.kernels, message.request);
    const decodeNs = Number(process.hrtime.bigint() - start);
    this.answer({ type: "done", task: message.task, rows: report.rows, truncated: report.truncated, decodeNs });
  }

  private async inflate(kernels: Kernels, request: DecodeRequest, range: StreamRange): Promise<void> {
    if (this.closed.has(range.stream)) throw new Error("the stream was closed");
    let stream = this.streams.get(range.stream);
    if (stream === undefined) {
      const inflate = new InflateStream(range.encoding, request.file, () =>
        this.answer({ type: "need", stream: range.stream }),
      );
      stream = { inflate, at: 0 };
      this.streams.set(range.stream, stream);
    }
    await stream.inflate.skip(range.offset - stream.at);
    const target = new Uint8Array(kernels.memory.buffer, request.raw, range.length);
    await stream.inflate.readInto(target);
    stream.at = range.offset + range.length;
  }

  private answer(answer: DecodeAnswer): void {
    this.port.postMessage(answer);
  }
}
