/**
 * A file from its first byte to its last, once, with the CRC32C of what was read.
 *
 * @example
 * const reader = new SequentialReader(object, kernels, 1 << 20);
 * for (let bytes = await reader.read(); bytes !== undefined; bytes = await reader.read()) use(bytes);
 * reader.crc32c;
 */
import { TABLE_BYTES, type Kernels } from "../kernels/kernels.ts";
import { createKernels } from "../kernels/load.ts";
import type { ReadableObject } from "../storage/types.ts";
import { RecordTruncated } from "./errors.ts";

/** A private memory each: kept for later readers, since it reserves 4 GiB of addresses. */
const idle: Kernels[] = [];
const MAX_IDLE = 4;

export class SequentialReader {
  /** Bytes read, and their checksum. */
  offset = 0;
  crc32c = 0;
  private readonly object: ReadableObject;
  private readonly kernels: Kernels;
  private readonly at: number;
  private readonly chunk: number;
  private reading = false;

  /** Of `kernels` it takes the implementation. */
  constructor(object: ReadableObject, { implementation }: Kernels, chunk: number) {
    this.object = object;
    this.chunk = chunk;
    const known = idle.findIndex((one) => one.implementation === implementation);
    this.kernels = known < 0 ? createKernels(chunk, implementation) : idle.splice(known, 1)[0]!;
    this.at = Math.ceil((this.kernels.tables + TABLE_BYTES) / 64) * 64;
    const missing = this.at + chunk - this.kernels.memory.buffer.byteLength;
    if (missing > 0) this.kernels.memory.grow(Math.ceil(missing / 65536));
  }

  /** The next bytes, in shared memory, valid until the next call; undefined at the end. */
  async read(): Promise<Uint8Array | undefined> {
    const want = Math.min(this.chunk, this.object.size - this.offset);
    if (want === 0) return undefined;
    const bytes = new Uint8Array(this.kernels.memory.buffer, this.at, want);
    this.reading = true;
    const n = await this.object.readInto(bytes, this.offset);
    this.reading = false;
    if (n !== want) {
      throw new RecordTruncated(
        `the file is shorter than its size: found ${n} bytes, expected ${want}`,
        { file: this.object.uri, byteOffset: this.offset + n },
        "it was changed while it was read: read it again",
      );
    }
    this.crc32c = this.kernels.crc32c(this.at, n, this.crc32c);
    this.offset += n;
    return bytes;
  }

  /** Nothing is read any more. */
  close(): void {
    // A read that failed may still write into the memory: then it is not used again.
    if (!this.reading && idle.length < MAX_IDLE) idle.push(this.kernels);
  }
}
