/**
 * Decode worker: turns raw bytes in the group's memory into stored rows, in place. For streams (gzip, zlib) it
 * also owns the running inflater of a shard: compressed bytes are pushed to it, block after block comes out.
 *
 * Messages in: `DecodeMessage`; out: `DecodeAnswer`. One task at a time; the main thread keeps the queue.
 */
import { parentPort } from "node:worker_threads";
import type { MessagePort } from "node:worker_threads";
import { toErrorRecord } from "../base/errors.ts";
import type { AthanorError, ErrorRecord } from "../base/errors.ts";
import { dense } from "../formats/dense.ts";
import { formatOf, readyReader } from "../formats/registry.ts";
import { storeRows } from "../formats/rows.ts";
import type { RunningStream } from "../formats/running-stream.ts";
import { openStream } from "../formats/stream.ts";
import { ROW_HEADER_BYTES } from "../formats/types.ts";
import type {
  BlockColumns,
  DecodeRequest,
  Encoding,
  PlacedSegment,
  RawBlock,
  RowFormat,
  StoredColumn,
} from "../formats/types.ts";
import type { Kernels } from "../kernels/kernels.ts";
import { loadKernels } from "../kernels/load.ts";
import { blockColumns } from "./block-columns.ts";
import { align } from "./memory.ts";
import { rowsOfPieces, wantedRecords } from "./piece-rows.ts";
import { featuresOf, openTokenColumn, type TokenColumn } from "./token-column.ts";
import type { TextView } from "./text.ts";

/** A memory in which runs will lie, one after the other; sent once. */
export interface MemoryMessage {
  type: "memory";
  number: number;
  memory: WebAssembly.Memory;
  tables: number;
}

export type DecodeMessage =
  | MemoryMessage
  | { type: "attach"; group: number; memory: number; columns: readonly StoredColumn[]; text: TextView | undefined }
  | { type: "detach"; group: number }
  | { type: "decode"; task: number; group: number; format: string; request: DecodeRequest; stream?: StreamRange }
  | { type: "columns"; task: number; group: number; request: ColumnsRequest; stream?: StreamRange }
  | { type: "survey"; task: number; group: number; request: SurveyRequest; stream?: StreamRange }
  | { type: "chunk"; stream: number; bytes: Uint8Array; last: boolean }
  | { type: "close-stream"; stream: number };

/** Decoding of a block by a `ColumnFormat`. */
export interface ColumnsRequest extends Omit<RawBlock, "segments"> {
  format: string;
  /** Where the segments lie in the group's memory. */
  segments: readonly (Omit<PlacedSegment, "bytes"> & { at: number })[];
  /** Offsets in the bytes of records 0, 64, 128 … of them; none where the block is read whole. */
  restarts: Uint32Array;
  /** Address of u32[records]: the row of each record (of each sample), 0 = not wanted. */
  rows: number;
  shardKey: bigint;
}

/** A whole block of a `ColumnFormat`, in a memory that it shares with this thread: its columns, and all that is bad in it. */
export interface SurveyRequest extends RawBlock {
  format: string;
  /** As in `ColumnsRequest`. */
  restarts: Uint32Array;
}

/** Bad records of a block that were wanted, by number in it. */
export type BadInBlock = readonly { record: number; error: ErrorRecord }[];

/** Bytes [offset, offset + length) of a decompressed stream, to be put where the request has its raw bytes before decoding. */
export interface StreamRange {
  stream: number;
  encoding: Encoding;
  offset: number;
  length: number;
}

export type DecodeAnswer =
  | { type: "done"; task: number; rows: number; truncated: number; decodeNs: number; faults: BadInBlock }
  | { type: "surveyed"; task: number; fields: BlockColumns["fields"]; faults: BadInBlock }
  | { type: "failed"; task: number; error: ErrorRecord }
  | { type: "need"; stream: number };

