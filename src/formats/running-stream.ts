/**
 * A running decoder of a compressed stream: compressed chunks are pushed in, decompressed bytes come out in order. What decoders of
 * all encodings share; each says how its next bytes are made.
 *
 * Contract: a stream that is cut, damaged or followed by other bytes is ATH_STREAM_CORRUPT with the compressed byte at which that was
 * seen; it never ends quietly. `need` is called when everything pushed so far is used up (so the pushed buffer may be reused) and a
 * reader waits; push exactly one chunk for each call.
 */
import { StreamCorrupt } from "./errors.ts";

/** Bytes may have become ready, the stream is over, it needs a chunk, it is at work. */
export type Progress = "more" | "end" | "hungry" | "busy";

export const DAMAGED = "the file is damaged or was not copied to its end: copy it again";

export abstract class RunningStream {
  protected readonly file: string;
  /** The last chunk was pushed. */
  protected last = false;
  /** What readers get once all bytes before it have come out. */
  protected failure: Error | undefined;
  private readonly encoding: string;
  private readonly need: () => void;
  private asked = false;
  private held: Uint8Array = new Uint8Array(0);
  private wake: (() => void) | undefined;
  /** Decompressed bytes handed out. */
  private position = 0;

  /** `encoding`: for messages. */
  constructor(encoding: string, file: string, need: () => void) {
    this.encoding = encoding;
    this.file = file;
    this.need = need;
  }

  /** The next compressed bytes; `last` with (or after) the final ones. `bytes` must stay as they are until `need`. */
  push(bytes: Uint8Array, last: boolean): void {
    this.asked = false;
    this.last = last;
    this.accept(bytes);
    this.signal();
  }

  /** Some of the next bytes, at least 1 and at most `target.length`; 0 at the end. */
  async readSome(target: Uint8Array): Promise<number> {
    if (this.held.length === 0 && !(await this.refill())) return 0;
    const n = Math.min(target.length, this.held.length);
    target.set(this.held.subarray(0, n));
    this.pass(n);
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
      this.pass(n);
      left -= n;
    }
  }

  /** Whoever pushes could not: readers get `error`. */
  abort(error: Error): void {
    this.failure ??= error;
    this.signal();
  }

  destroy(): void {
    this.abort(new Error("the stream was closed"));
  }

  /** Compressed bytes used so far. */
  protected abstract get compressed(): number;
  protected abstract accept(bytes: Uint8Array): void;
  /** Decompressed bytes that are ready; undefined: none. */
  protected abstract take(): Uint8Array | undefined;
  /** Goes on as far as it can at once; a fault goes into `failure`. */
  protected abstract advance(): Progress;

  /** Something has changed: a reader that waits looks again. */
  protected signal(): void {
    const wake = this.wake;
    this.wake = undefined;
    wake?.();
  }

  private async refill(): Promise<boolean> {
    for (;;) {
      const bytes = this.take();
      if (bytes !== undefined) {
        this.held = bytes;
        if (bytes.length > 0) return true;
        continue;
      }
      if (this.failure !== undefined) throw this.failure;
      const progress = this.advance();
      if (progress === "more") continue;
      if (progress === "end") return false;
      // The promise comes first: `need` may push at once.
      const woken = new Promise<void>((resolve) => (this.wake = resolve));
      if (progress === "hungry" && !this.asked) {
        this.asked = true;
        this.need();
      }
      await woken;
    }
  }

  private pass(bytes: number): void {
    this.held = this.held.subarray(bytes);
    this.position += bytes;
  }

  private tooShort(missing: number): Error {
    return new StreamCorrupt(
      `the ${this.encoding} stream ends at decompressed byte ${this.position}, ${missing} bytes before what the index says`,
      { file: this.file, byteOffset: this.compressed },
      "the shard has changed: run `athanor index` again",
    );
  }
}
