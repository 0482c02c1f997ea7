/**
 * A running decoder of one gzip or zlib stream: compressed chunks are pushed in, decompressed bytes come out in order.
 *
 * Contract: all gzip members are read (also with borders inside a record), zeros behind the last one are padding. A
 * stream that is cut, damaged or followed by other bytes is ATH_STREAM_CORRUPT with the compressed byte at which that was
 * seen; it never ends quietly. `need` is called when everything pushed so far is used up (so the pushed buffer may be
 * reused) and a reader waits; push exactly one chunk for each call. Bounded: one pushed chunk and about 1 MiB of output.
 *
 * @example
 * const stream = new InflateStream("gzip", file, async () => stream.push(await nextChunk(), atEnd));
 * await stream.skip(4096);
 * await stream.readInto(target);
 */
import { createGunzip, createInflate } from "node:zlib";
import type { Gunzip, Inflate } from "node:zlib";
import { ZstdStream } from "./codecs/zstd-stream.ts";
import { StreamCorrupt } from "./errors.ts";
import type { Encoding } from "./types.ts";

/** zlib names a fault only by the piece in which it lies, so pieces are small: 64 KiB takes about 0.3 ms. */
const PIECE = 64 * 1024;
/** CRC32 and size behind a gzip stream. */
const TRAILER = 8;
const REMEDY = "the file is damaged or was not copied to its end: copy it again";

/** A decoder that runs along a stream; `InflateStream` says what each does. */
export type RunningStream = Pick<InflateStream, "push" | "readSome" | "readInto" | "skip" | "abort" | "destroy">;

/** The decoder of an encoding that is not `plain`. */
export function openStream(encoding: Encoding, file: string, need: () => void): RunningStream {
  return encoding === "zstd" ? new ZstdStream(file, need) : new InflateStream(encoding, file, need);
}

export class InflateStream {
  private readonly file: string;
  private readonly need: () => void;
  private readonly zlib: Gunzip | Inflate;
  private readonly encoding: Encoding;
  private queue: Uint8Array[] = [];
  private piece: Uint8Array = new Uint8Array(0);
  /** Compressed bytes handed to zlib, with those of `piece`. */
  private written = 0;
  private writing = false;
  private asked = false;
  private last = false;
  private ended = false;
  private failure: Error | undefined;
  private held: Uint8Array = new Uint8Array(0);
  private wake: (() => void) | undefined;
  /** Decompressed bytes handed out. */
  private position = 0;

  constructor(encoding: Encoding, file: string, need: () => void) {
    if (encoding !== "gzip" && encoding !== "zlib") {
      throw new RangeError(`InflateStream takes gzip or zlib, got ${encoding}`);
    }
    this.file = file;
    this.need = need;
    this.encoding = encoding;
    const options = { chunkSize: 256 * 1024, highWaterMark: 1024 * 1024 };
    this.zlib = encoding === "gzip" ? createGunzip(options) : createInflate(options);
    this.zlib.on("readable", () => this.signal());
    this.zlib.on("end", () => this.end());
    this.zlib.on("error", (error: NodeJS.ErrnoException) => this.fail(error));
  }

  /** The next compressed bytes; `last` with (or after) the final ones. `bytes` must stay as they are until `need`. */
  push(bytes: Uint8Array, last: boolean): void {
    this.asked = false;
    this.last = last;
    if (this.ended) {
      this.checkTail(bytes, this.written);
      this.written += bytes.length;
    } else {
      // The trailer on its own: where its checksum is wrong, all bytes before it have come out.
      const body = last ? Math.max(0, bytes.length - TRAILER) : bytes.length;
      for (let at = 0; at < body; at += PIECE) this.queue.push(bytes.subarray(at, Math.min(body, at + PIECE)));
      if (body < bytes.length) this.queue.push(bytes.subarray(body));
      this.pump();
    }
    this.signal();
  }

  /** Some of the next bytes, at least 1 and at most `target.length`; 0 at the end. */
  async readSome(target: Uint8Array): Promise<number> {
    if (this.held.length === 0 && !(await this.refill())) return 0;
    const n = Math.min(target.length, this.held.length);
    target.set(this.held.subarray(0, n));
    this.held = this.held.subarray(n);
    this.position += n;
    return n;
  }

