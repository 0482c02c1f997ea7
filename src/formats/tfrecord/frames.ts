/**
 * Records of a shard in file order, batch by batch, in kernel memory: plain or inflated, 8 MiB a read.
 *
 * Contract: every record's CRCs are checked; memory is one read plus the longest record (records of 2 GiB and more are
 * refused); the good records before a fault come out first, then the fault is thrown with file, record and byte offset.
 * With `keep` a bad record is a batch of its own that carries its fault, and reading goes on behind it: at its end if its
 * length can be trusted, else at the next whole record (resync.ts). A damaged stretch is one record.
 *
 * @example
 * const reader = new FrameReader(object, "gzip", workspace);
 * for (let batch = await reader.next(); batch !== undefined; batch = await reader.next()) …
 */
import { FAULT, TABLE_BYTES, type Kernels } from "../../kernels/kernels.ts";
import { createKernels } from "../../kernels/load.ts";
import type { ReadableObject } from "../../storage/types.ts";
import { RecordTruncated } from "../errors.ts";
import type { Encoding } from "../types.ts";
import { faultError } from "./faults.ts";
import { FRAME_BYTES, HEADER_BYTES, nextHeader, payloadBytes, payloadFits } from "./resync.ts";
import { InflateStream } from "../stream.ts";

export const READ_BYTES = 8 * 1024 * 1024;
/** Compressed bytes are read in smaller pieces: they are copied once more, and grow when inflated. */
const COMPRESSED_READ = 1024 * 1024;
const BATCH_RECORDS = 65536;
const PAGE = 65536;

/** A private kernel memory: room for a table of features, offsets and lengths of a batch, and the bytes behind them. */
export interface Workspace {
  kernels: Kernels;
  table: number;
  tableBytes: number;
  offsets: number;
  lengths: number;
  compressed: number;
  bytes: number;
}

const TABLE_ROOM = 1024 * 1024;
const idle: Workspace[] = [];

/** Memories are kept for reuse, since each reserves 4 GiB of addresses; ones grown by a giant record are let go. */
export function takeWorkspace(implementation: Kernels["implementation"]): Workspace {
  const found = idle.findIndex((workspace) => workspace.kernels.implementation === implementation);
  if (found >= 0) return idle.splice(found, 1)[0]!;
  const room = TABLE_ROOM + BATCH_RECORDS * 8 + COMPRESSED_READ;
  const kernels = createKernels(room + 2 * READ_BYTES, implementation);
  const table = kernels.tables + TABLE_BYTES;
  const offsets = table + TABLE_ROOM;
  const lengths = offsets + BATCH_RECORDS * 4;
  const compressed = lengths + BATCH_RECORDS * 4;
  return { kernels, table, tableBytes: TABLE_ROOM, offsets, lengths, compressed, bytes: compressed + COMPRESSED_READ };
}

export function returnWorkspace(workspace: Workspace): void {
  if (workspace.kernels.memory.buffer.byteLength <= 64 * 1024 * 1024) idle.push(workspace);
}

export interface Batch {
  /** Address that the batch's offsets count from, and its offset in the file (or the decompressed stream). */
  base: number;
  offset: number;
  firstRecord: number;
  records: number;
  /** With `keep`: what is wrong with the batch's only record, whose payload must not be used. */
  fault?: Error;
}

export class FrameReader {
  private readonly object: ReadableObject;
  private readonly encoding: Encoding;
  private readonly workspace: Workspace;
  private readonly inflate: InflateStream | undefined;
  /** Stored bytes read. */
  fileBytes = 0;
  /** CRC32C of them, at the end; of a plain file, of what was handed out so far. */
  crc32c = 0;
  /** Bytes of whole records handed out: at the end, of the shard (decompressed). */
  offset = 0;
  private record = 0;
  private start = 0;
  private filled = 0;
  private ended = false;
  private reads = 0;
  private readonly keep: boolean;

  constructor(object: ReadableObject, encoding: Encoding, workspace: Workspace, keep = false) {
    this.object = object;
    this.encoding = encoding;
    this.workspace = workspace;
    this.keep = keep;
    if (encoding !== "plain") this.inflate = new InflateStream(encoding, object.uri, () => void this.feed());
  }

  /** The next records, or undefined at a clean end. A batch is valid until the next call. */
  async next(): Promise<Batch | undefined> {
    const { kernels, offsets, lengths } = this.workspace;
    for (;;) {
      const base = this.workspace.bytes + this.start;
      const scan = kernels.scanFrames(base, this.filled, BATCH_RECORDS, offsets, lengths, this.crc32c);
      if (scan.records > 0) {
        const batch = { base, offset: this.offset, firstRecord: this.record, records: scan.records };
        this.drop(scan.consumed, scan.crc32c);
        this.record += scan.records;
        return batch;
      }
      const { fault } = scan;
      if (fault !== undefined)
        return this.bad(faultError(fault, this.place()), fault.code === FAULT.payloadCrc ? base : undefined);
      if (this.ended && this.filled === 0) return undefined;
      if (this.ended || scan.needed > this.left)
        return this.bad(this.truncated(scan.needed, Math.min(this.left, this.ended ? this.filled : this.left)));
      await this.fill(scan.needed);
    }
  }

  destroy(): void {
    this.inflate?.destroy();
  }

