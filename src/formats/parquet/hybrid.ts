/**
 * Hybrid: the format's mix of run-length and bit-packed integers, which holds levels, dictionary indices and booleans.
 *
 * @example
 * const levels = new Uint8Array(count);
 * readHybrid(bytes, 0, bytes.length, 1, levels);
 */

/** Fills `out`; returns the largest value. Throws an Error when the bytes end before. Widths to 32. */
export function readHybrid(
  bytes: Uint8Array,
  from: number,
  to: number,
  width: number,
  out: Uint8Array | Int32Array,
): number {
  const count = out.length;
  if (width > 32) throw new Error(`integers of ${width} bits`);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const valueBytes = (width + 7) >> 3;
  let at = from;
  let done = 0;
  let largest = 0;
  while (done < count) {
    let header = 0;
    for (let scale = 1; ; scale *= 128) {
      if (at >= to || scale > 2 ** 35) throw new Error(`runs end after ${done} of ${count} values`);
      const byte = bytes[at++]!;
      header += (byte & 127) * scale;
      if (byte < 128) break;
    }
    const run = Math.floor(header / 2);
    if (header % 2 === 0) {
      if (at + valueBytes > to) throw new Error(`runs end after ${done} of ${count} values`);
      let value = 0;
      for (let i = 0; i < valueBytes; i++) value |= bytes[at++]! << (8 * i);
      const stop = Math.min(count, done + run);
      out.fill(value, done, stop);
      if (stop > done && value >>> 0 > largest) largest = value >>> 0;
      done = stop;
      continue;
    }
    const stop = Math.min(count, done + run * 8);
    // A writer may leave out the padding of the last group.
    if (at + Math.ceil(((stop - done) * width) / 8) > to) throw new Error(`runs end after ${done} of ${count} values`);
    const top = unpack(bytes, view, at, width, out, done, stop);
    if (top > largest) largest = top;
    done = stop;
    at += run * width;
  }
  return largest;
}

/** Unpacks values [from, to) of `out` from little-endian bit fields at byte `at`, which are all there; returns the largest. */
export function unpack(
  bytes: Uint8Array,
  view: DataView,
  at: number,
  width: number,
  out: Uint8Array | Int32Array,
  from: number,
  to: number,
): number {
  if (width === 0) {
    out.fill(0, from, to);
    return 0;
  }
  if (width === 1) return unpackBits(bytes, at, out, from, to);
  const mask = width === 32 ? 0xffffffff : 2 ** width - 1;
  // Values whose four bytes from their first one on lie inside; those of more than 25 bits can need a fifth.
  const safe =
    width > 25 ? from : Math.min(to, from + Math.max(0, Math.floor(((view.byteLength - at - 4) * 8) / width)));
  let bit = 0;
  let index = from;
  let largest = 0;
  for (; index < safe; index++) {
    const value = (view.getUint32(at + (bit >>> 3), true) >>> (bit & 7)) & mask;
    out[index] = value;
    if (value > largest) largest = value;
    bit += width;
  }
  for (; index < to; index++) {
    const first = Math.floor(((index - from) * width) / 8);
    let shift = ((index - from) * width) % 8;
    let value = 0;
    for (let scale = 0, byte = at + first; scale < width + 7; scale += 8, byte++) {
      value += (bytes[byte] ?? 0) * 2 ** scale;
    }
    for (; shift > 0; shift--) value = Math.floor(value / 2);
    value = (value % 2 ** width) >>> 0;
    out[index] = value;
    if (value > largest) largest = value;
  }
  return largest;
}

function unpackBits(bytes: Uint8Array, at: number, out: Uint8Array | Int32Array, from: number, to: number): number {
  let any = 0;
  let index = from;
  for (let byte = at; index < to; byte++) {
    const value = bytes[byte]!;
    any |= value;
    if (index + 8 <= to) {
      out[index] = value & 1;
      out[index + 1] = (value >> 1) & 1;
      out[index + 2] = (value >> 2) & 1;
      out[index + 3] = (value >> 3) & 1;
      out[index + 4] = (value >> 4) & 1;
      out[index + 5] = (value >> 5) & 1;
      out[index + 6] = (value >> 6) & 1;
      out[index + 7] = value >> 7;
      index += 8;
    } else {
      for (let bit = 0; index < to; bit++) out[index++] = (value >> bit) & 1;
    }
  }
  return any === 0 ? 0 : 1;
}
