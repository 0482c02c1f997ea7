/**
 * Direct: values of a dataset from the bytes of its chunks, without the HDF5 library, for the common case: numbers, chunks as wide
 * as the dataset, no filter or shuffle and deflate. Where each chunk lies the library tells when the index is made: of all that
 * it reads for a block, a read whose bytes give the very values that the library gave is the chunk's (decision 0021).
 *
 * jsfive 0.4 reads a whole file from memory; h5wasm gives no chunk's place and inflates at a third of node:zlib's speed.
 *
 * @example
 * const places = placesOf(spec, reads, truth, 0, 1024);         // [offset, length, offset, length, …], or undefined
 * const column = directColumn(spec, segments, 0, 1024);         // undefined: the library has to read it
 */
import { unshuffleBytes } from "../../kernels/shuffle.ts";
import { MAX_INPUT, workbench, type Workbench } from "../../kernels/workbench.ts";
import { inflate, inflateInto, INFLATE_SPARE } from "../codecs/inflate.ts";
import type { Column, PlacedSegment, ValueKind } from "../types.ts";
import type { NumberReading } from "./dtype.ts";
import { decodeNumbers } from "./values.ts";

/** How chunks of a dataset become its values; part of the meta of a shard. */
export interface DirectSpec {
  kind: ValueKind;
  reading: NumberReading;
  /** Numbers of a row, and its bytes. */
  perRow: number;
  rowBytes: number;
  /** 0: not chunked. */
  chunkRows: number;
  shuffle: boolean;
  deflate: boolean;
}

/** Bytes that the library has read. */
export interface LibraryRead {
  offset: number;
  bytes: Uint8Array;
}

/** Rows of each chunk of rows [from, to), which begin with one. */
function* chunksOf({ chunkRows }: DirectSpec, from: number, to: number): Generator<number> {
  const step = chunkRows === 0 ? to - from : chunkRows;
  for (let at = from; at < to; at += step) yield Math.min(step, to - at);
}

function chunkCount({ chunkRows }: DirectSpec, from: number, to: number): number {
  return chunkRows === 0 ? 1 : Math.ceil((to - from) / chunkRows);
}

/** Bytes of the file that hold rows [from, to), chunk by chunk. `truth`: their values as the library has put them into its memory. */
export function placesOf(
  spec: DirectSpec,
  reads: readonly LibraryRead[],
  truth: Uint8Array,
  from: number,
  to: number,
): number[] | undefined {
  if (spec.chunkRows > 0 && from % spec.chunkRows !== 0) return undefined;
  const places: number[] = [];
  let next = 0;
  let done = 0;
  for (const rows of chunksOf(spec, from, to)) {
    const own = truth.subarray(done, done + rows * spec.rowBytes);
    const found = reads.findIndex((read, i) => i >= next && holds(spec, read.bytes, own));
    if (found < 0) return undefined;
    const { offset, bytes } = reads[found]!;
    places.push(offset, spec.deflate || spec.shuffle ? bytes.length : own.length);
    next = found + 1;
    done += own.length;
  }
  return places;
}

function holds(spec: DirectSpec, stored: Uint8Array, values: Uint8Array): boolean {
  const begin = (bytes: Uint8Array): boolean => Buffer.compare(bytes.subarray(0, values.length), values) === 0;
  if (!spec.deflate && !spec.shuffle) return begin(stored);
  const out = new Uint8Array(Math.max(stored.length, spec.chunkRows * spec.rowBytes) + INFLATE_SPARE);
  try {
    return begin(out.subarray(0, unfilter(spec, stored, out)));
  } catch {
    // Some other read.
    return false;
  }
}

/** Undefined: the segments are not all of it, or do not decode: the library says what is wrong. */
export function directColumn(
  spec: DirectSpec,
  segments: readonly PlacedSegment[],
  from: number,
  to: number,
): Column | undefined {
  if (segments.length !== chunkCount(spec, from, to)) return undefined;
  return inPlace(spec, segments, from, to) ?? joined(spec, segments, from, to);
}

