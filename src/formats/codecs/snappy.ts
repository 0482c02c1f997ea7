/**
 * Snappy, the raw block format. Written by hand: hyparquet's decoder can be made to walk backwards for ever by a literal of
 * 2 GiB, and copies byte by byte; the native `snappy` package is no faster than this.
 *
 * Contract: gives exactly `size` bytes or throws an Error that says why; input may lie in shared memory.
 *
 * @example
 * const page = snappyDecompress(bytes, 1048576);
 */

/** A longer run is copied by the engine, which costs more than it saves below this. */
const LOOP_BYTES = 24;

export function snappyDecompress(input: Uint8Array, size: number): Uint8Array {
  let pos = 0;
  let told = 0;
  for (let shift = 1; ; shift *= 128) {
    const byte = input[pos++];
    if (byte === undefined || pos > 5) throw new Error("the Snappy block has no length");
    told += (byte & 127) * shift;
    if (byte < 128) break;
  }
  if (told !== size) throw new Error(`a Snappy block of ${told} bytes, expected ${size}`);
  // Three bytes make 64 at most.
  if (size > input.length * 64) throw new Error("the Snappy block is cut");
  const out = new Uint8Array(size);
  const end = input.length;
  let at = 0;
  while (pos < end) {
    const tag = input[pos++]!;
    if ((tag & 3) === 0) {
      let length = (tag >> 2) + 1;
      if (length > 60) {
        const bytes = length - 60;
        if (pos + bytes > end) throw new Error("the Snappy block is cut");
        length = 1;
        for (let i = 0, scale = 1; i < bytes; i++, scale *= 256) length += input[pos++]! * scale;
      }
      if (pos + length > end) throw new Error("the Snappy block is cut");
      if (at + length > size) throw new Error(`the Snappy block holds more than ${size} bytes`);
      if (length > LOOP_BYTES) out.set(input.subarray(pos, pos + length), at);
      else for (let i = 0; i < length; i++) out[at + i] = input[pos + i]!;
      pos += length;
      at += length;
      continue;
    }
    let length: number;
    let offset: number;
    if ((tag & 3) === 1) {
      if (pos + 1 > end) throw new Error("the Snappy block is cut");
      length = ((tag >> 2) & 7) + 4;
      offset = ((tag >> 5) << 8) | input[pos]!;
      pos += 1;
    } else {
      const bytes = (tag & 3) === 2 ? 2 : 4;
      if (pos + bytes > end) throw new Error("the Snappy block is cut");
      length = (tag >> 2) + 1;
      offset = input[pos]! | (input[pos + 1]! << 8);
      if (bytes === 4) offset += input[pos + 2]! * 65536 + input[pos + 3]! * 16777216;
      pos += bytes;
    }
    if (offset === 0 || offset > at) throw new Error(`a Snappy copy from ${offset} bytes before byte ${at}`);
    if (at + length > size) throw new Error(`the Snappy block holds more than ${size} bytes`);
    if (length > LOOP_BYTES && offset >= length) out.copyWithin(at, at - offset, at - offset + length);
    else for (let i = 0; i < length; i++) out[at + i] = out[at - offset + i]!;
    at += length;
  }
  if (at !== size) throw new Error(`the Snappy block ends after ${at} of ${size} bytes`);
  return out;
}
