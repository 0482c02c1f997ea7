/**
 * Prefix: how many ones stand at the head of a list that is ones and then zeros, as an attention mask is.
 *
 * By halving, then one comparison of bytes with a list that is right: a quarter of the time of a loop over 512 values.
 *
 * @example
 * const onesIn = prefixCounter(Int32Array.of(1, 1, 0));
 * onesIn(0, 3); // 2; −1: it is no such list
 */
import type { Column } from "./types.ts";

/** Values of the longest list that is compared so. */
const MOST = 4096;
/** MOST ones, then MOST zeros, by bytes a value. */
const templates = new Map<number, Buffer>();

export function prefixCounter(values: Column["values"]): (from: number, to: number) => number {
  const { BYTES_PER_ELEMENT: size } = values;
  if (values instanceof Float32Array || values instanceof Float64Array) return (from, to) => counted(values, from, to);
  if (values instanceof BigInt64Array) return (from, to) => counted(values, from, to);
  const bytes = Buffer.from(values.buffer, values.byteOffset, values.byteLength);
  const right = templateOf(size);
  return (from, to) => {
    if (to - from > MOST) return counted(values, from, to);
    let ones = from;
    for (let end = to; ones < end;) {
      const middle = (ones + end) >>> 1;
      if (values[middle] === 1) ones = middle + 1;
      else end = middle;
    }
    const begin = MOST - (ones - from);
    const same = bytes.compare(right, begin * size, (begin + to - from) * size, from * size, to * size) === 0;
    return same ? ones - from : -1;
  };
}

function templateOf(size: number): Buffer {
  let template = templates.get(size);
  if (template === undefined) {
    template = Buffer.alloc(2 * MOST * size);
    for (let i = 0; i < MOST; i++) template[i * size] = 1;
    templates.set(size, template);
  }
  return template;
}

function counted(values: ArrayLike<number | bigint>, from: number, to: number): number {
  let ones = from;
  while (ones < to && Number(values[ones]) === 1) ones++;
  for (let at = ones; at < to; at++) if (Number(values[at]) !== 0) return -1;
  return ones - from;
}
