/**
 * Access: members and items of values as Python has them. In `@huggingface/jinja` a member of what is not there is not there either, and
 * nothing is printed; in Python only a name alone prints nothing, and what is asked of it is an error.
 *
 * @example
 * // {{ reasoning.text }}  →  {{ athanor_there(reasoning, "text").text }}
 */
import { integerValue, listValue, textValue, type RuntimeValue } from "./runtime.ts";

/** UTF-16 has two units for one character. */
const PAIR = /[\ud800-\udbff]/;

/** The value whose member `member` is asked for. Throws where there is none. */
export function there(value: RuntimeValue | undefined, member: RuntimeValue | undefined): RuntimeValue {
  if (value !== undefined && value.type !== "UndefinedValue") {
    if (member?.value === "length" && (value.type === "StringValue" || Array.isArray(value.value))) {
      throw new TypeError("text and lists have no .length in Python: it is written |length");
    }
    return value;
  }
  const name = typeof member?.value === "string" ? JSON.stringify(member.value) : "an item";
  throw new ReferenceError(`it asks for ${name} of what is not there`);
}

/** The value of which an item is asked for: a text as its characters. */
export function items(value: RuntimeValue | undefined): RuntimeValue {
  const whole = there(value, undefined);
  if (whole.type !== "StringValue" || !PAIR.test(String(whole.value))) return whole;
  return listValue(Array.from(String(whole.value), textValue));
}

/** `len`: characters, items, members. */
export function length(value: RuntimeValue | undefined): RuntimeValue {
  const { type = "UndefinedValue", value: held } = value ?? {};
  if (type === "UndefinedValue") return integerValue(0);
  if (type === "StringValue") return integerValue(Array.from(String(held)).length);
  if (Array.isArray(held)) return integerValue(held.length);
  if (held instanceof Map) return integerValue(held.size);
  throw new TypeError(`length of ${type}`);
}
