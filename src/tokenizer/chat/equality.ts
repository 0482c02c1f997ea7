/**
 * Equality: `==` and `in` of templates as Python has them: like to like by what they hold, `True` as 1, `1.0` as 1, lists and objects
 * item by item. (`@huggingface/jinja` compares as JavaScript does, in lists by type, too.) Marks in a text are none of it.
 *
 * @example
 * contains(integerValue(1), listValue([booleanValue(true)]), isMark); // true
 */
import { isNumber, sameNumber } from "./numbers.ts";
import type { RuntimeValue } from "./runtime.ts";
import { unmarked, type IsMark } from "./sequences.ts";

/** `left == right`. */
export function equal(left: RuntimeValue, right: RuntimeValue, isMark: IsMark): boolean {
  const { value: a } = left;
  const { value: b } = right;
  if (left.type === "StringValue" && right.type === "StringValue")
    return a === b || unmarked(String(a), isMark) === unmarked(String(b), isMark);
  if (isNumber(left) && isNumber(right)) return sameNumber(left, right);
  const lists = Array.isArray(a) && Array.isArray(b);
  // A pair of `items()` is a list in the library, a tuple in Python.
  if (lists && left.type !== right.type) throw new TypeError("a tuple compared with a list");
  if (left.type !== right.type) return false;
  if (lists) return a.length === b.length && a.every((item, i) => same(item, b[i], isMark));
  if (left.type === "ObjectValue" && a instanceof Map && b instanceof Map)
    return a.size === b.size && [...a].every(([key, item]) => same(item, b.get(key), isMark));
  return a === b;
}

/** `item in whole`: of a list, the keys of an object, a text. Marks count in texts and keys (decision 0020). */
export function contains(item: RuntimeValue, whole: RuntimeValue, isMark: IsMark): boolean {
  const { type, value: held } = whole;
  // Of a name that is not there nothing is.
  if (type === "UndefinedValue") return false;
  if (Array.isArray(item.value)) throw new TypeError("a list or tuple is looked for");
  if (Array.isArray(held)) return held.some((one) => same(item, one, isMark));
  const text = item.type === "StringValue" ? String(item.value) : undefined;
  if (type === "StringValue" && text !== undefined) return String(held).includes(text);
  if (type !== "ObjectValue" || item.type === "ObjectValue") throw new TypeError(`${item.type} in ${type}`);
  return text !== undefined && (held as ReadonlyMap<string, unknown>).has(text);
}

/** As Python compares items: what is the same value is equal, not a number, too. */
function same(one: RuntimeValue, other: RuntimeValue | undefined, isMark: IsMark): boolean {
  return one === other || (other !== undefined && equal(one, other, isMark));
}
