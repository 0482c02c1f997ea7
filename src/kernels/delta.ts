/**
 * Delta: DELTA_BINARY_PACKED integers of Parquet in plain TypeScript: the twin of `assembly/delta.ts`, and the way for short
 * pages, for integers beyond int32 and for what is damaged, of which it says why.
 *
 * ```
 * ┌ values a block │ miniblocks a block │ values │ first value ┐ then per block ┌ least delta │ widths │ miniblocks ┐
 * ```
 *
 * @example
 * const { values, next } = readDelta32(bytes, 0, count);
 */
import { unpack } from "./hybrid.ts";

export interface Delta<Values> {
  values: Values;
  /** Behind the last miniblock that holds a value. */
  next: number;
}

class Reader {
  readonly bytes: Uint8Array;
  readonly view: DataView;
  at: number;

  constructor(bytes: Uint8Array, at: number) {
    this.bytes = bytes;
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
    this.at = at;
  }

  varint(): bigint {
    // One byte is what nearly all are.
    const short = this.bytes[this.at];
    if (short !== undefined && short < 128) {
      this.at++;
      return BigInt(short);
    }
    let value = 0n;
    for (let shift = 0n; shift < 70n; shift += 7n) {
      const byte = this.bytes[this.at++];
      if (byte === undefined) throw new Error("delta-packed values are cut");
      if (shift === 63n && byte > 1) break;
      value |= BigInt(byte & 127) << shift;
      if (byte < 128) return value;
    }
    throw new Error("a delta-packed integer of more than 64 bits");
  }

  zigzag(): bigint {
    const value = this.varint();
    return (value >> 1n) ^ -(value & 1n);
  }
}

interface Head {
  perMini: number;
  minis: number;
  total: number;
  first: bigint;
}

function readHead(reader: Reader, count: number): Head {
  const perBlock = Number(reader.varint());
  const minis = Number(reader.varint());
  const total = Number(reader.varint());
  const first = reader.zigzag();
  const perMini = perBlock / minis;
  if (!(perBlock <= 2 ** 24 && minis > 0 && perMini % 8 === 0 && perMini > 0)) {
    throw new Error(`delta blocks of ${perBlock} values in ${minis} miniblocks`);
  }
  if (total !== count) throw new Error(`${total} delta-packed values, expected ${count}`);
  return { perMini, minis, total, first };
}

/** Calls `mini` for each miniblock that holds values: (byte, width, values, least delta). */
function eachMini(
  reader: Reader,
  { perMini, minis, total }: Head,
  mini: (at: number, width: number, values: number, least: bigint) => void,
): void {
  let left = total - 1;
  while (left > 0) {
    const least = reader.zigzag();
    const widths = reader.at;
    reader.at += minis;
    if (reader.at > reader.bytes.length) throw new Error("delta-packed values are cut");
    for (let m = 0; m < minis && left > 0; m++) {
      const width = reader.bytes[widths + m]!;
      if (width > 64) throw new Error(`deltas of ${width} bits`);
      const values = Math.min(left, perMini);
      const bytes = (perMini * width) / 8;
      if (reader.at + Math.ceil((values * width) / 8) > reader.bytes.length) {
        throw new Error("delta-packed values are cut");
      }
      mini(reader.at, width, values, least);
      // The padding of the last miniblock may be left out.
      reader.at = Math.min(reader.bytes.length, reader.at + bytes);
      left -= values;
    }
  }
}

/** Int32, modulo 2^32 as the format wants. */
export function readDelta32(bytes: Uint8Array, at: number, count: number): Delta<Int32Array> {
  const reader = new Reader(bytes, at);
  const head = readHead(reader, count);
  const values = new Int32Array(count);
  if (count === 0) return { values, next: reader.at };
  let value = Number(BigInt.asIntN(32, head.first));
  values[0] = value;
  let index = 1;
  eachMini(reader, head, (mini, width, length, wide) => {
    if (width > 32) throw new Error(`deltas of ${width} bits between 32-bit integers`);
    const least = Number(BigInt.asIntN(32, wide));
    const stop = index + length;
    unpack(bytes, reader.view, mini, width, values, index, stop);
    for (; index < stop; index++) {
      value = (value + least + values[index]!) | 0;
      values[index] = value;
    }
  });
  return { values, next: reader.at };
}

/** Int64: as i32 where all fit. */
export function readDelta64(bytes: Uint8Array, at: number, count: number): Delta<Int32Array | BigInt64Array> {
  const reader = new Reader(bytes, at);
  const head = readHead(reader, count);
  const narrow = new Int32Array(count);
  if (count === 0) return { values: narrow, next: reader.at };
  // Sums of f64 are exact below 2^53: with deltas of 32 bits that is so while each value fits i32.
  let value = Number(head.first);
  let fits = value === (value | 0);
  narrow[0] = value;
  let index = 1;
  if (fits) {
    eachMini(reader, head, (mini, width, length, wide) => {
      const least = Number(wide);
      if (width > 32 || !Number.isSafeInteger(least)) fits = false;
      if (!fits) return;
      const stop = index + length;
      unpack(bytes, reader.view, mini, width, narrow, index, stop);
      for (; index < stop; index++) {
        value += least + (narrow[index]! >>> 0);
        if (value !== (value | 0)) {
          fits = false;
          return;
        }
        narrow[index] = value;
      }
    });
  }
  return fits ? { values: narrow, next: reader.at } : wideDelta(bytes, at, count);
}

function wideDelta(bytes: Uint8Array, at: number, count: number): Delta<BigInt64Array> {
  const reader = new Reader(bytes, at);
  const head = readHead(reader, count);
  const values = new BigInt64Array(count);
  let value = BigInt.asIntN(64, head.first);
  values[0] = value;
  let index = 1;
  const low = new Int32Array(head.perMini);
  eachMini(reader, head, (mini, width, length, least) => {
    if (width <= 32) unpack(bytes, reader.view, mini, width, low, 0, length);
    for (let i = 0; i < length; i++) {
      const delta = width <= 32 ? BigInt(low[i]! >>> 0) : bits(bytes, mini, i * width, width);
      value = BigInt.asIntN(64, value + least + delta);
      values[index++] = value;
    }
  });
  return { values, next: reader.at };
}

function bits(bytes: Uint8Array, at: number, from: number, width: number): bigint {
  let value = 0n;
  const last = (from + width + 7) >> 3;
  for (let byte = last - 1; byte >= from >> 3; byte--) value = (value << 8n) | BigInt(bytes[at + byte] ?? 0);
  return (value >> BigInt(from & 7)) & ((1n << BigInt(width)) - 1n);
}
