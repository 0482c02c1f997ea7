/** Record: a row of the arrays for eyes: nested as their shapes are, text as strings. */
import type { Value } from "../../base/json.ts";
import { shownNumbers } from "../shown.ts";
import type { BlockColumns } from "../types.ts";
import type { ArraySpec } from "./spec.ts";

export function recordOf(
  arrays: readonly ArraySpec[],
  { fields }: BlockColumns,
  i: number,
): { readonly [field: string]: Value } {
  const values: [string, Value][] = [];
  for (const { name, shape, type } of arrays) {
    const { values: all, ends } = fields.get(name)!;
    const own = all.subarray(i === 0 ? 0 : ends[i - 1]!, ends[i]);
    if (type.kind === "text" || type.kind === "U") values.push([name, Buffer.from(own as Uint8Array).toString("utf8")]);
    else if (own instanceof Uint8Array) values.push([name, own]);
    else if (type.kind === "list") values.push([name, shownNumbers(own, type.item?.kind === "u")]);
    else {
      const list = shownNumbers(own, type.kind === "u");
      values.push([name, nested(type.kind === "b" ? list.map((value) => value === 1) : list, shape.slice(1))]);
    }
  }
  return Object.fromEntries(values);
}

function nested(list: readonly Value[], shape: readonly number[]): Value {
  if (shape.length === 0) return list[0]!;
  if (shape.length === 1) return list;
  const [count, ...rest] = shape as [number, ...number[]];
  const step = list.length / count;
  return Array.from({ length: count }, (_, k) => nested(list.slice(k * step, (k + 1) * step), rest));
}
