/**
 * Runtime: values and functions of `@huggingface/jinja`, which makes them of JavaScript's own and forgets then whether a number was
 * written `1` or `1.0`, and what of a number goes beyond 2^53. Its classes are no exports: they are those of values that it makes.
 *
 * @example
 * valueOf(parseJson('{"temperature": 1.0}'), (text) => text);
 */
import { Environment, Interpreter } from "@huggingface/jinja";
import { Written, type Parsed } from "../../base/exact-json.ts";

/** A value while a template runs: the name of its class, and what it holds. (The library's own types are not found by TypeScript.) */
export interface RuntimeValue {
  readonly type: string;
  readonly value: unknown;
  toString(): string;
}

/** A parsed template. */
export type Tree = object;

type Class = new (value: unknown) => RuntimeValue;

function classOf(value: unknown): Class {
  return (new Environment().set("value", value) as RuntimeValue).constructor as Class;
}

const StringClass = classOf("");
const IntegerClass = classOf(1);
const FloatClass = classOf(0.5);
const BooleanClass = classOf(true);
const NullClass = classOf(null);
const UndefinedClass = classOf(undefined);
const ListClass = classOf([]);
const ObjectClass = classOf({});
const FunctionClass = classOf(() => undefined);

/** `text`: what stands for a text, or a key, of the value. */
export function valueOf(value: Parsed, text: (text: string) => string): RuntimeValue {
  if (value === null) return new NullClass(null);
  if (typeof value === "string") return new StringClass(text(value));
  if (typeof value === "boolean") return new BooleanClass(value);
  if (typeof value === "bigint") return new IntegerClass(value);
  if (typeof value === "number") return new (Number.isSafeInteger(value) ? IntegerClass : FloatClass)(value);
  if (value instanceof Written) return new FloatClass(value.value);
  if (Array.isArray(value)) return new ListClass(value.map((item) => valueOf(item, text)));
  return new ObjectClass(new Map([...value].map(([key, member]) => [text(key), valueOf(member, text)])));
}

export function textValue(text: string): RuntimeValue {
  return new StringClass(text);
}

export function booleanValue(value: boolean): RuntimeValue {
  return new BooleanClass(value);
}

/** What a call gave by place, and by name. */
export function argumentsOf(args: readonly RuntimeValue[]): {
  placed: readonly RuntimeValue[];
  named: ReadonlyMap<string, RuntimeValue>;
} {
  const isNamed = ({ type }: RuntimeValue): boolean => type === "KeywordArgumentsValue";
  const named = args.find(isNamed)?.value as ReadonlyMap<string, RuntimeValue> | undefined;
  return { placed: args.filter((arg) => !isNamed(arg)), named: named ?? new Map() };
}

/** A function of values, not of what they hold. */
export function functionValue(work: (args: readonly RuntimeValue[]) => RuntimeValue): RuntimeValue {
  return new FunctionClass(work);
}

export function listValue(items: readonly RuntimeValue[]): RuntimeValue {
  return new ListClass(items);
}

/** A list, or a tuple where `value` is one. */
export function listLike(value: RuntimeValue, items: readonly RuntimeValue[]): RuntimeValue {
  return new (value.constructor as Class)(items);
}

/** Exact: beyond 2^53 it holds a bigint. */
export function integerValue(value: number | bigint): RuntimeValue {
  const small = Number(value);
  return new IntegerClass(Number.isSafeInteger(small) ? small : value);
}

/** What is not there. */
export function undefinedValue(): RuntimeValue {
  return new UndefinedClass(undefined);
}

export function floatValue(value: number): RuntimeValue {
  return new FloatClass(value);
}

/** Runs a parsed template. */
export function run(program: Tree, variables: Iterable<[string, RuntimeValue]>): string {
  const environment = new Environment();
  for (const [name, value] of variables) environment.setVariable(name, value);
  const { value } = new Interpreter(environment).run(program) as RuntimeValue;
  if (typeof value !== "string") throw new TypeError("the template gave no text");
  return value;
}
