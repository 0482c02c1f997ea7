/**
 * Dense: a column whose values lie between others (`Column.starts`) as one whose values lie one behind another, and one whose
 * integers are bytes as one of 32 bits.
 *
 * @example
 * const { values, ends } = dense(column);
 */
import type { Column } from "./types.ts";

/** Where the values of record i begin. */
export function startOf({ starts, ends }: Pick<Column, "starts" | "ends">, i: number): number {
  return starts === undefined ? (i === 0 ? 0 : ends[i - 1]!) : starts[i]!;
}

/** Integers of 8 bits made i32. */
export function widened(column: Column): Column {
  const { kind, values } = column;
  if (kind !== "int64" || values.BYTES_PER_ELEMENT !== 1) return column;
  return { ...column, values: new Int32Array(values as Int8Array) };
}

export function dense(column: Column): Column {
  const { starts, ends, values, ...rest } = column;
  if (starts === undefined) return column;
  const all = new Uint32Array(ends.length);
  let length = 0;
  for (let i = 0; i < ends.length; i++) all[i] = length += ends[i]! - starts[i]!;
  const Type = values.constructor as new (length: number) => Int32Array;
  const packed = new Type(length);
  for (let i = 0; i < ends.length; i++) {
    packed.set(values.subarray(starts[i], ends[i]) as Int32Array, i === 0 ? 0 : all[i - 1]);
  }
  return { ...rest, values: packed, ends: all };
}
