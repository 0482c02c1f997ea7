/**
 * Bulk: the integers of a page by the kernels. Undefined: for the plain functions to do, because the page is too short to be worth
 * the copies, too large for the workbench, or damaged, of which they say why.
 *
 * @example
 * const values = bulkLookUp(bytes, at, 17, count, dictionary) ?? …;
 */
import type { Delta } from "../../kernels/delta.ts";
import { DELTA } from "../../kernels/kernels.ts";
import { MAX_INPUT, MAX_WORDS, type Workbench, workbench } from "../../kernels/workbench.ts";

/** A copy in and one out cost as much as some hundred values. Tests lower it. */
export const bulkLimits = { fewest: 128 };

/** The workbench with bytes [at, to) placed, where `count` values of `width` bytes fit it. */
function placed(bytes: Uint8Array, at: number, to: number, count: number, width: number): Workbench | undefined {
  if (count < bulkLimits.fewest || to - at > MAX_INPUT) return undefined;
  const bench = workbench();
  if (count > bench.room / width) return undefined;
  bench.place(bytes.subarray(at, to));
  return bench;
}

/** Dictionary-coded int32: the runs begin at `at`. */
export function bulkLookUp(
  bytes: Uint8Array,
  at: number,
  width: number,
  count: number,
  dictionary: Int32Array,
): Int32Array | undefined {
  const size = dictionary.length;
  if (width < 1 || width > 32 || size > MAX_WORDS) return undefined;
  const bench = placed(bytes, at, bytes.length, count, 4);
  if (bench === undefined) return undefined;
  bench.placeWords(dictionary);
  const length = bytes.length - at;
  return bench.kernels.unpackHybrid(bench.input, length, width, bench.output, count, bench.words, size)
    ? bench.takeInts(count)
    : undefined;
}

/** DELTA_BINARY_PACKED int32. */
export function bulkDelta32(bytes: Uint8Array, at: number, count: number): Delta<Int32Array> | undefined {
  const bench = placed(bytes, at, bytes.length, count, 4);
  if (bench === undefined) return undefined;
  const used = bench.kernels.unpackDelta(bench.input, bytes.length - at, bench.output, count, DELTA.int32);
  return used < 0 ? undefined : { values: bench.takeInts(count), next: at + used };
}

/** DELTA_BINARY_PACKED int64: as i32 where all fit. */
export function bulkDelta64(
  bytes: Uint8Array,
  at: number,
  count: number,
): Delta<Int32Array | BigInt64Array> | undefined {
  const bench = placed(bytes, at, bytes.length, count, 8);
  if (bench === undefined) return undefined;
  const { kernels, input, output } = bench;
  const length = bytes.length - at;
  const narrow = kernels.unpackDelta(input, length, output, count, DELTA.narrow);
  if (narrow >= 0) return { values: bench.takeInts(count), next: at + narrow };
  const wide = kernels.unpackDelta(input, length, output, count, DELTA.wide);
  return wide < 0 ? undefined : { values: bench.takeLongs(count), next: at + wide };
}

/** Plain int64 as i32; undefined also where one does not fit. */
export function bulkNarrow(bytes: Uint8Array, at: number, count: number): Int32Array | undefined {
  const bench = placed(bytes, at, at + count * 8, count, 4);
  if (bench === undefined) return undefined;
  return bench.kernels.narrowInts(bench.input, count, bench.output) ? bench.takeInts(count) : undefined;
}
