/**
 * Parser of one record: an object of JSON (RFC 8259), straight from UTF-8 bytes into field builders.
 *
 * `JSON.parse` makes a boxed number of every token id and rounds integers beyond 2^53; simdjson bindings for Node (node-simdjson) give
 * the same objects. Here digits become int32 in place: about 10 times less work. No value makes a string, save fractions.
 *
 * Contract: strict in all of a record, also in values that nobody asked for, so that every reader finds the same records bad.
 * What is wrong is thrown as `Malformed` (the bytes) or, by `conclude`, as `Unfit` (a value), with `at` at the place.
 *
 * @example
 * const parser = new RecordParser(keys, false);
 * parser.open(bytes);
 * parser.parse(0, bytes.length, 0); // record 0 → the builders of `keys`
 */
import { workbench } from "../../kernels/workbench.ts";
import { Unfit, type FieldBuilder } from "./field.ts";
import type { Key, Keys } from "./keys.ts";

/** The bytes are no JSON. */
export class Malformed extends Error {}

const MAX_DEPTH = 256;
const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const COLON = 0x3a;
const OPEN_LIST = 0x5b;
const CLOSE_LIST = 0x5d;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;
const MINUS = 0x2d;

/** Behind so many integers of a list, or bytes of its rest, the kernel pays. */
const LONG = 16;
/** Bytes that it is given at once. */
const PIECE = 4096;
/** Integers that they can be: each with its comma. */
const MOST = PIECE / 2;
/** What was read last in a list. */
const OPENED = 0;
const COMMA_READ = 1;
const VALUE_READ = 2;
const IN_LISTS: Readonly<Record<number, string>> = {
  [QUOTE]: "holds lists of text",
  [OPEN_OBJECT]: "holds numbers and objects in a list",
  0x6e: "holds null in a list",
};

export class RecordParser {
  /** Where parsing stands: behind the record, or at what is wrong. */
  at = 0;
  private readonly keys: Keys;
  /** 0x0A may stand between tokens: in an array, not in lines. */
  private readonly newlines: boolean;
  private bytes: Buffer = Buffer.alloc(0);
  private end = 0;
  private unfit: { error: Unfit; at: number } | undefined;

  constructor(keys: Keys, newlines: boolean) {
    this.keys = keys;
    this.newlines = newlines;
  }

  open(bytes: Buffer): void {
    this.bytes = bytes;
  }

  /**
   * Parses the object that begins at or (behind white space) after `from`; its values become those of `record`. A value that does
   * not fit is kept for `conclude`: bytes that are no JSON come first, for every reader.
   */
  parse(from: number, end: number, record: number): void {
    this.at = from;
    this.end = end;
    this.unfit = undefined;
    this.space();
    if (this.bytes[this.at] !== OPEN_OBJECT || this.at >= end) throw this.notObject();
    this.at++;
    this.space();
    if (this.here() === CLOSE_OBJECT) {
      this.at++;
      return;
    }
    for (let member = 0; ; member++) {
      const key = this.key(member);
      this.space();
      if (this.here() !== COLON) throw this.malformed("expected ':' behind a key");
      this.at++;
      this.space();
      if (key.field === undefined) this.skip();
      else this.tryValue(key.field, record);
      this.space();
      const next = this.here();
      this.at++;
      if (next === CLOSE_OBJECT) return;
      if (next !== COMMA) {
        this.at--;
        throw this.malformed("expected ',' or '}' behind a value");
      }
      this.space();
    }
  }

  /** Nothing but white space up to `end`, or an error. */
  finish(): void {
    this.space();
    if (this.at < this.end) throw this.malformed("bytes behind the object");
  }

  /** Throws the first value of the record that does not fit, with `at` there. */
  conclude(): void {
    if (this.unfit === undefined) return;
    this.at = this.unfit.at;
    throw this.unfit.error;
  }

  /** The byte at `at`, −1 at the end. */
  private here(): number {
    return this.at < this.end ? this.bytes[this.at]! : -1;
  }

