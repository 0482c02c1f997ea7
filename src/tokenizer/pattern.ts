/**
 * Pattern: a regular expression of `tokenizer.json` (Oniguruma, Ruby syntax) as a JavaScript one that matches the same.
 *
 * Contract: the same matches, or ATH_TOKENIZER_UNSUPPORTED: never a silent difference. What differs between the two, and is
 * translated: `\s` (JavaScript's lacks U+0085 and has U+FEFF), `\d` and `\w` (ASCII only in JavaScript), `.`, `$`, `(?i:…)` (not
 * in Node 20), possessive quantifiers and atomic groups, and properties: Oniguruma's are Unicode 16's (`unicode.ts`). Looked at:
 * oniguruma-to-es (a full Oniguruma parser, 3 packages; made for TextMate grammars): its properties are those of the running
 * JavaScript, and these differ in 4 800 characters.
 *
 * @example
 * translate("\\s+(?!\\S)|\\s+"); // "\\p{White_Space}+(?!\\P{White_Space})|\\p{White_Space}+"; for the flag `v`
 */
import { TokenizerUnsupported } from "./errors.ts";
import { propertySet, wordAlone, wordInSet } from "./unicode.ts";

const CLASS_ESCAPES: Record<string, string> = {
  s: "\\p{White_Space}",
  S: "\\P{White_Space}",
  d: propertySet("Nd")!,
  D: `[^${propertySet("Nd")!}]`,
  h: "0-9A-Fa-f",
};
const CHAR_ESCAPES: Record<string, string> = {
  n: "\n",
  r: "\r",
  t: "\t",
  f: "\f",
  v: "\v",
  a: "\x07",
  e: "\x1b",
};
/** Characters beyond ASCII that fold to an ASCII letter. */
const FOLDS: Record<string, string> = { s: "\u017f", k: "\u212a" };

export function translate(source: string): string {
  return new Translator(source).run();
}

/** Compiles a pattern; `flags` beside `v`. */
export function compilePattern(source: string, flags: string): RegExp {
  return new RegExp(translate(source), `v${flags}`);
}

/** Any text as a pattern that matches it. */
export function literalPattern(text: string): string {
  return Array.from(text)
    .map((char) => literal(char))
    .join("");
}

class Translator {
  private readonly source: string;
  private readonly chars: readonly string[];
  private at = 0;
  /** Groups of the result: those that atomic groups need. */
  private groups = 0;

  constructor(source: string) {
    this.source = source;
    this.chars = Array.from(source);
  }

  run(): string {
    const out = this.alternatives(false);
    if (this.at < this.chars.length) this.refuse(`an unmatched ")"`);
    try {
      void new RegExp(out, "v");
    } catch (error) {
      this.refuse(`what JavaScript does not take (${(error as Error).message})`);
    }
    return out;
  }

  /** Up to the closing bracket of the group or the end. */
  private alternatives(ignoreCase: boolean): string {
    let out = "";
    let fold = ignoreCase;
    for (;;) {
      const char = this.chars[this.at];
      if (char === undefined || char === ")") return out;
      if (char === "|") {
        this.at++;
        out += "|";
        continue;
      }
      // `(?i)`: from here to the end of the group, over its alternatives too.
      if (this.ahead("(?i)")) {
        this.at += 4;
        if (out.length > 0) this.refuse("(?i) that is not at the head of a group");
        fold = true;
        continue;
      }
      const groupsBefore = this.groups;
      out += this.quantified(this.atom(fold), groupsBefore);
    }
  }

  private atom(fold: boolean): string {
    const char = this.chars[this.at++]!;
    switch (char) {
      case "(":
        return this.group(fold);
      case "[":
        return this.set(fold);
      case "\\":
        return this.escape(fold);
      case ".":
        return "[^\\n]";
      case "$":
        return "(?=\\n|(?![^]))";
      case "^":
        return this.refuse(`"^"`);
      case "*":
      case "+":
      case "?":
        return this.refuse(`a quantifier without something before it`);
      default:
        return letter(char, fold);
    }
  }

