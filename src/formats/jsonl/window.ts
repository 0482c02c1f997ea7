/**
 * Window: the part of a stream of bytes that is being looked at, contiguous in memory, growing at its end.
 *
 * Contract: positions count bytes of the stream. What lies before `from` may be given up by `drop`. An error of the source ends
 * the stream and is kept in `failure`: what was read before it is still good.
 *
 * @example
 * const window = new Window(source);
 * while (window.to < 10 && (await window.fill())) {}
 * window.bytes.subarray(window.index(0), window.index(10));
 */

/** Gives a stream piece by piece; a piece is valid until the next call. Undefined: the end. */
export interface Chunks {
  read(): Promise<Uint8Array | undefined>;
}

const FIRST_BYTES = 64 * 1024;

export class Window {
  /** The window is [index(from), index(to)) of it. Replaced by `fill`. */
  bytes: Buffer = Buffer.alloc(0);
  /** Stream positions. */
  from = 0;
  to = 0;
  ended = false;
  failure: unknown;
  private readonly chunks: Chunks;
  private base = 0;

  constructor(chunks: Chunks) {
    this.chunks = chunks;
  }

  /** Index in `bytes` of a stream position. */
  index(position: number): number {
    return position - this.base;
  }

  /** Reads some more; false: there is no more. */
  async fill(): Promise<boolean> {
    if (this.ended) return false;
    let chunk: Uint8Array | undefined;
    try {
      chunk = await this.chunks.read();
    } catch (error) {
      this.failure = error;
    }
    if (chunk === undefined) {
      this.ended = true;
      return false;
    }
    const kept = this.to - this.from;
    if (this.index(this.to) + chunk.length > this.bytes.length) {
      const fits = kept + chunk.length <= this.bytes.length;
      // Bytes of the window are never a slice of a pool that others share.
      const next = fits ? this.bytes : Buffer.allocUnsafeSlow(Math.max(FIRST_BYTES, kept * 2, kept + chunk.length));
      this.bytes.copy(next, 0, this.index(this.from), this.index(this.to));
      this.bytes = next;
      this.base = this.from;
    }
    this.bytes.set(chunk, this.index(this.to));
    this.to += chunk.length;
    return true;
  }

  /** Bytes before `position` are not asked for any more. */
  drop(position: number): void {
    this.from = position;
  }
}