interface Attached {
  kernels: Kernels;
  columns: readonly StoredColumn[];
  /** Features that the columns are of. */
  features: readonly string[];
  text: Promise<TokenColumn> | undefined;
}

type Work = Extract<DecodeMessage, { type: "decode" | "columns" | "survey" }>;

interface OpenStream {
  inflate: RunningStream;
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
  /** By number of the memory. An instance for each run would leave 20 KB in a heap that is hardly ever collected. */
  private readonly kernels = new Map<number, Kernels>();
  private readonly streams = new Map<number, OpenStream>();
  /** Stream tasks received and not ended, by stream. */
  private readonly waiting = new Map<number, number>();
  /** Streams that were closed with a task waiting, until that has ended: it must not begin them anew. */
  private readonly closed = new Set<number>();
  private readonly port: MessagePort;
  /** Stream tasks run one behind the other: an inflater has one position. */
  private streamTail: Promise<void> = Promise.resolve();

  constructor(port: MessagePort) {
    this.port = port;
  }

  receive(message: DecodeMessage): void {
    switch (message.type) {
      case "memory":
        this.kernels.set(message.number, loadKernels({ memory: message.memory, tables: message.tables }));
        return;
      case "attach": {
        const kernels = this.kernels.get(message.memory);
        if (kernels === undefined) throw new Error(`memory ${message.memory} was not sent to this thread`);
        const features = featuresOf(message.columns, message.text);
        const text = message.text === undefined ? undefined : openTokenColumn(message.text);
        // Its failure is told by each task that needs it.
        text?.catch(() => undefined);
        this.groups.set(message.group, { kernels, columns: message.columns, features, text });
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
        if (this.waiting.has(message.stream)) this.closed.add(message.stream);
        return;
      case "decode":
      case "columns":
      case "survey":
        if (message.stream === undefined) void this.attempt(message);
        else this.queue(message, message.stream.stream);
    }
  }

  private queue(message: Work, stream: number): void {
    this.waiting.set(stream, (this.waiting.get(stream) ?? 0) + 1);
    this.streamTail = this.streamTail.then(async () => {
      await this.attempt(message);
      const left = (this.waiting.get(stream) as number) - 1;
      if (left > 0) return void this.waiting.set(stream, left);
      this.waiting.delete(stream);
      this.closed.delete(stream);
    });
  }

  private async attempt(message: Work): Promise<void> {
    try {
      await this.decode(message);
    } catch (error) {
      this.answer({ type: "failed", task: message.task, error: toErrorRecord(error) });
    }
  }

  private async decode(message: Work): Promise<void> {
    const attached = this.groups.get(message.group);
    if (attached === undefined) throw new Error(`decode group ${message.group} is not attached`);
    const { task, stream } = message;
    const { kernels } = attached;
    if (stream !== undefined) await this.inflate(rawBytes(kernels, message, stream), message.request.file, stream);
    const start = process.hrtime.bigint();
    if (message.type === "survey") {
      this.answer({ type: "surveyed", task, ...(await survey(attached, message.request)) });
    } else if (message.type === "decode") {
      const { rows, truncated } = rowFormat(message.format).decode(kernels, message.request);
      this.answer({ type: "done", task, rows, truncated, decodeNs: since(start), faults: [] });
    } else {
      const { rows, truncated, faults } = await this.columns(attached, message.request);
      this.answer({ type: "done", task, rows, truncated, decodeNs: since(start), faults });
    }
  }

  private async columns(
    { kernels, columns, features, text }: Attached,
    request: ColumnsRequest,
  ): Promise<{ rows: number; truncated: number; faults: BadInBlock }> {
    const format = await readyReader(request.format);
    const { buffer } = kernels.memory;
    const segments = request.segments.map(({ at, ...segment }) => ({
      ...segment,
      bytes: new Uint8Array(buffer, at, segment.length),
    }));
    const rowOf = new Uint32Array(buffer, request.rows, request.records);
    const wanted = (i: number): boolean => rowOf[i] !== 0;
    const pieces = request.samples?.pieces;
    // Rows of pieces: the whole block as its records.
    const place =
      pieces === undefined
        ? request
        : { ...request, firstRecord: pieces.firstRecord, records: pieces.counts.length, samples: undefined };
    const decoded = await blockColumns(format, { ...place, segments }, features, request.restarts);
    try {
      const records = pieces === undefined ? undefined : wantedRecords(pieces, wanted);
      const found =
        text === undefined
          ? decoded
          : (await text).tokenize(decoded, place, records === undefined ? wanted : (i) => records[i] === 1);
      const block = pieces === undefined ? found : rowsOfPieces(found, pieces, columns, wanted, request.file);
      const { rows, truncated, faults } = storeRows(buffer, columns, block, { ...request, kernels });
      return { rows, truncated, faults: badOf(faults) };
    } finally {
      decoded.release?.();
    }
  }

  private async inflate(target: Uint8Array, file: string, range: StreamRange): Promise<void> {
    if (this.closed.has(range.stream)) throw new Error("the stream was closed");
    let stream = this.streams.get(range.stream);
    if (stream === undefined) {
      const inflate = openStream(range.encoding, file, () => this.answer({ type: "need", stream: range.stream }));
      stream = { inflate, at: 0 };
      this.streams.set(range.stream, stream);
    }
    await stream.inflate.skip(range.offset - stream.at);
    await stream.inflate.readInto(target);
    stream.at = range.offset + range.length;
  }

  private answer(answer: DecodeAnswer): void {
    this.port.postMessage(answer);
  }
}

function rawBytes(kernels: Kernels, { type, request }: Work, { length }: StreamRange): Uint8Array {
  if (type === "survey") return request.segments[0]!.bytes;
  const at = type === "decode" ? request.raw : request.segments[0]!.at;
  return new Uint8Array(kernels.memory.buffer, at, length);
}

/** All records go to one row of no use: only their faults are asked for. Exported for tests. */
export async function survey(
  { columns, features, text }: Omit<Attached, "kernels">,
  request: SurveyRequest,
): Promise<{ fields: BlockColumns["fields"]; faults: BadInBlock }> {
  const format = await readyReader(request.format);
  const decoded = await blockColumns(format, request, features, request.restarts);
  try {
    const block = text === undefined ? decoded : (await text).tokenize(decoded, request, () => true);
    const row = align(request.records * 4, 64);
    const end = columns.reduce(
      (most, { rowOffset, rowBytes }) => Math.max(most, rowOffset + rowBytes),
      ROW_HEADER_BYTES,
    );
    const buffer = new ArrayBuffer(row + align(end, 64));
    new Uint32Array(buffer, 0, request.records).fill(row);
    const { faults } = storeRows(buffer, columns, block, { ...request, rows: 0, shardKey: 0n });
    return { fields: copied(block.fields), faults: badOf(faults) };
  } finally {
    decoded.release?.();
  }
}

/** Fields whose values stay as they are, whatever this thread decodes next and becomes of the block's bytes. */
function copied(fields: BlockColumns["fields"]): BlockColumns["fields"] {
  return new Map(
    [...fields].map(([name, column]) => [
      name,
      column.starts === undefined ? { ...column, values: column.values.slice() } : dense(column),
    ]),
  );
}

/** Records of a block that cannot be decoded share their fault, which is then sent once. */
function badOf(faults: ReadonlyMap<number, AthanorError>): BadInBlock {
  const told = new Map<AthanorError, ErrorRecord>();
  return [...faults]
    .sort(([a], [b]) => a - b)
    .map(([record, fault]) => {
      const error = told.get(fault) ?? toErrorRecord(fault);
      told.set(fault, error);
      return { record, error };
    });
}

function rowFormat(name: string): RowFormat {
  const format = formatOf(name);
  if (format.kind !== "rows") throw new Error(`${name} decodes columns`);
  return format;
}

function since(start: bigint): number {
  return Number(process.hrtime.bigint() - start);
}
