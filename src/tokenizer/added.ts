/**
 * Added tokens: finds them in a text, as `tokenizers` does: leftmost, longest first, with white space to their sides where a
 * token asks for that. A special token that is to stay text is found too and passed over, so that no token inside it is.
 */
import type { AddedToken } from "./types.ts";

interface Node {
  next: Map<number, Node>;
  token: AddedToken | undefined;
}

/** A token, or (id −1) the text between tokens. */
export type TakePiece = (id: number, from: number, to: number) => boolean;

/** `\w` and `\s` of Rust's regular expressions. */
const WORD = String.raw`[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}]`;
const ENDS_IN_WORD = new RegExp(`${WORD}$`, "u");
const BEGINS_WITH_WORD = new RegExp(`^${WORD}`, "u");
const SPACE = /^\p{White_Space}$/u;

export class AddedTokens {
  private readonly root: Node = { next: new Map(), token: undefined };
  /** Finds a place where a token may begin. */
  private readonly first: RegExp | undefined;
  private readonly parseSpecial: boolean;

  /** `normalize`: what the text went through, for tokens that are looked for behind it. */
  constructor(tokens: readonly AddedToken[], parseSpecial: boolean, normalize?: (text: string) => string) {
    this.parseSpecial = parseSpecial;
    for (const token of tokens) {
      const content = normalize === undefined ? token.content : normalize(token.content);
      if (content !== "") this.insert(content, token);
    }
    const units = [...this.root.next.keys()].map((unit) => `\\u${unit.toString(16).padStart(4, "0")}`);
    // Without `u`: code units. A text has no lone surrogates, so half of a pair is only found where the pair is.
    this.first = units.length === 0 ? undefined : new RegExp(`[${units.join("")}]`, "g");
  }

  /** Cuts a text at the tokens in it, but for those that begin where `literal` says. False: was stopped. */
  cut(text: string, take: TakePiece, literal?: (at: number) => boolean): boolean {
    const { first } = this;
    if (first === undefined) return text === "" || take(-1, 0, text.length);
    let done = 0;
    let at = 0;
    for (;;) {
      first.lastIndex = at;
      if (!first.test(text)) break;
      const found = this.longest(text, first.lastIndex - 1);
      if (found === undefined) {
        at = first.lastIndex;
        continue;
      }
      at = found.to;
      if (literal?.(found.from) === true) continue;
      const piece = this.accept(text, found, done);
      if (piece === undefined) continue;
      if (piece.from > done && !take(-1, done, piece.from)) return false;
      if (!take(found.token.id, piece.from, piece.to)) return false;
      done = piece.to;
    }
    return done >= text.length || take(-1, done, text.length);
  }

  private insert(content: string, token: AddedToken): void {
    let node = this.root;
    for (let at = 0; at < content.length; at++) {
      const unit = content.charCodeAt(at);
      let next = node.next.get(unit);
      if (next === undefined) {
        next = { next: new Map(), token: undefined };
        node.next.set(unit, next);
      }
      node = next;
    }
    node.token ??= token;
  }

  private longest(text: string, from: number): { token: AddedToken; from: number; to: number } | undefined {
    let found: { token: AddedToken; from: number; to: number } | undefined;
    let node = this.root.next.get(text.charCodeAt(from));
    for (let to = from + 1; node !== undefined; to++) {
      if (node.token !== undefined) found = { token: node.token, from, to };
      node = to < text.length ? node.next.get(text.charCodeAt(to)) : undefined;
    }
    return found;
  }

  /** Where the token with its white space lies; undefined: it does not count here. */
  private accept(
    text: string,
    { token, from, to }: { token: AddedToken; from: number; to: number },
    done: number,
  ): { from: number; to: number } | undefined {
    if (token.special && !this.parseSpecial) return undefined;
    if (token.single_word) {
      // Two code units hold the character next to it.
      if (ENDS_IN_WORD.test(whole(text.slice(Math.max(0, from - 2), from)))) return undefined;
      if (BEGINS_WITH_WORD.test(text.slice(to, to + 2))) return undefined;
    }
    let begin = from;
    let end = to;
    if (token.lstrip) while (begin > done && SPACE.test(text[begin - 1]!)) begin--;
    if (token.rstrip) while (end < text.length && SPACE.test(text[end]!)) end++;
    return { from: begin, to: end };
  }
}

/** Without the second half of a pair that was cut. */
function whole(text: string): string {
  const unit = text.charCodeAt(0);
  return unit >= 0xdc00 && unit <= 0xdfff ? text.slice(1) : text;
}
