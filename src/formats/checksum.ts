/**
 * CRC32C of a file that is read in pieces, by the kernels, which read from their own memory: some 5 GB/s against 0.5 in
 * JavaScript.
 *
 * @example
 * const reader = new SummedReader(object, options.kernels);
 * for await (const bytes of reader.pieces(0, object.size)) look(bytes);
 * reader.crc32c;
 */
import { TABLE_BYTES, type Kernels } from "../kernels/kernels.ts";
import { createKernels } from "../kernels/load.ts";
import type { ReadableObject } from "../storage/types.ts";

/** A multiple of 8: a piece holds whole numbers. */
const PIECE = 4 * 1024 * 1024;

/** Memories are kept: each reserves 4 GiB of addresses. */
const idle: Kernels[] = [];

export class SummedReader {
  crc32c = 0;
  private readonly object: ReadableObject;
  private readonly kernels: Kernels;

  constructor(object: ReadableObject, { implementation }: Kernels) {
    this.object = object;
    const at = idle.findIndex((kernels) => kernels.implementation === implementation);
    this.kernels = at < 0 ? createKernels(PIECE, implementation) : idle.splice(at, 1)[0]!;
  }

  /** Bytes [from, to), to be read in rising order; each piece is valid until the next one is asked for. */
  async *pieces(from: number, to: number): AsyncGenerator<Uint8Array> {
    const { kernels, object } = this;
    const buffer = kernels.tables + TABLE_BYTES;
    for (let at = from; at < to; at += PIECE) {
      const bytes = new Uint8Array(kernels.memory.buffer, buffer, Math.min(PIECE, to - at));
      await object.readInto(bytes, at);
      this.crc32c = kernels.crc32c(buffer, bytes.length, this.crc32c);
      yield bytes;
    }
  }

  /** Nothing reads any more. */
  close(): void {
    idle.push(this.kernels);
  }
}
