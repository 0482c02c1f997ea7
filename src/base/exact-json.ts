/**
 * Exact JSON: one JSON text as a value that loses nothing, and back.
 *
 * `JSON.parse` rounds integers beyond 2^53 and forgets whether a number was written as an integer, which decides the kind of a
 * column. (JSON Lines has a parser of its own, from bytes into columns.) As Python writes them, NaN and ±Infinity are numbers.
 *
 * Contract: integers are numbers up to 2^53 and bigints beyond; numbers written with a point or an exponent are `Written`
 * where they are whole. Anything but one JSON value is a `SyntaxError` that names the character.
 *
 * @example
 * jsonText(parseJson('{"ids": [1, 2.0]}')); // {"ids":[1,2.0]}
 */
import type { Value } from "./json.ts";

/** A whole number that was written as a float, such as 1.0. */
export class Written {
  readonly value: number;
  constructor(value: number) {
    this.value = value;
  }
}

export type Parsed = null | boolean | number | bigint | string | Written | Parsed[] | Map<string, Parsed>;

const MAX_DEPTH = 256;
const NUMBER = /-?(?:Infinity|(?:0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?)|NaN/y;

export function parseJson(text: string): Parsed {
  return new Parser(text).whole();
}

/** The same value for eyes. */
export function plainJson(value: Parsed): Value {
  if (value instanceof Written) return value.value;
  if (Array.isArray(value)) return value.map(plainJson);
  if (value instanceof Map) return Object.fromEntries([...value].map(([key, member]) => [key, plainJson(member)]));
  return value;
}

/** The value as JSON again, numbers written as they were meant. */
export function jsonText(value: Parsed): string {
  if (value instanceof Written) return Number.isInteger(value.value) ? `${value.value}.0` : String(value.value);
  if (Array.isArray(value)) return `[${value.map(jsonText).join(",")}]`;
  if (value instanceof Map) {
    return `{${[...value].map(([key, member]) => `${JSON.stringify(key)}:${jsonText(member)}`).join(",")}}`;
  }
  return typeof value === "string" ? JSON.stringify(value) : String(value);
}

class Parser {
  private readonly text: string;
  private at = 0;

  constructor(text: string) {
    this.text = text;
  }

  whole(): Parsed {
    const value = this.value(0);
    this.space();
    if (this.at < this.text.length) throw this.malformed("nothing more");
    return value;
  }

  private value(depth: number): Parsed {
    if (depth > MAX_DEPTH) throw new SyntaxError(`nested deeper than ${MAX_DEPTH}`);
    this.space();
    const { text } = this;
    switch (text[this.at]) {
      case "[":
        return this.list(depth);
      case "{":
        return this.object(depth);
      case '"':
        return this.string();
      case "t":
        return this.word("true", true);
      case "f":
        return this.word("false", false);
      case "n":
        return this.word("null", null);
      default:
        return this.number();
    }
  }

  private list(depth: number): Parsed[] {
    const list: Parsed[] = [];
    this.at++;
    this.space();
    if (this.take("]")) return list;
    for (;;) {
      list.push(this.value(depth + 1));
      this.space();
      if (this.take("]")) return list;
      if (!this.take(",")) throw this.malformed("',' or ']'");
    }
  }

  private object(depth: number): Map<string, Parsed> {
    const object = new Map<string, Parsed>();
    this.at++;
    this.space();
    if (this.take("}")) return object;
    for (;;) {
      this.space();
      if (this.text[this.at] !== '"') throw this.malformed("a key in quotes");
      const key = this.string();
      this.space();
      if (!this.take(":")) throw this.malformed("':'");
      // The last of two members of one name counts, as everywhere.
      object.set(key, this.value(depth + 1));
      this.space();
      if (this.take("}")) return object;
      if (!this.take(",")) throw this.malformed("',' or '}'");
    }
  }

  private string(): string {
    const { text } = this;
    const from = this.at;
    let to = from + 1;
    while (to < text.length && text[to] !== '"') to += text[to] === "\\" ? 2 : 1;
    if (to >= text.length) throw new SyntaxError(`text that begins at character ${from} does not end`);
    this.at = to + 1;
    // Escapes and control characters are its business.
    return JSON.parse(text.slice(from, to + 1)) as string;
  }

  private number(): Parsed {
    const { text, at } = this;
    // Token ids: up to 9 digits, with no sign, point or exponent.
    let value = 0;
    let to = at;
    for (; to < at + 10; to++) {
      const digit = text.charCodeAt(to) - 48;
      if (!(digit >= 0 && digit <= 9)) break;
      value = value * 10 + digit;
    }
    const next = text[to];
    if (
      to > at &&
      to < at + 10 &&
      (next === "," || next === "]" || next === "}") &&
      (text[at] !== "0" || to === at + 1)
    ) {
      this.at = to;
      return value;
    }
    NUMBER.lastIndex = at;
    const match = NUMBER.exec(text);
    if (match === null) throw this.malformed("a value");
    const [written, point, exponent] = match;
    this.at = at + written.length;
    const number = Number(written);
    if (point !== undefined || exponent !== undefined)
      return Number.isSafeInteger(number) ? new Written(number) : number;
    if (!Number.isFinite(number)) {
      if (/\d/.test(written)) throw new SyntaxError(`the number at character ${at} is too large`);
      return number;
    }
    return Number.isSafeInteger(number) ? number : BigInt(written);
  }

  private word<T extends Parsed>(word: string, value: T): T {
    if (!this.text.startsWith(word, this.at)) throw this.malformed("a value");
    this.at += word.length;
    return value;
  }

  private take(char: string): boolean {
    if (this.text[this.at] !== char) return false;
    this.at++;
    return true;
  }

  private space(): void {
    const { text } = this;
    for (; ; this.at++) {
      const code = text.charCodeAt(this.at);
      if (code !== 0x20 && code !== 0x0a && code !== 0x0d && code !== 0x09) return;
    }
  }

  private malformed(expected: string): SyntaxError {
    const found = this.at < this.text.length ? JSON.stringify(this.text.slice(this.at, this.at + 8)) : "the end";
    return new SyntaxError(`found ${found} at character ${this.at}, expected ${expected}`);
  }
}
