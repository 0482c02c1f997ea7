/**
 * Cells: the elements of a decoded chunk in C order: little-endian bytes of one size, or (`text`, `bytes`, `list`) ranges of
 * bytes.
 */
import { ChunkFault } from "./faults.ts";

export interface Cells {
  data: Uint8Array;
  /** Bytes of an element; 0: `begin` and `end` say which are its own. */
  size: number;
  begin?: Uint32Array;
  end?: Uint32Array;
}

/** `u32 count │ count × (u32 bytes │ bytes)`, little-endian. */
export function parseVlen(data: Uint8Array, count: number): Cells {
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  if (data.length < 4) throw new ChunkFault("truncated", `holds ${data.length} bytes, expected a count of 4`);
  const found = view.getUint32(0, true);
  if (found !== count) throw new ChunkFault("malformed", `holds ${found} elements, expected ${count}`);
  if (data.length < 4 + count * 4)
    throw new ChunkFault("truncated", `holds ${data.length} bytes, too few for ${count} elements`);
  const begin = new Uint32Array(count);
  const end = new Uint32Array(count);
  let at = 4;
  for (let i = 0; i < count; i++) {
    const length = at + 4 <= data.length ? view.getUint32(at, true) : Number.POSITIVE_INFINITY;
    at += 4;
    if (at + length > data.length)
      throw new ChunkFault("truncated", `ends at byte ${data.length}, inside element ${i}`);
    begin[i] = at;
    at += length;
    end[i] = at;
  }
  return { data, size: 0, begin, end };
}

/** Cells whose axis `i` is axis `order[i]` of the array, in the array's own order. `shape`: of the cells as they are. */
export function untranspose(cells: Cells, shape: readonly number[], order: readonly number[]): Cells {
  const axes = shape.length;
  // Of each axis of the array: its size, and how far apart neighbours lie in `cells`.
  const sizes: number[] = Array.from({ length: axes }, () => 0);
  const strides: number[] = Array.from({ length: axes }, () => 0);
  let stride = 1;
  for (let axis = axes - 1; axis >= 0; axis--) {
    sizes[order[axis]!] = shape[axis]!;
    strides[order[axis]!] = stride;
    stride *= shape[axis]!;
  }
  const source = new Uint32Array(stride);
  const at: number[] = Array.from({ length: axes }, () => 0);
  const last = axes - 1;
  const [inner, step] = [sizes[last]!, strides[last]!];
  for (let target = 0, from = 0; target < source.length;) {
    for (let k = 0, place = from; k < inner; k++, place += step) source[target++] = place;
    for (let axis = last - 1; axis >= 0; axis--) {
      from += strides[axis]!;
      if (++at[axis]! < sizes[axis]!) break;
      from -= strides[axis]! * sizes[axis]!;
      at[axis] = 0;
    }
  }
  const { data, size, begin, end } = cells;
  if (begin !== undefined && end !== undefined)
    return { data, size, begin: gathered(begin, source), end: gathered(end, source) };
  return { data: gatherBytes(data, size, source), size };
}

function gatherBytes(data: Uint8Array, size: number, source: Uint32Array): Uint8Array {
  const kinds = { 1: Uint8Array, 2: Uint16Array, 4: Uint32Array, 8: BigUint64Array } as const;
  const Kind = kinds[size as keyof typeof kinds];
  if (Kind === undefined) {
    const out = new Uint8Array(data.length);
    source.forEach((from, to) => out.set(data.subarray(from * size, (from + 1) * size), to * size));
    return out;
  }
  const { buffer, byteOffset } = aligned(data, size);
  const values = new (Kind as typeof Uint8Array)(buffer as ArrayBuffer, byteOffset, source.length);
  return new Uint8Array(gathered(values, source).buffer);
}

function gathered<Values extends Uint8Array | Uint32Array>(values: Values, source: Uint32Array): Values {
  const out = new (values.constructor as new (length: number) => Values)(source.length);
  for (let i = 0; i < source.length; i++) out[i] = values[source[i]!]!;
  return out;
}

/** The same bytes at an address that `size` divides. */
export function aligned(data: Uint8Array, size: number): Uint8Array {
  // `slice` of a Buffer, which node:zlib gives, is no copy.
  return data.byteOffset % size === 0 ? data : new Uint8Array(data);
}

/** Swaps the bytes of each element, in a copy. */
export function swapped(data: Uint8Array, size: number): Uint8Array {
  const out = new Uint8Array(data.length);
  for (let at = 0; at + size <= data.length; at += size)
    for (let i = 0; i < size; i++) out[at + i] = data[at + size - 1 - i]!;
  return out;
}
