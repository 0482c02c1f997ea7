/**
 * Byte shuffle, as HDF5, Blosc and numcodecs have it: first the first byte of each value, then the second of each …; bytes that fill
 * no value stay at the end.
 *
 * @example
 * unshuffleBytes(planes, out, 4);
 */

/** `out`: as long as `planes`. */
export function unshuffleBytes(planes: Uint8Array, out: Uint8Array, size: number): void {
  const count = Math.floor(planes.length / size);
  if (size === 4 && out.byteOffset % 4 === 0) {
    const words = new Uint32Array(out.buffer, out.byteOffset, count);
    for (let i = 0; i < count; i++) {
      words[i] =
        planes[i]! | (planes[i + count]! << 8) | (planes[i + 2 * count]! << 16) | (planes[i + 3 * count]! << 24);
    }
  } else {
    for (let byte = 0; byte < size; byte++) {
      for (let i = 0, from = byte * count, at = byte; i < count; i++, at += size) out[at] = planes[from + i]!;
    }
  }
  out.set(planes.subarray(count * size), count * size);
}
