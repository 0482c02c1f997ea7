/**
 * A running decoder of Zstandard: compressed chunks are pushed in, decompressed bytes come out in order, as of `InflateStream`
 * (stream.ts), whose contract it keeps: all frames, skippable ones passed over, checksums compared; a stream that is cut, damaged or followed
 * by other bytes is ATH_STREAM_CORRUPT with the compressed byte at which that was seen.
 *
 * Decoded by fzstd, a block (128 KiB at most) at a time, in about 90 MB/s: neither node:zlib of Node 20 nor @bokuweb/zstd-wasm nor
 * @toondepauw/node-zstd has a running decoder. fzstd moves its window once a block: windows of 64 MiB and more (`--long`) are slow.
 *
 * @example
 * const stream = new ZstdStream(file, async () => stream.push(await nextChunk(), atEnd));
 * await stream.readInto(target);
 */
import { Decompress } from "fzstd";
import { StreamCorrupt, Unsupported } from "../errors.ts";
import { Xxh64 } from "./xxh64.ts";
import { headerAt, isSkippable, MAX_WINDOW_BYTES, ZSTD_MAGIC } from "./zstd-frame.ts";

const REMEDY = "the file is damaged or was not copied to its end: copy it again";

interface Frame {
  decoder: Decompress;
  /** Undefined: the frame has no checksum. */
  hash: Xxh64 | undefined;
  /** Bytes of the frame's header, which go to the decoder with the first block; 0 behind that. */
  header: number;
}

export class ZstdStream {
  private readonly file: string;
  private readonly need: () => void;
  private input: Buffer = Buffer.alloc(0);
  private at = 0;
  /** Compressed bytes before `input`. */
  private before: number;
  private last = false;
  private asked = false;
  private frame: Frame | undefined;
  /** Bytes of a skippable frame that are still to come. */
  private skipping = 0;
  private output: Uint8Array[] = [];
  private held: Uint8Array = new Uint8Array(0);
  private failure: Error | undefined;
  private wake: (() => void) | undefined;
  private position = 0;

  /** `before`: compressed bytes of the file in front of those that are pushed. */
  constructor(file: string, need: () => void, before = 0) {
    this.file = file;
    this.need = need;
    this.before = before;
  }

  push(bytes: Uint8Array, last: boolean): void {
    this.asked = false;
    this.last = last;
    this.before += this.at;
    this.input = Buffer.concat([this.input.subarray(this.at), bytes]);
    this.at = 0;
    this.signal();
  }

  async readSome(target: Uint8Array): Promise<number> {
    if (this.held.length === 0 && !(await this.refill())) return 0;
    const n = Math.min(target.length, this.held.length);
    target.set(this.held.subarray(0, n));
    this.held = this.held.subarray(n);
    this.position += n;
    return n;
  }

  async readInto(target: Uint8Array): Promise<void> {
    for (let at = 0; at < target.length;) {
      const n = await this.readSome(target.subarray(at));
      if (n === 0) throw this.tooShort(target.length - at);
      at += n;
    }
  }

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

  abort(error: Error): void {
    this.failure ??= error;
    this.signal();
  }

  destroy(): void {
    this.input = Buffer.alloc(0);
    this.at = 0;
    this.output = [];
    this.frame = undefined;
    this.abort(new Error("the stream was closed"));
  }

  private async refill(): Promise<boolean> {
    for (;;) {
      const next = this.output.shift();
      if (next !== undefined) {
        this.held = next;
        if (next.length > 0) return true;
        continue;
      }
      if (this.failure !== undefined) throw this.failure;
      try {
        if (this.step()) continue;
      } catch (error) {
        // What the block gave before it was found bad still comes out.
        this.failure = error as Error;
        continue;
      }
      if (this.last) {
        if (this.frame === undefined && this.skipping === 0 && this.at === this.input.length) return false;
        this.failure = this.corrupt(
          "the Zstandard stream is cut: the file ends inside a frame",
          this.before + this.input.length,
        );
        continue;
      }
      // The promise comes first: `need` may push at once.
      const woken = new Promise<void>((resolve) => (this.wake = resolve));
      if (!this.asked) {
        this.asked = true;
        this.need();
      }
      await woken;
    }
  }

