/**
 * A running decoder of one gzip or zlib stream (`RunningStream`): all gzip members are read (also with borders inside a record), zeros
 * behind the last one are padding. Bounded: one pushed chunk and about 1 MiB of output.
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
import { DAMAGED, RunningStream, type Progress } from "./running-stream.ts";
import type { Encoding } from "./types.ts";

/** zlib names a fault only by the piece in which it lies, so pieces are small: 64 KiB takes about 0.3 ms. */
const PIECE = 64 * 1024;
/** CRC32 and size behind a gzip stream. */
const TRAILER = 8;

/** The decoder of an encoding that is not `plain`. */
export function openStream(encoding: Encoding, file: string, need: () => void): RunningStream {
  return encoding === "zstd" ? new ZstdStream(file, need) : new InflateStream(encoding, file, need);
}

export class InflateStream extends RunningStream {
  private readonly zlib: Gunzip | Inflate;
  private readonly format: Encoding;
  private queue: Uint8Array[] = [];
  private piece: Uint8Array = new Uint8Array(0);
  /** Compressed bytes handed to zlib, with those of `piece`. */
  private written = 0;
  private writing = false;
  private ended = false;

  constructor(encoding: Encoding, file: string, need: () => void) {
    if (encoding !== "gzip" && encoding !== "zlib") {
      throw new RangeError(`InflateStream takes gzip or zlib, got ${encoding}`);
    }
    super(encoding, file, need);
    this.format = encoding;
    const options = { chunkSize: 256 * 1024, highWaterMark: 1024 * 1024 };
    this.zlib = encoding === "gzip" ? createGunzip(options) : createInflate(options);
    this.zlib.on("readable", () => this.signal());
    this.zlib.on("end", () => this.end());
    this.zlib.on("error", (error: NodeJS.ErrnoException) => this.fail(error));
  }

  override abort(error: Error): void {
    this.queue = [];
    this.zlib.destroy();
    super.abort(error);
  }

  protected get compressed(): number {
    return this.written;
  }

  protected accept(bytes: Uint8Array): void {
    if (this.ended) {
      this.checkTail(bytes, this.written);
      this.written += bytes.length;
    } else {
      // The trailer on its own: where its checksum is wrong, all bytes before it have come out.
      const body = this.last ? Math.max(0, bytes.length - TRAILER) : bytes.length;
      for (let at = 0; at < body; at += PIECE) this.queue.push(bytes.subarray(at, Math.min(body, at + PIECE)));
      if (body < bytes.length) this.queue.push(bytes.subarray(body));
      this.pump();
    }
  }

  protected take(): Uint8Array | undefined {
    const chunk = this.zlib.readableEnded ? null : (this.zlib.read() as Buffer | null);
    return chunk === null || chunk.length === 0 ? undefined : chunk;
  }

  protected advance(): Progress {
    if (this.ended && this.last) return "end";
    return !this.last && (this.ended || (!this.writing && this.queue.length === 0)) ? "hungry" : "busy";
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
      `bytes behind the end of the ${this.format} stream, at compressed byte ${offset + at}: found 0x${bytes[at]!.toString(16).padStart(2, "0")}, expected the end of the file (or zeros)`,
      { file: this.file, byteOffset: offset + at },
      DAMAGED,
    );
  }

  private fail(error: NodeJS.ErrnoException): void {
    const cut = error.code === "Z_BUF_ERROR";
    const offset = cut ? this.written : this.written - this.piece.length;
    const what = cut
      ? `the ${this.format} stream is cut: the file ends at compressed byte ${offset}, inside the stream`
      : `the ${this.format} stream is damaged within the ${this.piece.length} bytes from compressed byte ${offset}: ${error.message}`;
    this.failure ??= new StreamCorrupt(what, { file: this.file, byteOffset: offset }, DAMAGED, error);
    this.signal();
  }
}