  /** No read into the workspace is under way. */
  get idle(): boolean {
    return this.reads === 0;
  }

  /** Bytes that the shard still holds behind what was handed out. */
  private get left(): number {
    return this.encoding === "plain" ? this.object.size - this.offset : Number.MAX_SAFE_INTEGER;
  }

  /** The record at `start` as a batch of its own; throws its fault without `keep`. `frame`: its length can be trusted. */
  private async bad(fault: Error, frame?: number): Promise<Batch> {
    if (!this.keep) throw fault;
    const { kernels, offsets, lengths } = this.workspace;
    const batch = { base: 0, offset: this.offset, firstRecord: this.record++, records: 1, fault };
    if (frame === undefined) await this.passOver();
    else this.drop(payloadBytes(new Uint8Array(kernels.memory.buffer), frame) + FRAME_BYTES);
    const view = new DataView(kernels.memory.buffer);
    view.setUint32(offsets, HEADER_BYTES, true);
    view.setUint32(lengths, 0, true);
    return batch;
  }

  /** Passes over what is no record: to the next whole one, or to the end. */
  private async passOver(): Promise<void> {
    const { kernels, bytes } = this.workspace;
    for (this.drop(1); this.filled > 0 || !this.ended;) {
      const memory = new Uint8Array(kernels.memory.buffer);
      const from = bytes + this.start;
      const at = nextHeader(memory, from, from + this.filled);
      if (at < 0) {
        // The last 11 bytes can be the beginning of a header.
        this.drop(this.ended ? this.filled : Math.max(0, this.filled - HEADER_BYTES + 1));
        if (!this.ended) await this.fill(HEADER_BYTES);
        continue;
      }
      this.drop(at - from);
      const length = payloadBytes(memory, at);
      const needed = length + FRAME_BYTES;
      if (needed > this.filled && !this.ended && needed <= this.left) await this.fill(needed);
      else if (needed <= this.filled && payloadFits(kernels, memory, at, length)) return;
      else this.drop(1);
    }
  }

  /** Leaves bytes behind; `crc32c` is that of the file up to there, where it is known. */
  private drop(bytes: number, crc32c?: number): void {
    if (this.inflate === undefined)
      this.crc32c = crc32c ?? this.workspace.kernels.crc32c(this.workspace.bytes + this.start, bytes, this.crc32c);
    this.start += bytes;
    this.filled -= bytes;
    this.offset += bytes;
  }

  private place(): { file: string; firstRecord: number; fileOffset: number } {
    return { file: this.object.uri, firstRecord: this.record, fileOffset: this.offset };
  }

  private truncated(needed: number, left: number): Error {
    const inHeader = left < 12;
    return faultError(
      {
        code: FAULT.truncated,
        record: 0,
        recordOffset: 0,
        offset: inHeader ? 0 : 12,
        found: BigInt(inHeader ? left : left - 12),
        expected: BigInt(inHeader ? 12 : needed - 16),
        column: -1,
      },
      this.place(),
    );
  }

  // Moves the unfinished record to the front and reads behind it. A record longer than the room makes it grow, by
  // doubling, so that a length field alone never allocates what the stream does not hold.
  private async fill(needed: number): Promise<void> {
    const { kernels, bytes } = this.workspace;
    if (this.start > 0) {
      const memory = new Uint8Array(kernels.memory.buffer);
      memory.copyWithin(bytes, bytes + this.start, bytes + this.start + this.filled);
      this.start = 0;
    }
    const want = bytes + Math.min(Math.max(needed, this.filled + READ_BYTES), 2 * this.filled + READ_BYTES);
    const have = kernels.memory.buffer.byteLength;
    if (want > have) kernels.memory.grow(Math.ceil((want - have) / PAGE));
    const target = new Uint8Array(kernels.memory.buffer, bytes + this.filled, READ_BYTES);
    const n = this.inflate === undefined ? await this.readPlain(target) : await this.inflate.readSome(target);
    this.filled += n;
    if (n === 0) this.ended = true;
  }

  private async readPlain(target: Uint8Array): Promise<number> {
    const n = await this.read(target, this.fileBytes);
    this.fileBytes += n;
    return n;
  }

  /** Hands the next compressed bytes to the inflater. */
  private async feed(): Promise<void> {
    const { kernels, compressed } = this.workspace;
    const inflate = this.inflate!;
    try {
      const shared = new Uint8Array(kernels.memory.buffer, compressed, COMPRESSED_READ);
      const n = await this.read(shared, this.fileBytes);
      this.crc32c = kernels.crc32c(compressed, n, this.crc32c);
      this.fileBytes += n;
      // zlib's threads take no shared memory.
      inflate.push(shared.slice(0, n), this.fileBytes >= this.object.size);
    } catch (error) {
      inflate.abort(error as Error);
    }
  }

  private async read(target: Uint8Array, offset: number): Promise<number> {
    const want = Math.min(target.length, this.object.size - offset);
    if (want === 0) return 0;
    this.reads++;
    const n = await this.object.readInto(target.subarray(0, want), offset).finally(() => this.reads--);
    if (n === want) return n;
    throw new RecordTruncated(
      `the file is shorter than its size: found ${n} bytes, expected ${want}`,
      { file: this.object.uri, byteOffset: offset + n },
      "it was changed while it was read: read it again",
    );
  }
}
