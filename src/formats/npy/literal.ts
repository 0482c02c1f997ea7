/**
 * A Python literal: the header of an `.npy` file is one (a dict of str, bool, int, tuples and lists).
 *
 * Looked at: npyjs and numpy-parser, which rewrite the text until JSON.parse takes it, and so read some headers wrongly.
 *
 * @example
 * parseLiteral("{'shape': (3, 4), }"); // Map { "shape" → Tuple [3, 4] }
 */

export type Literal = string | number | boolean | null | Tuple | List | Map<Literal, Literal>;
export class Tuple extends Array<Literal> {}
export class List extends Array<Literal> {}

/** Deeper ones are no headers. */
const MAX_DEPTH = 32;

/** Undefined: it is none. */
export function parseLiteral(text: string): Literal | undefined {
  const parser = new Parser(text.trim());
  try {
    const value = parser.value(0);
    return parser.atEnd ? value : undefined;
  } catch (error) {
    if (error === NO_LITERAL) return undefined;
    throw error;
  }
}

const NO_LITERAL = new SyntaxError("no literal");
const WORDS: Record<string, Literal> = { True: true, False: false, None: null };

class Parser {
  private readonly text: string;
  private at = 0;

  constructor(text: string) {
    this.text = text;
  }

  get atEnd(): boolean {
    this.skip();
    return this.at === this.text.length;
  }

  value(depth: number): Literal {
    if (depth > MAX_DEPTH) throw NO_LITERAL;
    this.skip();
    const char = this.text[this.at];
    switch (char) {
      case "'":
      case '"':
        return this.string(char);
      case "(":
        return this.tuple(depth);
      case "[":
        return List.from(this.items("]", depth).items);
      case "{":
        return this.dict(depth);
      default: {
        const word = this.match(/[A-Za-z]+/y);
        if (word !== undefined && Object.hasOwn(WORDS, word)) return WORDS[word]!;
        // Python 2 wrote long ones as 3L.
        const digits = word === undefined ? this.match(/[+-]?\d+/y) : undefined;
        if (digits === undefined) throw NO_LITERAL;
        this.match(/L/y);
        return Number(digits);
      }
    }
  }

  private string(quote: string): string {
    let value = "";
    for (this.at++; this.text[this.at] !== quote; this.at++) {
      const char = this.text[this.at];
      // A name with an escape in it is of no type that is read.
      if (char === undefined || char === "\n" || char === "\\") throw NO_LITERAL;
      value += char;
    }
    this.at++;
    return value;
  }

  /** `(1)` is 1, `(1,)` is a tuple. */
  private tuple(depth: number): Literal {
    const { items, comma } = this.items(")", depth);
    return items.length === 1 && !comma ? items[0]! : Tuple.from(items);
  }

  private items(close: string, depth: number): { items: Literal[]; comma: boolean } {
    this.at++;
    const items: Literal[] = [];
    let comma = true;
    for (;;) {
      this.skip();
      if (this.text[this.at] === close) break;
      if (!comma) throw NO_LITERAL;
      items.push(this.value(depth + 1));
      comma = this.takes(",");
    }
    this.at++;
    return { items, comma };
  }

  private dict(depth: number): Map<Literal, Literal> {
    this.at++;
    const entries = new Map<Literal, Literal>();
    for (let comma = true; !this.takes("}"); comma = this.takes(",")) {
      if (!comma) throw NO_LITERAL;
      const key = this.value(depth + 1);
      if (!this.takes(":")) throw NO_LITERAL;
      entries.set(key, this.value(depth + 1));
    }
    return entries;
  }

  private takes(char: string): boolean {
    this.skip();
    if (this.text[this.at] !== char) return false;
    this.at++;
    return true;
  }

  private skip(): void {
    this.match(/\s+/y);
  }

  private match(pattern: RegExp): string | undefined {
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.text)?.[0];
    if (found !== undefined) this.at += found.length;
    return found;
  }
}