  private space(): void {
    const { bytes, end } = this;
    let { at } = this;
    while (at < end) {
      const byte = bytes[at]!;
      if (byte !== 0x20 && byte !== 0x09 && byte !== 0x0d && (byte !== 0x0a || !this.newlines)) break;
      at++;
    }
    this.at = at;
  }

  private key(member: number): Key {
    const { bytes } = this;
    if (this.here() !== QUOTE) throw this.malformed("expected a key in quotes");
    const from = this.at + 1;
    // Records of a file have their keys in one order, so the next one is known beforehand.
    const guess = this.keys.guess(member);
    if (guess !== undefined) {
      const { raw } = guess;
      const behind = from + raw.length;
      if (behind < this.end && bytes[behind] === QUOTE) {
        let i = 0;
        while (i < raw.length && bytes[from + i] === raw[i]) i++;
        if (i === raw.length) {
          this.at = behind + 1;
          return guess;
        }
      }
    }
    this.string();
    return this.keys.find(bytes, from, this.at - 1, member);
  }

  private tryValue(field: FieldBuilder, record: number): void {
    const from = this.at;
    try {
      this.value(field, record);
    } catch (error) {
      if (!(error instanceof Unfit)) throw error;
      this.unfit ??= { error, at: this.at };
      this.at = from;
      this.skip();
    }
  }

  private value(field: FieldBuilder, record: number): void {
    const byte = this.here();
    field.begin(record);
    if (byte === OPEN_LIST) {
      const from = this.at;
      field.putsList();
      if (this.list(field)) field.putWritten(this.bytes, from, this.at);
      field.end(record);
    } else if (byte === QUOTE) {
      if (field.putsText()) this.text(field);
      else this.string();
      field.end(record);
    } else if (byte === MINUS || isDigit(byte)) {
      this.number(field);
      field.end(record);
    } else if (byte === OPEN_OBJECT) {
      const from = this.at;
      const kept = field.putsJson();
      this.skip();
      if (kept) {
        field.putWritten(this.bytes, from, this.at);
        field.end(record);
      }
    } else if (byte === 0x6e) {
      this.word("null");
    } else {
      field.putInt(this.truth());
      field.end(record);
    }
  }

  /** A list of numbers; lists in it are flattened. True: it holds objects, and is to be kept as it is written. */
  private list(field: FieldBuilder): boolean {
    const start = this.at;
    this.at++;
    let depth = 1;
    let state: typeof OPENED | typeof COMMA_READ | typeof VALUE_READ = OPENED;
    for (;;) {
      if (state !== VALUE_READ && this.integers(field)) state = COMMA_READ;
      this.space();
      const byte = this.here();
      if (byte === CLOSE_LIST) {
        if (state === COMMA_READ) throw this.malformed("expected a value behind ','");
        this.at++;
        if (--depth === 0) return false;
        state = VALUE_READ;
      } else if (state === VALUE_READ) {
        if (byte !== COMMA) throw this.malformed("expected ',' or ']' in a list");
        this.at++;
        state = COMMA_READ;
      } else if (byte === OPEN_LIST) {
        this.at++;
        if (++depth > MAX_DEPTH) throw this.malformed(`lists are nested deeper than ${MAX_DEPTH}`);
        state = OPENED;
      } else if (byte === OPEN_OBJECT && field.isEmpty) {
        const kept = field.putsJson();
        this.at = start;
        this.skip();
        return kept;
      } else if (byte === QUOTE || byte === OPEN_OBJECT || byte === 0x6e) {
        field.refuse(IN_LISTS[byte]!);
        this.at = start;
        this.skip();
        return false;
      } else {
        if (byte === MINUS || isDigit(byte)) this.number(field);
        else field.putInt(this.truth());
        state = VALUE_READ;
      }
    }
  }

