/**
 * Numbers: arithmetic of templates as Python does it. Integers are exact at any size (`@huggingface/jinja` has float64 alone); what is
 * divided by zero, or has no exact equal here, is an error.
 *
 * @example
 * arithmetic("+", integerValue(9007199254740991), integerValue(2)); // 9007199254740993
 */
import { argumentsOf, floatValue, integerValue, type RuntimeValue } from "./runtime.ts";
import { SPACES } from "./words.ts";

const NUMBERS = new Set(["IntegerValue", "FloatValue", "BooleanValue"]);
/** Largest power, in bits: a template is not trusted. */
const MAX_BITS = 4096;
/** Of a float64. */
const FRACTION_BITS = 53;
const LEAST_EXPONENT = -1022;
const SPACE = `[${SPACES}]*`;
const INTEGER = new RegExp(`^${SPACE}([-+]?)(\\d+(?:_\\d+)*)${SPACE}$`);
const DIGITS = "\\d+(?:_\\d+)*";
const FRACTION = new RegExp(
  `^${SPACE}([-+]?(?:${DIGITS}\\.?(?:${DIGITS})?|\\.${DIGITS})(?:[eE][-+]?${DIGITS})?)${SPACE}$`,
);
const SPECIAL = new RegExp(`^${SPACE}([-+]?)(inf|infinity|nan)${SPACE}$`, "i");

/** Integers, fractions, and True and False. */
export function isNumber({ type }: RuntimeValue): boolean {
  return NUMBERS.has(type);
}

/** `+ - * / // % **` of two numbers; anything else throws. */
export function arithmetic(operator: string, left: RuntimeValue, right: RuntimeValue): RuntimeValue {
  if (!isNumber(left) || !isNumber(right)) throw new TypeError(`${left.type} ${operator} ${right.type}`);
  const floats = left.type === "FloatValue" || right.type === "FloatValue";
  return floats || operator === "/" ? ofFloats(operator, left, right) : ofIntegers(operator, whole(left), whole(right));
}

/** Python's `==` of numbers: by value, whatever their types. */
export function sameNumber(left: RuntimeValue, right: RuntimeValue): boolean {
  const [a, b] = [left, right].map(({ value }) => (value === true ? 1 : value === false ? 0 : value)) as [
    number | bigint,
    number | bigint,
  ];
  // Of a bigint and a number this compares exactly.
  return a == b;
}

/** `|int`. */
export function toInteger([value, ...more]: readonly RuntimeValue[]): RuntimeValue {
  const otherwise = defaultOf(more) ?? integerValue(0);
  const { type, value: held } = value!;
  if (type === "UndefinedValue") throw new ReferenceError("int of what is not there");
  if (type === "FloatValue") return fromFloat(held as number) ?? otherwise;
  if (isNumber(value!)) return integerValue(whole(value!));
  if (type !== "StringValue") return otherwise;
  const digits = INTEGER.exec(String(held));
  if (digits !== null) {
    const size = BigInt(digits[2]!.replaceAll("_", ""));
    return integerValue(digits[1] === "-" ? -size : size);
  }
  const fraction = floatOf(String(held));
  return fraction === undefined || !Number.isFinite(fraction) ? otherwise : fromFloat(fraction)!;
}

/** `|float`. */
export function toFloat([value, ...more]: readonly RuntimeValue[]): RuntimeValue {
  const otherwise = defaultOf(more) ?? floatValue(0);
  const { type, value: held } = value!;
  if (type === "UndefinedValue") throw new ReferenceError("float of what is not there");
  if (isNumber(value!)) return floatValue(floating(value!));
  const found = type === "StringValue" ? floatOf(String(held)) : undefined;
  return found === undefined ? otherwise : floatValue(found);
}

function whole({ value }: RuntimeValue): bigint {
  return BigInt(value as number | bigint | boolean);
}

/** As a fraction. An integer that is larger than all of them is an error, not infinity. */
function floating({ value }: RuntimeValue): number {
  const size = Number(value);
  if (typeof value === "bigint" && !Number.isFinite(size)) throw new RangeError("an integer too large for a fraction");
  return size;
}

