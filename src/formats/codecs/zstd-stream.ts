/**
 * A running decoder of Zstandard (`RunningStream`): all frames, skippable ones passed over, checksums compared.
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
import { DAMAGED, RunningStream, type Progress } from "../running-stream.ts";
import { Xxh64 } from "./xxh64.ts";
import { headerAt, isSkippable, MAX_WINDOW_BYTES, ZSTD_MAGIC } from "./zstd-frame.ts";

interface Frame {
  decoder: Decompress;
  /** Undefined: the frame has no checksum. */
  hash: Xxh64 | undefined;
  /** Bytes of the frame's header, which go to the decoder with the first block; 0 behind that. */
  header: number;
}

export class ZstdStream extends RunningStream {
  private input: Buffer = Buffer.alloc(0);
  private at = 0;
  /** Compressed bytes before `input`. */
  private before: number;
  private frame: Frame | undefined;
  /** Bytes of a skippable frame that are still to come. */
  private skipping = 0;
  private output: Uint8Array[] = [];

  /** `before`: compressed bytes of the file in front of those that are pushed. */
  constructor(file: string, need: () => void, before = 0) {
    super("Zstandard", file, need);
    this.before = before;
  }

  override destroy(): void {
    this.input = Buffer.alloc(0);
    this.at = 0;
    this.output = [];
    this.frame = undefined;
    super.destroy();
  }

  protected get compressed(): number {
    return this.before + this.at;
  }

  protected accept(bytes: Uint8Array): void {
    this.before += this.at;
    this.input = Buffer.concat([this.input.subarray(this.at), bytes]);
    this.at = 0;
  }

  protected take(): Uint8Array | undefined {
    return this.output.shift();
  }

  protected advance(): Progress {
    try {
      if (this.step()) return "more";
    } catch (error) {
      // What the block gave before it was found bad still comes out.
      this.failure = error as Error;
      return "more";
    }
    if (!this.last) return "hungry";
    if (this.frame === undefined && this.skipping === 0 && this.at === this.input.length) return "end";
    this.failure = this.corrupt(
      "the Zstandard stream is cut: the file ends inside a frame",
      this.before + this.input.length,
    );
    return "more";
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
    return new StreamCorrupt(message, { file: this.file, byteOffset: offset }, DAMAGED, cause);
  }

  private unsupported(what: string, remedy: string): Error {
    return new Unsupported(`Zstandard: ${what}`, { file: this.file, byteOffset: this.before + this.at }, remedy);
  }
}

function hex(value: number): string {
  return `0x${value.toString(16).padStart(8, "0")}`;
}