  /** Takes the next piece of the input; false: it needs more. */
  private step(): boolean {
    if (this.skipping > 0) {
      const n = Math.min(this.skipping, this.input.length - this.at);
      this.at += n;
      this.skipping -= n;
      return this.skipping === 0;
    }
    return this.frame === undefined ? this.begin() : this.block(this.frame);
  }

  private begin(): boolean {
    const { input, at } = this;
    const left = input.length - at;
    if (left === 0 || (left < 4 && !this.last)) return false;
    const magic = left < 4 ? 0 : input.readUInt32LE(at);
    if (isSkippable(magic)) {
      if (left < 8) return false;
      this.skipping = input.readUInt32LE(at + 4);
      this.at += 8;
      return true;
    }
    if (magic !== ZSTD_MAGIC) {
      throw this.corrupt(
        `no Zstandard frame: found 0x${input[at]!.toString(16).padStart(2, "0")}, expected a frame or the end`,
      );
    }
    const about = headerAt(input, at);
    if (about === undefined) return false;
    const { bytes: header, window, dictionary, checksum } = about;
    if (window > MAX_WINDOW_BYTES) {
      throw this.unsupported(
        `a window of ${window} bytes, at most ${MAX_WINDOW_BYTES} can be read`,
        "compress it with --long=27 or less",
      );
    }
    if (dictionary) throw this.unsupported("it was compressed with a dictionary", "compress it without");
    const hash = checksum ? new Xxh64() : undefined;
    const decoder = new Decompress((chunk) => {
      hash?.update(chunk);
      this.output.push(chunk);
    });
    this.frame = { decoder, hash, header };
    return true;
  }

  private block(frame: Frame): boolean {
    const { input, at } = this;
    const from = at + frame.header;
    if (input.length < from + 3) return false;
    const header = input.readUIntLE(from, 3);
    const type = (header >> 1) & 3;
    const size = header >> 3;
    if (type === 3 || size > 128 * 1024) throw this.corrupt("a block with a damaged header", this.before + from);
    const last = (header & 1) === 1;
    const end = from + 3 + (type === 1 ? 1 : size) + (last && frame.hash !== undefined ? 4 : 0);
    if (input.length < end) return false;
    try {
      frame.decoder.push(input.subarray(at, end), last);
    } catch (error) {
      throw this.corrupt("a damaged block", this.before + from, error);
    }
    this.at = end;
    frame.header = 0;
    if (!last) return true;
    if (frame.hash !== undefined) {
      const stored = input.readUInt32LE(end - 4);
      const found = frame.hash.low32();
      if (stored !== found) {
        throw this.corrupt(`content checksum wrong: found ${hex(found)}, stored ${hex(stored)}`, this.before + end - 4);
      }
    }
    this.frame = undefined;
    return true;
  }

  private corrupt(what: string, offset = this.before + this.at, cause?: unknown): Error {
    const message = `${what}, at compressed byte ${offset}`;
    return new StreamCorrupt(message, { file: this.file, byteOffset: offset }, REMEDY, cause);
  }

  private unsupported(what: string, remedy: string): Error {
    return new Unsupported(`Zstandard: ${what}`, { file: this.file, byteOffset: this.before + this.at }, remedy);
  }

  private tooShort(missing: number): Error {
    return new StreamCorrupt(
      `the Zstandard stream ends at decompressed byte ${this.position}, ${missing} bytes before what the index says`,
      { file: this.file, byteOffset: this.before + this.at },
      "the shard has changed: run `athanor index` again",
    );
  }

  private signal(): void {
    const wake = this.wake;
    this.wake = undefined;
    wake?.();
  }
}

function hex(value: number): string {
  return `0x${value.toString(16).padStart(8, "0")}`;
}