  /**
   * The hot path: integers of up to 9 digits with commas behind them, straight into the field's int32 values; true: there was
   * one. Stops before whatever else comes, which `list` then looks at: a number that no comma follows at once is read again
   * there. Bytes behind the record may be looked at, and taken for numbers: then `list` finds that the record has ended.
   */
  private integers(field: FieldBuilder): boolean {
    if (!field.takesIntegers()) return false;
    const { bytes, end } = this;
    let { at } = this;
    let { i32, n } = field;
    const first = n;
    // The longest number with sign, space and comma: loads within the array need no check for `undefined`.
    const limit = bytes.length - 16;
    for (let warm = n + LONG; at < limit;) {
      if (n === warm) {
        field.n = n;
        at = this.manyIntegers(field, at);
        ({ i32, n } = field);
      }
      let to = at;
      let byte = bytes[to]!;
      if (byte === 0x20) byte = bytes[++to]!;
      const negative = byte === MINUS;
      if (negative) byte = bytes[++to]!;
      let value = (byte - 0x30) | 0;
      if (value >>> 0 > 9) break;
      let digit = (bytes[++to]! - 0x30) | 0;
      if (digit >>> 0 <= 9) {
        if (value === 0) break;
        const most = to + 9;
        do {
          value = (value * 10 + digit) | 0;
          digit = (bytes[++to]! - 0x30) | 0;
        } while (digit >>> 0 <= 9 && to < most);
        // 10 digits or more: int32 may not hold it.
        if (to === most) break;
      }
      if (digit !== COMMA - 0x30) break;
      if (n === i32.length) {
        field.n = n;
        field.reserveInts(1);
        ({ i32 } = field);
      }
      i32[n++] = negative ? -value | 0 : value;
      at = to + 1;
    }
    if (n === first) return false;
    field.n = n;
    this.at = Math.min(at, end);
    return true;
  }

  /** The rest of a long list by the kernel, from `at` on; where it stopped, behind a comma. */
  private manyIntegers(field: FieldBuilder, from: number): number {
    const { bytes, end } = this;
    const bench = workbench();
    let at = from;
    // A Parquet block in work may hold all of the output; one integer more to lie alike.
    if (bench.room < (MOST + 1) * 4) return at;
    while (end - at > LONG) {
      const length = Math.min(end - at, PIECE);
      bench.place(bytes.subarray(at, at + length));
      // As the values will lie in the field's: V8 copies out of shared memory byte by byte else.
      const out = bench.output + (field.n & 1) * 4;
      const { count, next } = bench.kernels.readDigits(bench.input, length, out, MOST);
      field.putInts(bench.intsAt(out, count));
      at += next;
      // It stopped at something else than the last number of the piece, which may be cut.
      if (next < length - LONG) break;
    }
    return at;
  }

  private number(field: FieldBuilder): void {
    const { bytes } = this;
    const from = this.at;
    const negative = bytes[from] === MINUS;
    if (negative) this.at++;
    const digits = this.at;
    const lead = this.digits("a digit");
    if (bytes[digits] === 0x30 && lead > 1) throw this.malformed("a number begins with 0");
    let byte = this.here();
    if (byte !== 0x2e && byte !== 0x65 && byte !== 0x45) {
      // 2^53 has 16 digits.
      if (lead > 15) {
        const written = bytes.toString("latin1", from, this.at);
        const value = Number(written);
        if (Number.isSafeInteger(value)) field.putInt(value);
        else field.putBig(written);
        return;
      }
      let value = 0;
      for (let at = digits; at < this.at; at++) value = value * 10 + (bytes[at]! - 0x30);
      field.putInt(negative && value !== 0 ? -value : value);
      return;
    }
    if (byte === 0x2e) {
      this.at++;
      this.digits("a digit behind '.'");
      byte = this.here();
    }
    if (byte === 0x65 || byte === 0x45) {
      this.at++;
      const sign = this.here();
      if (sign === MINUS || sign === 0x2b) this.at++;
      this.digits("a digit in the exponent");
    }
    const written = bytes.toString("latin1", from, this.at);
    field.putFloat(Number(written), written);
  }

