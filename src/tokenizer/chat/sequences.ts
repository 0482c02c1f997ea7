/**
 * Sequences: length, items, slices, ends and the joining of lists and texts as Python has them. A text has characters, not units of
 * UTF-16, and the marks that stand in it (`Marks`) are none: each goes with the character before it.
 *
 * @example
 * length(textValue("<\ufdd0|im_end|>"), isMark); // 10
 */
import { there } from "./access.ts";
import {
  argumentsOf,
  integerValue,
  listLike,
  listValue,
  textValue,
  undefinedValue,
  type RuntimeValue,
} from "./runtime.ts";

/** Is the character a mark? */
export type IsMark = (char: string) => boolean;

/** Two units for one character, or what marks are made of. */
const SEVERAL = /[\ud800-\udbff\ufdd0-\ufdef]/;

/** The characters of a text, marks behind them. */
export function characters(text: string, isMark: IsMark): string[] {
  if (!SEVERAL.test(text)) return Array.from(text);
  const found: string[] = [];
  for (const char of text) {
    if (found.length > 0 && isMark(char)) found[found.length - 1] += char;
    else found.push(char);
  }
  return found;
}

/** The text without marks. */
export function unmarked(text: string, isMark: IsMark): string {
  if (!SEVERAL.test(text)) return text;
  return Array.from(text)
    .filter((char) => !isMark(char))
    .join("");
}

/** The value of which an item is asked for: a text as its characters. */
export function items(value: RuntimeValue | undefined, isMark: IsMark): RuntimeValue {
  const whole = there(value, undefined);
  if (whole.type !== "StringValue" || !SEVERAL.test(String(whole.value))) return whole;
  return listValue(characters(String(whole.value), isMark).map(textValue));
}

/** `len`: characters, items, members. */
export function length(value: RuntimeValue | undefined, isMark: IsMark): RuntimeValue {
  const { type = "UndefinedValue", value: held } = value ?? {};
  if (type === "UndefinedValue") return integerValue(0);
  if (type === "StringValue") return integerValue(Array.from(unmarked(String(held), isMark)).length);
  if (Array.isArray(held)) return integerValue(held.length);
  if (held instanceof Map) return integerValue(held.size);
  throw new TypeError(`length of ${type}`);
}

/** `value[start:stop:step]`; what is left out is None or not there. */
export function slice([value, ...bounds]: readonly RuntimeValue[], isMark: IsMark): RuntimeValue {
  const whole = there(value, undefined);
  const [start, stop, step = 1] = bounds.map(bound);
  if (step === 0) throw new RangeError("a slice of step 0");
  const all =
    whole.type === "StringValue" ? characters(String(whole.value), isMark) : (whole.value as readonly RuntimeValue[]);
  if (!Array.isArray(all)) throw new TypeError(`a slice of ${whole.type}`);
  const place = (at: number | undefined, otherwise: number): number => {
    if (at === undefined) return otherwise;
    const [least, most] = step > 0 ? [0, all.length] : [-1, all.length - 1];
    return Math.min(most, Math.max(least, at < 0 ? at + all.length : at));
  };
  const end = place(stop, step > 0 ? all.length : -1);
  const found: unknown[] = [];
  for (let at = place(start, step > 0 ? 0 : all.length - 1); step > 0 ? at < end : at > end; at += step) {
    found.push(all[at]);
  }
  return whole.type === "StringValue" ? textValue(found.join("")) : listLike(whole, found as RuntimeValue[]);
}

/** `|first` and `|last`: of nothing, what is not there. */
export function endOf(value: RuntimeValue | undefined, last: boolean, isMark: IsMark): RuntimeValue {
  return members(value, isMark).at(last ? -1 : 0) ?? undefinedValue();
}

/** `|join`. `text`: `str` of a value. */
export function join(
  [value, ...args]: readonly RuntimeValue[],
  isMark: IsMark,
  text: (value: RuntimeValue) => string,
): RuntimeValue {
  const { placed, named } = argumentsOf(args);
  if (placed.length > 1 || named.has("attribute")) throw new TypeError("|join by an attribute");
  const between = placed[0] ?? named.get("d");
  const parts = members(value, isMark).map(text);
  return textValue(parts.join(between === undefined ? "" : text(between)));
}

/** What Python goes through: items, characters, keys. */
function members(value: RuntimeValue | undefined, isMark: IsMark): readonly RuntimeValue[] {
  const { type = "UndefinedValue", value: held } = value ?? {};
  if (type === "UndefinedValue") return [];
  if (type === "StringValue") return characters(String(held), isMark).map(textValue);
  if (Array.isArray(held)) return held as RuntimeValue[];
  if (type === "ObjectValue") return [...(held as ReadonlyMap<string, RuntimeValue>).keys()].map(textValue);
  throw new TypeError(`${type} has no items`);
}

function bound(value: RuntimeValue): number | undefined {
  const { type, value: held } = value;
  if (type === "UndefinedValue" || type === "NullValue") return undefined;
  if ((type === "IntegerValue" && typeof held === "number") || type === "BooleanValue") return Number(held);
  throw new TypeError(`a slice to ${type}`);
}
