/**
 * Shown: numbers of a column for eyes.
 *
 * @example
 * shownNumbers(BigInt64Array.of(-1n), true); // [18446744073709551615n]
 */
import type { Value } from "../base/json.ts";
import type { Column } from "./types.ts";

/** `unsigned`: those of 2^63 and more, which are negative in a column, as what they are. */
export function shownNumbers(values: Column["values"], unsigned: boolean): Value[] {
  return Array.from<number | bigint, Value>(values, (value) =>
    unsigned && typeof value === "bigint" ? BigInt.asUintN(64, value) : value,
  );
}