  /** Passes over digits; how many. */
  private digits(expected: string): number {
    const { bytes, end } = this;
    let { at } = this;
    const from = at;
    while (at < end && isDigit(bytes[at]!)) at++;
    this.at = at;
    if (at === from) throw this.malformed(`expected ${expected}`);
    return at - from;
  }

  private truth(): 0 | 1 {
    const byte = this.here();
    if (byte === 0x74) this.word("true");
    else if (byte === 0x66) this.word("false");
    else throw this.malformed(byte < 0 ? "a value is missing" : "expected a value");
    return byte === 0x74 ? 1 : 0;
  }

  private word(word: string): void {
    for (let i = 0; i < word.length; i++, this.at++) {
      if (this.here() !== word.charCodeAt(i)) throw this.malformed("expected a value");
    }
  }

  /** A string into the field's text, as UTF-8: escapes decoded, a lone surrogate is U+FFFD. */
  private text(field: FieldBuilder): void {
    const { bytes, end } = this;
    let from = this.at + 1;
    let at = from;
    for (;;) {
      let byte = 0;
      while (at < end && (byte = bytes[at]!) >= 0x20 && byte !== QUOTE && byte !== BACKSLASH) at++;
      const length = at - from;
      field.reserveText(length + 4);
      if (length > 32) field.text.set(bytes.subarray(from, at), field.n);
      else for (let i = 0; i < length; i++) field.text[field.n + i] = bytes[from + i]!;
      field.n += length;
      this.at = at;
      if (at >= end) throw this.malformed("the text does not end");
      if (byte === QUOTE) {
        this.at++;
        return;
      }
      if (byte < 0x20) throw this.malformed(`byte 0x${byte.toString(16).padStart(2, "0")} in text, expected an escape`);
      field.n += this.escape(field.text, field.n);
      at = this.at;
      from = at;
    }
  }

  /** The escape at `at` as UTF-8 bytes at `to`; how many. */
  private escape(target: Uint8Array, to: number): number {
    const { bytes } = this;
    this.at++;
    const byte = this.here();
    this.at++;
    if (byte !== 0x75) {
      const plain = ESCAPES[byte] ?? 0;
      if (byte < 0 || plain === 0) {
        this.at--;
        throw this.malformed("no escape of JSON");
      }
      target[to] = plain;
      return 1;
    }
    let code = this.hex();
    if (code >= 0xd800 && code < 0xe000) {
      const low = bytes[this.at] === BACKSLASH && bytes[this.at + 1] === 0x75 ? this.peekHex(this.at + 2) : -1;
      if (code < 0xdc00 && low >= 0xdc00 && low < 0xe000) {
        this.at += 6;
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
      } else code = 0xfffd;
    }
    return putCode(target, to, code);
  }

  private hex(): number {
    const code = this.peekHex(this.at);
    if (code < 0) throw this.malformed("expected 4 hexadecimal digits behind \\u");
    this.at += 4;
    return code;
  }

  private peekHex(at: number): number {
    if (at + 4 > this.end) return -1;
    let code = 0;
    for (let i = 0; i < 4; i++) {
      const digit = HEX[this.bytes[at + i]!]!;
      if (digit === 0xff) return -1;
      code = code * 16 + digit;
    }
    return code;
  }

  /** Passes over a string. */
  private string(): void {
    const { bytes, end } = this;
    let at = this.at + 1;
    for (;;) {
      let byte = 0;
      while (at < end && (byte = bytes[at]!) >= 0x20 && byte !== QUOTE && byte !== BACKSLASH) at++;
      this.at = at;
      if (at >= end) throw this.malformed("the text does not end");
      if (byte === QUOTE) {
        this.at++;
        return;
      }
      if (byte < 0x20) throw this.malformed(`byte 0x${byte.toString(16).padStart(2, "0")} in text, expected an escape`);
      this.escape(SCRATCH, 0);
      at = this.at;
    }
  }

