/**
 * The bytes of a JSON file, decompressed, in pieces.
 *
 * @example
 * const source = new PlainSource(object, kernels);
 * for (let bytes = await source.read(); bytes !== undefined; bytes = await source.read()) …
 */
import type { Kernels } from "../../kernels/kernels.ts";
import type { ReadableObject } from "../../storage/types.ts";
import { SequentialReader } from "../sequential.ts";
import type { RunningStream } from "../running-stream.ts";
import { openStream } from "../stream.ts";
import { BLOCK_BYTES, type Encoding, type Segment } from "../types.ts";
import type { Chunks } from "./window.ts";

const READ_BYTES = 2 * 1024 * 1024;
/** Compressed bytes are read in smaller pieces: they grow when they are decompressed. */
const COMPRESSED_BYTES = 512 * 1024;
const OUTPUT_BYTES = 256 * 1024;

export interface Source extends Chunks {
  /** Stored bytes read so far. */
  readonly stored: number;
  readonly crc32c: number;
  close(): void;
}

/** Where the records of a block lie. */
export interface Place {
  segments: Segment[];
  /** As of `ScannedBlock`. */
  origin?: number;
}

/** How the (decompressed) bytes are cut into blocks. */
export interface Grid {
  /** Records that begin before it belong to the block of the one that begins at `position`. Undefined: not known before more is read. */
  borderBehind(position: number): number | undefined;
  /** What is to be read for the records in [begin, end). */
  place(begin: number, end: number): Place;
}

/** Every 4 MiB, and nothing but the records themselves. */
export const BYTE_GRID: Grid = {
  borderBehind: (position) => (Math.floor(position / BLOCK_BYTES) + 1) * BLOCK_BYTES,
  place: (begin, end) => ({ segments: [{ file: 0, offset: begin, length: end - begin }] }),
};

export function openSource(object: ReadableObject, encoding: Encoding, kernels: Kernels): Source {
  return encoding === "plain" ? new PlainSource(object, kernels) : new StreamSource(object, encoding, kernels);
}

class PlainSource implements Source {
  private readonly reader: SequentialReader;

  constructor(object: ReadableObject, kernels: Kernels) {
    this.reader = new SequentialReader(object, kernels, READ_BYTES);
  }

  get stored(): number {
    return this.reader.offset;
  }

  get crc32c(): number {
    return this.reader.crc32c;
  }

  read(): Promise<Uint8Array | undefined> {
    return this.reader.read();
  }

  close(): void {
    this.reader.close();
  }
}

class StreamSource implements Source {
  private readonly reader: SequentialReader;
  private readonly stream: RunningStream;
  private readonly size: number;
  private readonly output = new Uint8Array(OUTPUT_BYTES);

  constructor(object: ReadableObject, encoding: Encoding, kernels: Kernels) {
    this.reader = new SequentialReader(object, kernels, COMPRESSED_BYTES);
    this.size = object.size;
    this.stream = openStream(encoding, object.uri, () => void this.feed());
  }

  get stored(): number {
    return this.reader.offset;
  }

  get crc32c(): number {
    return this.reader.crc32c;
  }

  async read(): Promise<Uint8Array | undefined> {
    const n = await this.stream.readSome(this.output);
    return n === 0 ? undefined : this.output.subarray(0, n);
  }

  close(): void {
    this.stream.destroy();
    this.reader.close();
  }

  private async feed(): Promise<void> {
    try {
      const bytes = await this.reader.read();
      // Decoders take no shared memory.
      this.stream.push(bytes?.slice() ?? new Uint8Array(0), this.reader.offset >= this.size);
    } catch (error) {
      this.stream.abort(error as Error);
    }
  }
}