  private group(fold: boolean): string {
    const heads = ["?:", "?=", "?!", "?<=", "?<!"];
    const head = heads.find((candidate) => this.ahead(candidate));
    if (head !== undefined) {
      this.at += head.length;
      return `(${head}${this.rest(fold)})`;
    }
    if (this.ahead("?i:")) {
      this.at += 3;
      return `(?:${this.rest(true)})`;
    }
    if (this.ahead("?>")) {
      this.at += 2;
      const number = ++this.groups;
      return `(?:(?=(${this.rest(fold)}))\\${number})`;
    }
    if (this.ahead("?") || this.ahead("*"))
      return this.refuse(`the group "(${this.chars.slice(this.at, this.at + 3).join("")}"`);
    // Numbered groups are for back references only, which are refused.
    return `(?:${this.rest(fold)})`;
  }

  private rest(fold: boolean): string {
    const inside = this.alternatives(fold);
    if (this.chars[this.at] !== ")") this.refuse(`a "(" that is not closed`);
    this.at++;
    return inside;
  }

  private quantified(atom: string, groupsBefore: number): string {
    const { chars } = this;
    const char = chars[this.at];
    let quantifier: string | undefined;
    if (char === "*" || char === "+" || char === "?") {
      quantifier = char;
      this.at++;
    } else if (char === "{") {
      const found = /^\{(\d*)(,?)(\d*)\}/.exec(chars.slice(this.at, this.at + 24).join(""));
      if (found === null || (found[1] === "" && found[3] === "")) return this.refuse(`a "{" that is no repetition`);
      quantifier = found[2] === "" ? `{${found[1]}}` : `{${found[1] === "" ? 0 : found[1]},${found[3]}}`;
      this.at += found[0].length;
    }
    if (quantifier === undefined) return atom;
    const next = chars[this.at];
    if (next === "?") {
      if (char === "{" && !quantifier.includes(",")) return this.refuse(`"{n}?"`);
      this.at++;
      return this.single(atom + quantifier + "?");
    }
    if (next === "+" && char !== "{") {
      this.at++;
      if (this.groups > groupsBefore) return this.refuse("an atomic group that is repeated possessively");
      return this.single(`(?:(?=(${atom}${quantifier}))\\${++this.groups})`);
    }
    return this.single(atom + quantifier);
  }

  private single(quantified: string): string {
    const next = this.chars[this.at];
    if (next === "*" || next === "+" || next === "?" || next === "{")
      return this.refuse("a quantifier behind a quantifier");
    return quantified;
  }

  /** Behind a backslash, outside of a set. */
  private escape(fold: boolean): string {
    const char = this.chars[this.at];
    if (char === "w" || char === "W" || char === "h") {
      this.at++;
      return char === "h" ? "[0-9A-Fa-f]" : `[${char === "W" ? "^" : ""}${wordAlone}]`;
    }
    return this.classEscape() ?? letter(this.charEscape(), fold);
  }

  /** A class such as `\s` or `\p{L}`. */
  private classEscape(): string | undefined {
    const char = this.chars[this.at];
    if (char === undefined) return this.refuse("a backslash at the end");
    if (char === "p" || char === "P") {
      this.at++;
      return this.property(char === "P");
    }
    if (!Object.hasOwn(CLASS_ESCAPES, char)) return undefined;
    this.at++;
    return CLASS_ESCAPES[char]!;
  }

  private property(negated: boolean): string {
    const found = /^\{(\^?)([A-Za-z_]+)\}/.exec(this.chars.slice(this.at, this.at + 48).join(""));
    if (found === null) return this.refuse(String.raw`\p without a name in braces`);
    this.at += found[0].length;
    const name = found[2]!;
    const set = propertySet(name);
    if (set !== undefined) return negated !== (found[1] === "^") ? `[^${set}]` : set;
    return this.refuse(String.raw`\p{${name}}`);
  }