  /** Passes over any value. */
  private skip(): void {
    // One entry a level: what closes it.
    const open: number[] = [];
    for (;;) {
      const byte = this.here();
      if (byte === OPEN_LIST || byte === OPEN_OBJECT) {
        if (open.length === MAX_DEPTH) throw this.malformed(`values are nested deeper than ${MAX_DEPTH}`);
        this.at++;
        this.space();
        const close = byte === OPEN_LIST ? CLOSE_LIST : CLOSE_OBJECT;
        if (this.here() !== close) {
          open.push(close);
          if (byte === OPEN_OBJECT) this.skipKey();
          continue;
        }
        this.at++;
      } else if (byte === QUOTE) this.string();
      else if (byte === MINUS || isDigit(byte)) this.skipNumber();
      else if (byte === 0x6e) this.word("null");
      else this.truth();
      // Behind a value.
      for (;;) {
        if (open.length === 0) return;
        this.space();
        const next = this.here();
        const close = open.at(-1)!;
        if (next === close) {
          open.pop();
          this.at++;
          continue;
        }
        if (next !== COMMA) throw this.malformed(`expected ',' or '${String.fromCharCode(close)}'`);
        this.at++;
        this.space();
        if (close === CLOSE_OBJECT) this.skipKey();
        break;
      }
    }
  }

  private skipKey(): void {
    if (this.here() !== QUOTE) throw this.malformed("expected a key in quotes");
    this.string();
    this.space();
    if (this.here() !== COLON) throw this.malformed("expected ':' behind a key");
    this.at++;
    this.space();
  }

  private skipNumber(): void {
    const { bytes } = this;
    if (bytes[this.at] === MINUS) this.at++;
    const from = this.at;
    if (this.digits("a digit") > 1 && bytes[from] === 0x30) throw this.malformed("a number begins with 0");
    if (this.here() === 0x2e) {
      this.at++;
      this.digits("a digit behind '.'");
    }
    const byte = this.here();
    if (byte !== 0x65 && byte !== 0x45) return;
    this.at++;
    const sign = this.here();
    if (sign === MINUS || sign === 0x2b) this.at++;
    this.digits("a digit in the exponent");
  }

  private notObject(): Malformed {
    const byte = this.here();
    if (byte === OPEN_LIST) return new Malformed("the record is a list, expected an object");
    if (byte === QUOTE) return new Malformed("the record is text, expected an object");
    if (byte === MINUS || isDigit(byte)) return new Malformed("the record is a number, expected an object");
    return this.malformed("expected an object");
  }

  private malformed(what: string): Malformed {
    const byte = this.here();
    if (byte === 0x4e || byte === 0x49) return new Malformed("NaN and Infinity are no JSON (write null, or a number)");
    if (byte < 0) return new Malformed(`the record ends too early: ${what}`);
    const seen =
      byte >= 0x21 && byte < 0x7f ? `'${String.fromCharCode(byte)}'` : `byte 0x${byte.toString(16).padStart(2, "0")}`;
    return new Malformed(`${what}, found ${seen}`);
  }
}

function isDigit(byte: number): boolean {
  return byte >= 0x30 && byte <= 0x39;
}

const SCRATCH = new Uint8Array(4);
const ESCAPES: Readonly<Record<number, number>> = {
  0x22: 0x22,
  0x5c: 0x5c,
  0x2f: 0x2f,
  0x62: 8,
  0x66: 12,
  0x6e: 10,
  0x72: 13,
  0x74: 9,
};
const HEX = Uint8Array.from({ length: 256 }, (_, byte) => {
  const digit = Number.parseInt(String.fromCharCode(byte), 16);
  return Number.isNaN(digit) ? 0xff : digit;
});

function putCode(target: Uint8Array, to: number, code: number): number {
  if (code < 0x80) {
    target[to] = code;
    return 1;
  }
  const bytes = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  for (let i = bytes - 1; i > 0; i--) {
    target[to + i] = 0x80 | (code & 0x3f);
    code >>= 6;
  }
  target[to] = [0xc0, 0xe0, 0xf0][bytes - 2]! | code;
  return bytes;
}
