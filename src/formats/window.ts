/**
 * Window: the bytes of a shard from its beginning to its end, plain or inflated, of which a parser sees a contiguous stretch ahead.
 * For indexes of byte-framed formats: the CRC32C of all stored bytes is a by-product, and the next read is under way meanwhile.
 *
 * Contract: `bytes` lies in memory of its own (no other thread writes to it) and stays as it is until `fill`; memory is two
 * reads and the longest stretch that was asked for. A stream that is cut or damaged is ATH_STREAM_CORRUPT.
 *
 * @example
 * const window = new Window(object, "plain", options);
 * while (await window.fill(512)) window.advance(recordAt(window.bytes)); // window.offset counts from the shard's beginning
 * window.close();
 */
import { TABLE_BYTES, type Kernels } from "../kernels/kernels.ts";
import { createKernels } from "../kernels/load.ts";
import type { ReadableObject } from "../storage/types.ts";
import { InflateStream } from "./stream.ts";
import type { Encoding, IndexOptions } from "./types.ts";

/** A read; large enough to be sequential to every file system. */
const READ_BYTES = 4 * 1024 * 1024;
/** A stream hands out some 256 KiB at once. */
const INFLATED_BYTES = 256 * 1024;

/** Memories are kept: each reserves 4 GiB of addresses. */
const idle: Kernels[] = [];

/** What parsers see of a window. */
export interface Ahead {
  readonly offset: number;
  readonly bytes: Uint8Array;
  fill(n: number): Promise<boolean>;
  advance(n: number): void;
}

export class Window implements Ahead {
  /** Offset of `bytes[0]` in the shard (in its decompressed stream). */
  offset = 0;
  /** What is ahead. */
  bytes: Uint8Array = new Uint8Array(0);
  /** CRC32C of the stored bytes read so far: at the end, of all. */
  crc32c = 0;
  private readonly object: ReadableObject;
  private readonly kernels: Kernels;
  private readonly progress: IndexOptions["progress"];
  private readonly inflate: InflateStream | undefined;
  private store: Uint8Array = new Uint8Array(0);
  /** `bytes` is store[from, to). */
  private from = 0;
  private to = 0;
  /** Stored bytes asked for, and the read that is under way, into half `half` of the kernel memory. */
  private asked = 0;
  private half = 0;
  private reading: Promise<number> | undefined;
  private done = 0;

  constructor(object: ReadableObject, encoding: Encoding, { kernels, progress }: IndexOptions) {
    this.object = object;
    this.progress = progress;
    const { implementation } = kernels;
    const at = idle.findIndex((one) => one.implementation === implementation);
    this.kernels = at < 0 ? createKernels(2 * READ_BYTES, implementation) : idle.splice(at, 1)[0]!;
    if (encoding !== "plain") this.inflate = new InflateStream(encoding, object.uri, () => void this.feed());
  }

  /** At least `n` bytes are ahead; false: the shard ends before that, and `bytes` is all the rest. */
  async fill(n: number): Promise<boolean> {
    while (this.to - this.from < n) {
      this.room(n);
      const more = this.inflate === undefined ? await this.copyNext() : await this.inflateNext();
      this.bytes = this.store.subarray(this.from, this.to);
      if (!more) return this.to - this.from >= n;
    }
    return true;
  }

  /** Passes over `n` bytes of those ahead. */
  advance(n: number): void {
    if (n > this.to - this.from) throw new RangeError("advance over bytes that were not filled");
    this.from += n;
    this.offset += n;
    this.bytes = this.store.subarray(this.from, this.to);
  }

  /** Nothing reads any more. A read that is still under way may write into the memory: then it is kept until that has ended. */
  close(): void {
    this.inflate?.destroy();
    const give = (): void => void idle.push(this.kernels);
    if (this.reading === undefined) give();
    else void this.reading.then(give, give);
  }

  /** Room behind `to` for what makes `n` bytes, and for at least one read. */
  private room(n: number): void {
    const held = this.to - this.from;
    const more = this.inflate === undefined ? READ_BYTES : INFLATED_BYTES;
    if (this.store.length - this.to >= more) return;
    // Never more than doubled at once: what a damaged header asks for is no reason to reserve it.
    const need = held + Math.max(more, Math.min(n - held, held));
    const store =
      this.store.length >= need && this.from >= held ? this.store : new Uint8Array(Math.max(need, 2 * more));
    store.set(this.store.subarray(this.from, this.to));
    this.store = store;
    this.from = 0;
    this.to = held;
  }

  private async copyNext(): Promise<boolean> {
    const chunk = await this.nextChunk();
    if (chunk === undefined) return false;
    this.store.set(chunk, this.to);
    this.to += chunk.length;
    return true;
  }

  private async inflateNext(): Promise<boolean> {
    const n = await this.inflate!.readSome(this.store.subarray(this.to));
    this.to += n;
    return n > 0;
  }

  private async feed(): Promise<void> {
    try {
      const chunk = await this.nextChunk();
      this.inflate!.push(chunk ?? new Uint8Array(0), this.done >= this.object.size);
    } catch (error) {
      this.inflate!.abort(error as Error);
    }
  }

  /** The next stored bytes, valid until the call after the next one. */
  private async nextChunk(): Promise<Uint8Array | undefined> {
    const read = this.reading ?? this.start();
    if (read === undefined) return undefined;
    const base = this.base();
    const length = await read;
    this.reading = undefined;
    this.crc32c = this.kernels.crc32c(base, length, this.crc32c);
    this.done += length;
    this.progress?.(this.done);
    this.half ^= 1;
    this.reading = this.start();
    this.reading?.catch(() => undefined);
    return new Uint8Array(this.kernels.memory.buffer, base, length);
  }

  private start(): Promise<number> | undefined {
    const length = Math.min(READ_BYTES, this.object.size - this.asked);
    if (length <= 0) return undefined;
    const offset = this.asked;
    this.asked += length;
    return this.object.readInto(new Uint8Array(this.kernels.memory.buffer, this.base(), length), offset);
  }

  private base(): number {
    return this.kernels.tables + TABLE_BYTES + this.half * READ_BYTES;
  }
}

/** A window over bytes that are in memory. */
export class MemoryWindow implements Ahead {
  offset = 0;
  bytes: Uint8Array;

  constructor(bytes: Uint8Array) {
    this.bytes = bytes;
  }

  async fill(n: number): Promise<boolean> {
    return this.bytes.length >= n;
  }

  advance(n: number): void {
    this.offset += n;
    this.bytes = this.bytes.subarray(n);
  }
}