/** Numbers that can stay where they are. */
function inPlace(spec: DirectSpec, segments: readonly PlacedSegment[], from: number, to: number): Column | undefined {
  const { shuffle, deflate, perRow, rowBytes, kind } = spec;
  const [first] = segments as [PlacedSegment];
  const values = shuffle || deflate ? undefined : wholeOf(spec.reading, first.bytes.buffer);
  if (values === undefined) return undefined;
  const size = values.BYTES_PER_ELEMENT;
  const starts = new Uint32Array(to - from);
  let row = 0;
  for (const rows of chunksOf(spec, from, to)) {
    const { bytes } = segments[row === 0 || spec.chunkRows === 0 ? 0 : row / spec.chunkRows]!;
    if (bytes.buffer !== first.bytes.buffer || bytes.byteOffset % size !== 0) return undefined;
    if (bytes.length !== rows * rowBytes) return undefined;
    for (let i = 0; i < rows; i++) starts[row + i] = bytes.byteOffset / size + i * perRow;
    row += rows;
  }
  return { kind, values, starts, ends: starts.map((start) => start + perRow) };
}

function wholeOf({ how, size, signed }: NumberReading, buffer: ArrayBufferLike): Column["values"] | undefined {
  const words = Math.floor(buffer.byteLength / 4);
  if (size === 1) return signed ? new Int8Array(buffer) : new Uint8Array(buffer);
  if (size !== 4 || (how === "int" && !signed)) return undefined;
  return how === "int" ? new Int32Array(buffer, 0, words) : new Float32Array(buffer, 0, words);
}

/** Chunks one behind the other in the workbench: an own array for each block cost more than decoding it. */
function joined(spec: DirectSpec, segments: readonly PlacedSegment[], from: number, to: number): Column | undefined {
  const { rowBytes, reading, perRow, kind } = spec;
  const length = (to - from) * rowBytes;
  const chunk = chunkBytes(spec, from, to);
  // Behind the last rows the whole of its chunk has to fit.
  const most = length + chunk + INFLATE_SPARE;
  const bench = benchFor(most, Math.max(chunk + INFLATE_SPARE, ...segments.map(({ bytes }) => bytes.length)));
  const all = bench?.spareOutput(most) ?? new Uint8Array(most);
  let done = 0;
  let next = 0;
  try {
    for (const rows of chunksOf(spec, from, to)) {
      const found = unfilter(spec, segments[next++]!.bytes, all.subarray(done), bench);
      if (found < rows * rowBytes) return undefined;
      done += rows * rowBytes;
    }
  } catch {
    return undefined;
  }
  const ends = new Uint32Array(to - from);
  for (let i = 0; i < ends.length; i++) ends[i] = (i + 1) * perRow;
  const bytes = bench?.takeBytes(length) ?? all.subarray(0, length);
  const values = (bench && narrowed(bench, bytes, reading)) ?? decodeNumbers(bytes, reading);
  return values && { kind, values, ends };
}

/** The workbench, where it is lent and has room for `most` bytes of output and for `input` bytes. */
function benchFor(most: number, input: number): Workbench | undefined {
  const bench = workbench();
  bench.alignOutput();
  return bench.stays && most <= bench.room && input <= MAX_INPUT ? bench : undefined;
}

/** 64-bit integers in the bench as i32, where all fit. */
function narrowed(bench: Workbench, bytes: Uint8Array, { how, size, signed }: NumberReading): Int32Array | undefined {
  const count = bytes.length / 8;
  if (how !== "int" || size !== 8 || !signed || count * 4 > bench.room) return undefined;
  return bench.kernels.narrowInts(bytes.byteOffset, count, bench.output) ? bench.takeInts(count) : undefined;
}

/** Puts the bytes of a chunk at the head of `out`, which has room for INFLATE_SPARE more; how many there are. `bench`: whose output `out` is. */
function unfilter(spec: DirectSpec, stored: Uint8Array, out: Uint8Array, bench?: Workbench): number {
  const { deflate, chunkRows, rowBytes, reading } = spec;
  const size = deflate ? chunkRows * rowBytes : stored.length;
  if (size > out.length) throw new RangeError(`a chunk of ${size} bytes`);
  if (!spec.shuffle || reading.size === 1) {
    if (deflate) inflateInto(stored, out.subarray(0, size + INFLATE_SPARE), size);
    else out.set(stored);
  } else if (bench === undefined) {
    unshuffleBytes(deflate ? inflate(stored, size) : stored, out.subarray(0, size), reading.size);
  } else {
    if (deflate) inflateInto(stored, bench.spareInput(size + INFLATE_SPARE), size);
    else bench.place(stored);
    bench.kernels.unshuffle(bench.input, size, reading.size, out.byteOffset);
  }
  return size;
}

/** Decoded bytes of a chunk, those behind the last row included. */
function chunkBytes({ chunkRows, rowBytes }: DirectSpec, from: number, to: number): number {
  return (chunkRows === 0 ? to - from : chunkRows) * rowBytes;
}
