/**
 * Access: members of values as Python has them. In `@huggingface/jinja` a member of what is not there is not there either, and
 * nothing is printed; in Python only a name alone prints nothing, and what is asked of it is an error.
 *
 * @example
 * // {{ reasoning.text }}  →  {{ athanor_there(reasoning, "text").text }}
 */
import type { RuntimeValue } from "./runtime.ts";

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
