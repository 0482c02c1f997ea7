/**
 * LZ4 blocks. lz4-napi decodes them where it is installed; the decoder here is the fallback, written by hand because
 * those on npm (lz4js, hyparquet-compressors) take no known size and are not bounded on bad input.
 *
 * Contract: gives exactly `size` bytes or throws an Error that says why; input may lie in shared memory.
 * `hadoopLz4Decompress`: blocks framed by Hadoop's codec (big-endian sizes); files of older Arrow hold a bare block there.
 *
 * @example
 * await readyLz4();
 * const page = lz4Decompress(bytes, 1048576);
 */

let native: ((bytes: Buffer) => Uint8Array) | undefined;
let ready: Promise<void> | undefined;

/** Looks for the native decoder; once a thread. */
export function readyLz4(): Promise<void> {
  ready ??= (async () => {
    try {
      const { uncompressSync } = await import("lz4-napi");
      native = (bytes) => uncompressSync(bytes);
    } catch {
      // An optional dependency: not built for this platform.
    }
  })();
  return ready;
}

export function lz4Decompress(input: Uint8Array, size: number): Uint8Array {
  // A byte of length stands for 255 at most; the native decoder reserves what it is told.
  if (size > input.length * 256) throw new Error(`an LZ4 block of ${input.length} bytes cannot hold ${size}`);
  if (native === undefined || size < 1024) return lz4InJavaScript(input, size);
  const sized = Buffer.allocUnsafe(input.length + 4);
  sized.writeUInt32LE(size, 0);
  sized.set(input, 4);
  const out = native(sized);
  if (out.length !== size) throw new Error(`the LZ4 block ends after ${out.length} of ${size} bytes`);
  return out;
}

export function hadoopLz4Decompress(input: Uint8Array, size: number): Uint8Array {
  const view = new DataView(input.buffer, input.byteOffset, input.length);
  const out = new Uint8Array(size);
  let pos = 0;
  let at = 0;
  while (pos + 8 <= input.length) {
    const wide = view.getUint32(pos);
    const narrow = view.getUint32(pos + 4);
    if (wide > size - at || narrow > input.length - pos - 8) return lz4Decompress(input, size);
    try {
      out.set(lz4Decompress(input.subarray(pos + 8, pos + 8 + narrow), wide), at);
    } catch {
      return lz4Decompress(input, size);
    }
    pos += 8 + narrow;
    at += wide;
  }
  return pos === input.length && at === size ? out : lz4Decompress(input, size);
}

/** The fallback by itself. */
export function lz4InJavaScript(input: Uint8Array, size: number): Uint8Array {
  const out = new Uint8Array(size);
  const end = input.length;
  let pos = 0;
  let at = 0;
  const more = (): number => {
    let sum = 0;
    for (;;) {
      const byte = input[pos++];
      if (byte === undefined) throw new Error("the LZ4 block is cut");
      sum += byte;
      if (byte !== 255) return sum;
    }
  };
  while (pos < end) {
    const token = input[pos++]!;
    let literal = token >> 4;
    if (literal === 15) literal += more();
    if (pos + literal > end) throw new Error("the LZ4 block is cut");
    if (at + literal > size) throw new Error(`the LZ4 block holds more than ${size} bytes`);
    if (literal > 24) out.set(input.subarray(pos, pos + literal), at);
    else for (let i = 0; i < literal; i++) out[at + i] = input[pos + i]!;
    pos += literal;
    at += literal;
    // The last sequence has literals only.
    if (pos === end) break;
    if (pos + 2 > end) throw new Error("the LZ4 block is cut");
    const offset = input[pos]! | (input[pos + 1]! << 8);
    pos += 2;
    let length = (token & 15) + 4;
    if (length === 19) length += more();
    if (offset === 0 || offset > at) throw new Error(`an LZ4 copy from ${offset} bytes before byte ${at}`);
    if (at + length > size) throw new Error(`the LZ4 block holds more than ${size} bytes`);
    if (length > 24 && offset >= length) out.copyWithin(at, at - offset, at - offset + length);
    else for (let i = 0; i < length; i++) out[at + i] = out[at - offset + i]!;
    at += length;
  }
  if (at !== size) throw new Error(`the LZ4 block ends after ${at} of ${size} bytes`);
  return out;
}
