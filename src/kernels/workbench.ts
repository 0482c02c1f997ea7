/**
 * Workbench: a thread's own memory for kernels whose input lies elsewhere (in the heap, in a group's memory) and is copied in. Where
 * the bench is lent, what kernels made stays in it, one array behind the other, until it is given back: no array of a block's
 * size is made and collected, which costs as much as decoding it. Else it is copied out.
 *
 * ```
 * ┌ tables ┬ words 4 MiB: a dictionary ┬ input 8 MiB ┬ output 64 MiB ┐   touched only as far as it is used
 * ```
 * Contract: what does not fit is the caller's to do in plain TypeScript.
 *
 * @example
 * const bench = workbench();
 * bench.place(page);
 * if (bench.kernels.unpackHybrid(bench.input, page.length, 17, bench.output, 512, 0, 0)) return bench.takeInts(512);
 */
import { type Kernels, TABLE_BYTES } from "./kernels.ts";
import { createKernels } from "./load.ts";

export const MAX_WORDS = 1 << 20;
export const MAX_INPUT = 8 << 20;
const OUTPUT_BYTES = 64 << 20;
/** Sections begin on a line of the cache. */
const ALIGN = 64;

export class Workbench {
  readonly kernels: Kernels;
  /** Addresses of the dictionary, of the input last placed, and of the output to come. */
  readonly words: number;
  input: number;
  output: number;
  private readonly bytes: Uint8Array;
  private readonly top: number;
  private readonly bottom: number;
  private placed: Int32Array | undefined;
  /** Whom the bench is lent to. */
  private held: symbol | undefined;
  private keeping = false;

  constructor(implementation?: Kernels["implementation"]) {
    this.kernels = createKernels(2 * ALIGN + MAX_WORDS * 4 + MAX_INPUT + OUTPUT_BYTES, implementation);
    this.words = Math.ceil((this.kernels.tables + TABLE_BYTES) / ALIGN) * ALIGN;
    this.top = this.words + MAX_WORDS * 4;
    this.bottom = this.top + MAX_INPUT + ALIGN;
    this.input = this.top;
    this.output = this.bottom;
    this.bytes = new Uint8Array(this.kernels.memory.buffer);
  }

  /** Copies the input in. */
  place(bytes: Uint8Array): void {
    // V8 copies from or to shared memory byte by byte unless both lie alike: a fifth of the speed.
    this.input = this.top + (bytes.byteOffset & 7);
    this.bytes.set(bytes, this.input);
  }

  /** Room for input that the caller writes: `length` bytes, at most MAX_INPUT. */
  spareInput(length: number): Uint8Array {
    this.input = this.top;
    return this.bytes.subarray(this.top, this.top + length);
  }

  /** Output goes on at a whole word of 8: behind an odd number of integers it would not. */
  alignOutput(): void {
    this.output = Math.ceil(this.output / 8) * 8;
  }

  /** Room for `length` bytes of output that the caller writes, before they are taken. */
  spareOutput(length: number): Uint8Array {
    return this.bytes.subarray(this.output, this.output + length);
  }

  /** The next `count` bytes of the output, which begin and end at a whole word of 8; for those who hold the lease. */
  takeBytes(count: number): Uint8Array {
    if (!this.keeping) throw new Error("bytes stay in a bench that is lent only");
    this.alignOutput();
    const bytes = this.spareOutput(count);
    this.output += count;
    this.alignOutput();
    return bytes;
  }

  /** What is taken stays where it is until the bench is given back. */
  get stays(): boolean {
    return this.keeping;
  }

  /** Copies a dictionary in, unless it is there from the page before. */
  placeWords(words: Int32Array): void {
    if (this.placed === words) return;
    new Int32Array(this.kernels.memory.buffer, this.words, words.length).set(words);
    this.placed = words;
  }

  /** Bytes of output that there is room for. */
  get room(): number {
    return this.bottom + OUTPUT_BYTES - this.output;
  }

  /**
   * Runs `work`, of which what is taken stays in the bench until `release` is called, once nothing of it is read any more. While it is
   * lent already, what is taken is copied, and there is nothing to release.
   */
  lend<Result>(work: () => Result): { result: Result; release: (() => void) | undefined } {
    if (this.held !== undefined) return { result: work(), release: undefined };
    const lease = Symbol("lease");
    const release = (): void => {
      if (this.held !== lease) return;
      this.held = undefined;
      this.output = this.bottom;
    };
    this.held = lease;
    this.keeping = true;
    try {
      return { result: work(), release };
    } catch (error) {
      release();
      throw error;
    } finally {
      this.keeping = false;
    }
  }

  /** Integers at `output` or behind it, to be copied before anything else is done here. */
  intsAt(address: number, count: number): Int32Array {
    return new Int32Array(this.kernels.memory.buffer, address, count);
  }

  /** The next `count` integers of the output; those taken before lie right before them. */
  takeInts(count: number): Int32Array {
    const ints = this.intsAt(this.output, count);
    if (!this.keeping) return ints.slice();
    this.output += count * 4;
    return ints;
  }

  /** Room for `count` integers that the caller writes, where what is taken stays. */
  spareInts(count: number): Int32Array | undefined {
    return this.keeping && count <= this.room / 4 ? this.takeInts(count) : undefined;
  }

  /** The next `count` 64-bit integers, always copied. */
  takeLongs(count: number): BigInt64Array {
    return new BigInt64Array(this.bytes.slice(this.output, this.output + count * 8).buffer);
  }
}

let own: Workbench | undefined;

/** That of this thread; made when it is first asked for. */
export function workbench(): Workbench {
  return (own ??= new Workbench());
}