  /** Fills `target`; a stream that ends before that is an error. */
  async readInto(target: Uint8Array): Promise<void> {
    for (let at = 0; at < target.length;) {
      const n = await this.readSome(target.subarray(at));
      if (n === 0) throw this.tooShort(target.length - at);
      at += n;
    }
  }

  /** Passes over the next `bytes` decompressed bytes. */
  async skip(bytes: number): Promise<void> {
    if (bytes < 0) throw new RangeError(`a stream cannot go back by ${-bytes} bytes: open it again`);
    for (let left = bytes; left > 0;) {
      if (this.held.length === 0 && !(await this.refill())) throw this.tooShort(left);
      const n = Math.min(left, this.held.length);
      this.held = this.held.subarray(n);
      this.position += n;
      left -= n;
    }
  }

  /** Whoever pushes could not: readers get `error`. */
  abort(error: Error): void {
    this.queue = [];
    this.zlib.destroy();
    this.failure ??= error;
    this.signal();
  }

  destroy(): void {
    this.abort(new Error("the stream was closed"));
  }

  private async refill(): Promise<boolean> {
    for (;;) {
      const chunk = this.zlib.readableEnded ? null : (this.zlib.read() as Buffer | null);
      if (chunk !== null && chunk.length > 0) {
        this.held = chunk;
        return true;
      }
      if (this.failure !== undefined) throw this.failure;
      if (this.ended && this.last) return false;
      // The promise comes first: `need` may push at once.
      const woken = new Promise<void>((resolve) => (this.wake = resolve));
      if (!this.last && !this.asked && (this.ended || (!this.writing && this.queue.length === 0))) {
        this.asked = true;
        this.need();
      }
      await woken;
    }
  }

  private pump(): void {
    if (this.writing || this.failure !== undefined) return;
    const piece = this.queue.shift();
    if (piece === undefined) {
      if (this.last && !this.zlib.writableEnded) this.zlib.end();
      return;
    }
    this.writing = true;
    this.piece = piece;
    this.written += piece.length;
    this.zlib.write(piece, () => {
      this.writing = false;
      this.pump();
      this.signal();
    });
  }

  // The stream is complete: whatever zlib did not take must be zeros.
  private end(): void {
    this.ended = true;
    const unused = this.written - this.zlib.bytesWritten;
    this.checkTail(this.piece.subarray(this.piece.length - unused), this.zlib.bytesWritten);
    for (const piece of this.queue) {
      this.checkTail(piece, this.written);
      this.written += piece.length;
    }
    this.queue = [];
    this.signal();
  }

  private checkTail(bytes: Uint8Array, offset: number): void {
    const at = bytes.findIndex((byte) => byte !== 0);
    if (at < 0) return;
    this.failure ??= new StreamCorrupt(
      `bytes behind the end of the ${this.encoding} stream, at compressed byte ${offset + at}: found 0x${bytes[at]!.toString(16).padStart(2, "0")}, expected the end of the file (or zeros)`,
      { file: this.file, byteOffset: offset + at },
      REMEDY,
    );
  }

  private fail(error: NodeJS.ErrnoException): void {
    const cut = error.code === "Z_BUF_ERROR";
    const offset = cut ? this.written : this.written - this.piece.length;
    const what = cut
      ? `the ${this.encoding} stream is cut: the file ends at compressed byte ${offset}, inside the stream`
      : `the ${this.encoding} stream is damaged within the ${this.piece.length} bytes from compressed byte ${offset}: ${error.message}`;
    this.failure ??= new StreamCorrupt(what, { file: this.file, byteOffset: offset }, REMEDY, error);
    this.signal();
  }

  private tooShort(missing: number): Error {
    return new StreamCorrupt(
      `the ${this.encoding} stream ends at decompressed byte ${this.position}, ${missing} bytes before what the index says`,
      { file: this.file, byteOffset: this.written },
      "the shard has changed: run `athanor index` again",
    );
  }

  private signal(): void {
    const wake = this.wake;
    this.wake = undefined;
    wake?.();
  }
}
