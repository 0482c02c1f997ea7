/**
 * Hybrid: Parquet's mix of run-length and bit-packed integers, which holds levels, dictionary indices and booleans, in plain
 * TypeScript: the twin of `assembly/hybrid.ts`, and the way for short runs and for what is damaged, of which it says why.
 *
 * @example
 * const levels = new Uint8Array(count);
 * readHybrid(bytes, 0, bytes.length, 1, levels);
 */

/** Values that are unpacked at once: their bits are counted in 31 bits. */
const STRETCH = 2 ** 20;

/** The value of all of `count` values, where one run holds them: what levels most often are. */
export function constantRun(
  bytes: Uint8Array,
  from: number,
  to: number,
  width: number,
  count: number,
): number | undefined {
  let header = 0;
  let at = from;
  for (let scale = 1; scale <= 2 ** 28; scale *= 128) {
    if (at >= to) return undefined;
    const byte = bytes[at++]!;
    header += (byte & 127) * scale;
    if (byte < 128) break;
  }
  if (width > 8 || header % 2 === 1 || header / 2 < count || at >= to) return undefined;
  return bytes[at];
}

/** Behind the header that was read last. */
let behind = 0;

/** The header of a run; -1: the bytes end before it does. */
function runHeader(bytes: Uint8Array, from: number, to: number): number {
  let header = 0;
  let at = from;
  for (let scale = 1; ; scale *= 128) {
    if (at >= to || scale > 2 ** 35) return -1;
    const byte = bytes[at++]!;
    header += (byte & 127) * scale;
    if (byte < 128) break;
  }
  behind = at;
  return header;
}

/**
 * Where the zeros lie among `count` levels of one bit: the records of a column of lists. Lists are runs of ones, which are passed over
 * and not written out. Throws as `readHybrid` does.
 */
export function zeroLevels(bytes: Uint8Array, from: number, to: number, count: number): Uint32Array {
  let found = new Uint32Array(1024);
  let zeros = 0;
  const room = (more: number): void => {
    if (zeros + more <= found.length) return;
    const grown = new Uint32Array(Math.max(zeros + more, found.length * 2));
    grown.set(found);
    found = grown;
  };
  let at = from;
  for (let done = 0; done < count;) {
    const header = runHeader(bytes, at, to);
    if (header < 0) throw new Error(`runs end after ${done} of ${count} values`);
    at = behind;
    const run = Math.floor(header / 2);
    if (header % 2 === 0) {
      if (at >= to) throw new Error(`runs end after ${done} of ${count} values`);
      const level = bytes[at++]!;
      if (level > 1 && run > 0) throw new Error(`a level of ${level}, expected 1 at most`);
      const stop = Math.min(count, done + run);
      if (level === 0) {
        room(stop - done);
        for (let i = done; i < stop; i++) found[zeros++] = i;
      }
      done = stop;
      continue;
    }
    const stop = Math.min(count, done + run * 8);
    // A writer may leave out the padding of the last group.
    if (at + Math.ceil((stop - done) / 8) > to) throw new Error(`runs end after ${done} of ${count} values`);
    for (let byte = at; done < stop; byte++, done += 8) {
      let bits = ~bytes[byte]! & (done + 8 <= stop ? 255 : 2 ** (stop - done) - 1);
      room(8);
      for (; bits !== 0; bits &= bits - 1) found[zeros++] = done + 31 - Math.clz32(bits & -bits);
    }
    done = stop;
    at += run;
  }
  return found.slice(0, zeros);
}

/** Fills `out`; returns a number that no value passes, of no more bits than the largest has. Throws an Error when the bytes end before. Widths to 32. */
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
    const header = runHeader(bytes, at, to);
    if (header < 0) throw new Error(`runs end after ${done} of ${count} values`);
    at = behind;
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
    for (let byte = at; done < stop; byte += (STRETCH / 8) * width) {
      const next = Math.min(stop, done + STRETCH);
      const top = unpack(bytes, view, byte, width, out, done, next);
      if (top > largest) largest = top;
      done = next;
    }
    at += run * width;
  }
  return largest;
}

/**
 * Unpacks values [from, to) of `out` from little-endian bit fields at byte `at`, which are all there. Returns a number that none of
 * them passes, of no more bits than the largest has.
 */
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
  let index = from;
  // All bits that are set in any: one `or` a value, no branch.
  let any = 0;
  if (out instanceof Int32Array) {
    const whole = (safe - from) & ~7;
    if (whole > 0) any = unpackEights(view, at, width, mask, out, from, from + whole);
    index += Math.max(0, whole);
  }
  for (let bit = (index - from) * width; index < safe; index++) {
    const value = (view.getUint32(at + (bit >>> 3), true) >>> (bit & 7)) & mask;
    out[index] = value;
    any |= value;
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
    any |= value;
  }
  return any >>> 0;
}

/** Eight values end on a byte: with their places known ahead it is 1.8 times as fast as one by one. Widths to 25. */
function unpackEights(
  view: DataView,
  at: number,
  width: number,
  mask: number,
  out: Int32Array,
  from: number,
  to: number,
): number {
  const [b1, b2, b3, b4, b5, b6, b7] = [width, 2 * width, 3 * width, 4 * width, 5 * width, 6 * width, 7 * width];
  const [s1, s2, s3, s4, s5, s6, s7] = [b1 & 7, b2 & 7, b3 & 7, b4 & 7, b5 & 7, b6 & 7, b7 & 7];
  const [o1, o2, o3, o4, o5, o6, o7] = [b1 >> 3, b2 >> 3, b3 >> 3, b4 >> 3, b5 >> 3, b6 >> 3, b7 >> 3];
  let any = 0;
  for (let i = from, byte = at; i < to; i += 8, byte += width) {
    const v0 = view.getInt32(byte, true) & mask;
    const v1 = (view.getInt32(byte + o1, true) >>> s1) & mask;
    const v2 = (view.getInt32(byte + o2, true) >>> s2) & mask;
    const v3 = (view.getInt32(byte + o3, true) >>> s3) & mask;
    const v4 = (view.getInt32(byte + o4, true) >>> s4) & mask;
    const v5 = (view.getInt32(byte + o5, true) >>> s5) & mask;
    const v6 = (view.getInt32(byte + o6, true) >>> s6) & mask;
    const v7 = (view.getInt32(byte + o7, true) >>> s7) & mask;
    out[i] = v0;
    out[i + 1] = v1;
    out[i + 2] = v2;
    out[i + 3] = v3;
    out[i + 4] = v4;
    out[i + 5] = v5;
    out[i + 6] = v6;
    out[i + 7] = v7;
    any |= v0 | v1 | v2 | v3 | v4 | v5 | v6 | v7;
  }
  return any;
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