  /** A character that is written with a backslash. */
  private charEscape(): string {
    const char = this.chars[this.at++]!;
    if (Object.hasOwn(CHAR_ESCAPES, char)) return CHAR_ESCAPES[char]!;
    if (char === "x" || char === "u") {
      const text = this.chars.slice(this.at, this.at + 10).join("");
      const found =
        char === "x" ? /^(?:\{([0-9A-Fa-f]{1,6})\}|([0-9A-Fa-f]{2}))/.exec(text) : /^([0-9A-Fa-f]{4})/.exec(text);
      const code = found === null ? Number.NaN : Number.parseInt(found[1] ?? found[2]!, 16);
      // Two hex digits beyond ASCII are a byte of UTF-8 to Oniguruma.
      if (!(code <= 0x10ffff) || (found![2] !== undefined && code > 0x7f))
        return this.refuse(`"\\${char}" as it stands`);
      this.at += found![0].length;
      return String.fromCodePoint(code);
    }
    if (/[A-Za-z0-9]/.test(char)) return this.refuse(`"\\${char}"`);
    return char;
  }

  private set(fold: boolean): string {
    let out = "[";
    if (this.chars[this.at] === "^") {
      out += "^";
      this.at++;
    }
    for (let first = true; ; first = false) {
      const char = this.chars[this.at];
      if (char === undefined) return this.refuse(`a "[" that is not closed`);
      if (char === "]" && !first) {
        this.at++;
        return `${out}]`;
      }
      if (char === "]" || char === "[" || this.ahead("&&")) return this.refuse(`"${char}" in a set`);
      if (char === "\\") {
        this.at++;
        const escape = this.chars[this.at];
        if (escape === "W") return this.refuse(String.raw`\W in a set`);
        if (escape === "w") {
          this.at++;
          out += wordInSet;
          continue;
        }
        const inside = this.classEscape();
        if (inside !== undefined) {
          out += inside;
          continue;
        }
        out += this.range(this.charEscape(), fold);
      } else {
        this.at++;
        out += this.range(char, fold);
      }
    }
  }

  /** A character of a set, or the range that begins with it. */
  private range(from: string, fold: boolean): string {
    const { chars } = this;
    if (chars[this.at] !== "-" || chars[this.at + 1] === "]" || chars[this.at + 1] === undefined) {
      return fold ? folded(from).map(inSet).join("") : inSet(from);
    }
    this.at++;
    let to = chars[this.at++]!;
    if (to === "\\") {
      if (this.classEscape() !== undefined) return this.refuse("a range that ends in a class");
      to = this.charEscape();
    } else if (to === "[") return this.refuse(`"[" in a set`);
    const range = `${inSet(from)}-${inSet(to)}`;
    if (!fold) return range;
    const other = /^[a-z]$/.test(from) && /^[a-z]$/.test(to) ? [from.toUpperCase(), to.toUpperCase()] : undefined;
    const lower = /^[A-Z]$/.test(from) && /^[A-Z]$/.test(to) ? [from.toLowerCase(), to.toLowerCase()] : undefined;
    const ends = other ?? lower;
    if (ends === undefined)
      return /^[0-9]$/.test(from) && /^[0-9]$/.test(to) ? range : this.refuse("a range under (?i)");
    const [low, high] = other === undefined ? lower! : [from, to];
    const extra = Object.entries(FOLDS).map(([ascii, char]) => (low! <= ascii && ascii <= high! ? char : ""));
    return `${range}${ends[0]}-${ends[1]}${extra.join("")}`;
  }

  private ahead(text: string): boolean {
    return text === this.chars.slice(this.at, this.at + text.length).join("");
  }

  private refuse(what: string): never {
    throw new TokenizerUnsupported(
      `the pattern ${JSON.stringify(this.source)} has ${what}, which is not translated`,
      {},
      "prepare the data with the Python library, or report the tokenizer",
    );
  }
}

function letter(char: string, fold: boolean): string {
  const all = fold ? folded(char) : [char];
  return all.length === 1 ? literal(char) : `[${all.join("")}]`;
}

/** A character and those that fold alike. Beyond ASCII: what the two case maps give. */
function folded(char: string): string[] {
  const lower = char.toLowerCase();
  const all = new Set([char, lower, char.toUpperCase(), FOLDS[lower] ?? char]);
  return [...all].filter((other) => Array.from(other).length === 1);
}

function literal(char: string): string {
  return /[\^$\\.*+?()[\]{}|/]/.test(char) ? `\\${char}` : char;
}

function inSet(char: string): string {
  return /[\^\\[\](){}/|&\-!#%,:;<=>@`~]/.test(char) ? `\\${char}` : char;
}
