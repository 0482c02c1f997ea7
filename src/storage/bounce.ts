/**
 * Bounce buffers: shared memory that an I/O thread reads into, for bytes that are copied on to memory of one thread.
 *
 * Contract: used again and never left to the collector, which does not see the weight of shared memory: a thread that
 * was sent one keeps it until its own small heap is collected, after hundreds of reads. Sizes are powers of two, so as
 * many are kept as were in use at a time. One whose read failed is not given back: nobody knows who still writes it.
 *
 * @example
 * const bounce = takeBounce(length);
 * await storage.readShared(path, version, bounce, 0, offset, length);
 * target.set(new Uint8Array(bounce, 0, length));
 * returnBounce(bounce);
 */

/** The largest one: longer reads go in pieces of so many bytes. */
export const BOUNCE_BYTES = 8 * 1024 * 1024;
const LEAST = 4096;

/** By size. */
const idle = new Map<number, SharedArrayBuffer[]>();

/** At least `bytes`, at most {@link BOUNCE_BYTES}; what it holds is of another read. */
export function takeBounce(bytes: number): SharedArrayBuffer {
  const size = Math.min(Math.max(LEAST, 2 ** Math.ceil(Math.log2(Math.max(bytes, 1)))), BOUNCE_BYTES);
  return idle.get(size)?.pop() ?? new SharedArrayBuffer(size);
}

export function returnBounce(bounce: SharedArrayBuffer): void {
  const same = idle.get(bounce.byteLength);
  if (same === undefined) idle.set(bounce.byteLength, [bounce]);
  else same.push(bounce);
}