function ofIntegers(operator: string, a: bigint, b: bigint): RuntimeValue {
  switch (operator) {
    case "+":
      return integerValue(a + b);
    case "-":
      return integerValue(a - b);
    case "*":
      return integerValue(a * b);
    case "**":
      return power(a, b);
  }
  if (b === 0n) throw new RangeError(`${operator} of zero`);
  // Python rounds down, and the remainder has the sign of the divisor.
  const rest = a % b;
  const down = rest !== 0n && rest < 0n !== b < 0n;
  return integerValue(operator === "%" ? (down ? rest + b : rest) : a / b - (down ? 1n : 0n));
}

function power(base: bigint, exponent: bigint): RuntimeValue {
  if (exponent < 0n) return ofFloats("**", integerValue(base), integerValue(exponent));
  const bits = BigInt(base.toString(2).length);
  if (bits * exponent > MAX_BITS && (base > 1n || base < -1n)) throw new RangeError("a power of too many digits");
  return integerValue(base ** exponent);
}

function ofFloats(operator: string, left: RuntimeValue, right: RuntimeValue): RuntimeValue {
  const [a, b] = [floating(left), floating(right)];
  switch (operator) {
    case "+":
      return floatValue(a + b);
    case "-":
      return floatValue(a - b);
    case "*":
      return floatValue(a * b);
    case "**":
      return floatValue(floatPower(a, b));
  }
  if (b === 0) throw new RangeError(`${operator} of zero`);
  if (operator === "/") {
    // Of two integers Python rounds the true quotient once.
    if (typeof left.value === "bigint" || typeof right.value === "bigint") throw new RangeError("/ beyond 2^53");
    return floatValue(a / b);
  }
  const rest = a % b;
  const moved = rest !== 0 && rest < 0 !== b < 0 ? rest + b : rest;
  if (operator === "%") return floatValue(moved !== 0 ? moved : b < 0 ? -0 : 0);
  // As CPython: the quotient of what the remainder leaves is nearly whole.
  const quotient = (a - rest) / b - (moved === rest ? 0 : 1);
  if (quotient === 0) return floatValue(1 / (a / b) < 0 ? -0 : 0);
  const down = Math.floor(quotient);
  return floatValue(quotient - down > 0.5 ? down + 1 : down);
}

/** Exact powers only: of all others the last digit is a matter of the library of C that Python stands on. */
function floatPower(a: number, b: number): number {
  if (a === 0 && b < 0) throw new RangeError("a negative power of zero");
  const result = a ** b;
  if (!Number.isFinite(result) || !Number.isFinite(b)) throw new RangeError("a power that is no finite number");
  if (b === 0 || b === 1 || (a === 0 && Number.isInteger(b))) return result;
  if (!Number.isInteger(b) || !isExactPower(a, b)) throw new RangeError("a power that is no exact number");
  return result;
}

/** `a` is odd · 2^twos: has odd^b at most 53 bits, and the result no fewer than it needs? */
function isExactPower(a: number, b: number): boolean {
  let odd = Math.abs(a);
  let twos = 0;
  for (; !Number.isInteger(odd); odd *= 2) twos--;
  for (; odd % 2 === 0; odd /= 2) twos++;
  if (twos * b < LEAST_EXPONENT) return false;
  return odd === 1 || (b > 0 && b <= FRACTION_BITS && BigInt(odd) ** BigInt(b) < 1n << BigInt(FRACTION_BITS));
}

function fromFloat(value: number): RuntimeValue | undefined {
  if (Number.isNaN(value)) return undefined;
  if (!Number.isFinite(value)) throw new RangeError("int of infinity");
  return integerValue(BigInt(Math.trunc(value)));
}

/** Undefined: the text is no number. */
function floatOf(text: string): number | undefined {
  const special = SPECIAL.exec(text);
  if (special !== null) {
    const size = special[2]!.toLowerCase() === "nan" ? Number.NaN : Number.POSITIVE_INFINITY;
    return special[1] === "-" ? -size : size;
  }
  const digits = FRACTION.exec(text)?.[1];
  if (digits !== undefined) return Number(digits.replaceAll("_", ""));
  // Python reads the digits of all scripts.
  if (/\p{Nd}/u.test(text.replace(/\d/g, ""))) throw new RangeError("a number in other digits than 0 to 9");
  return undefined;
}

function defaultOf(args: readonly RuntimeValue[]): RuntimeValue | undefined {
  const { placed, named } = argumentsOf(args);
  if (placed.length > 1 || named.has("base")) throw new TypeError("|int with a base");
  return placed[0] ?? named.get("default");
}
