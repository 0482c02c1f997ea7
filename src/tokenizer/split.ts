/**
 * Split: pre-tokenizers of `tokenizer.json` that cut a text into words, as functions that hand the words on one by one, so that a
 * reader that has enough can stop.
 *
 * @example
 * const cut = splitterOf([{ type: "Digits", individual_digits: true }]);
 * cut("a12", (word) => (words.push(word), true)); // "a", "1", "2"
 */
import { TokenizerUnsupported } from "./errors.ts";
import { compilePattern, literalPattern, translate } from "./pattern.ts";
import type { Part } from "./types.ts";

/** Takes a word; false: no more of them. */
type Take = (word: string) => boolean;
/** Cuts a text; false: was stopped. */
export type Splitter = (text: string, take: Take) => boolean;

/** GPT-2's, which `ByteLevel` brings along. */
const GPT2 = String.raw`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`;

/** One splitter for a list of pre-tokenizers: each cuts the words of the one before. `ByteLevel` must be the last. */
export function splitterOf(parts: readonly Part[]): Splitter {
  const stages = parts.flatMap((part) => stagesOf(part));
  if (stages.length === 0) return (text, take) => text === "" || take(text);
  return stages.reduceRight((inner, outer) => (text, take) => outer(text, (word) => inner(word, take)));
}

/** A pre-tokenizer and those of its `Sequence`, in order. */
export function flatten(part: Part | null): Part[] {
  if (part === null) return [];
  return part.type === "Sequence" ? (part["pretokenizers"] as Part[]).flatMap((inner) => flatten(inner)) : [part];
}

function stagesOf(part: Part): Splitter[] {
  switch (part.type) {
    case "Split":
      return [splitPart(part)];
    case "Digits":
      // Rust's own tables, of the Unicode that Node has too: no translation.
      return [part["individual_digits"] === true ? isolatedBy("\\p{N}") : isolatedBy("\\p{N}+")];
    case "ByteLevel": {
      const prefix: Splitter = (text, take) => take(text.startsWith(" ") ? text : ` ${text}`);
      return [
        ...(part["add_prefix_space"] === true ? [prefix] : []),
        ...(part["use_regex"] === false ? [] : [isolated(GPT2)]),
      ];
    }
    default:
      return unsupported(`the pre-tokenizer ${part.type}`);
  }
}

function splitPart(part: Part): Splitter {
  const pattern = part["pattern"] as { Regex?: string; String?: string };
  const source = pattern.Regex ?? literalPattern(pattern.String ?? "");
  return withBehavior(source, part["behavior"], part["invert"] === true);
}

function withBehavior(source: string, behavior: unknown, invert: boolean): Splitter {
  // Isolated words are the same whichever of them count as matches.
  if (behavior === "Isolated") return isolated(source);
  const regex = compilePattern(source, "g");
  const merge = MERGES[String(behavior)];
  if (merge === undefined) return unsupported(`the split behavior ${String(behavior)}`);
  return (text, take) => {
    const pieces = merge(piecesOf(regex, text, invert));
    for (const { from, to } of pieces) if (to > from && !take(text.slice(from, to))) return false;
    return true;
  };
}

/**
 * Matches and what lies between them. Tested at the end of the last match first: in most patterns each character is of some
 * match, and `test` makes no array of what it found, as `exec` does.
 */
function isolated(source: string): Splitter {
  return isolatedBy(translate(source));
}

function isolatedBy(source: string): Splitter {
  const sticky = new RegExp(source, "vy");
  const global = new RegExp(source, "vg");
  return (text, take) => {
    const { length } = text;
    let at = 0;
    while (at < length) {
      sticky.lastIndex = at;
      if (sticky.test(text) && sticky.lastIndex > at) {
        const end = sticky.lastIndex;
        if (!take(at === 0 && end === length ? text : text.slice(at, end))) return false;
        at = end;
        continue;
      }
      // An empty match at `at` is none: look behind the next character.
      let from = at;
      let found: RegExpExecArray | null;
      do {
        global.lastIndex = from;
        found = global.exec(text);
        from = at + (text.codePointAt(at)! > 0xffff ? 2 : 1);
      } while (found !== null && found.index === at && global.lastIndex < from);
      const next = found === null ? length : found.index;
      if (!take(at === 0 && next === length ? text : text.slice(at, next))) return false;
      at = next;
    }
    return true;
  };
}

interface Piece {
  from: number;
  to: number;
  match: boolean;
}

function piecesOf(regex: RegExp, text: string, invert: boolean): Piece[] {
  const pieces: Piece[] = [];
  let at = 0;
  for (const { index, 0: found } of text.matchAll(regex)) {
    if (index > at) pieces.push({ from: at, to: index, match: invert });
    at = index + found.length;
    pieces.push({ from: index, to: at, match: !invert });
  }
  if (at < text.length) pieces.push({ from: at, to: text.length, match: invert });
  return pieces;
}

/** Behaviors as `tokenizers` has them, on pieces in order. */
const MERGES: Record<string, (pieces: Piece[]) => Piece[]> = {
  Removed: (pieces) => pieces.filter(({ match }) => !match),
  Contiguous: (pieces) => joined(pieces, (piece, before) => piece.match === before),
  MergedWithPrevious: (pieces) => joined(pieces, (piece, before) => piece.match && !before),
  MergedWithNext: (pieces) => joined(pieces.reverse(), (piece, before) => piece.match && !before).reverse(),
};

/** Joins a piece to the one before it where `joins` says so; `before`: that one was a match. */
function joined(pieces: readonly Piece[], joins: (piece: Piece, before: boolean) => boolean): Piece[] {
  const out: Piece[] = [];
  let before = false;
  for (const piece of pieces) {
    const last = out.at(-1);
    if (last !== undefined && joins(piece, before)) {
      last.from = Math.min(last.from, piece.from);
      last.to = Math.max(last.to, piece.to);
    } else out.push({ ...piece });
    before = piece.match;
  }
  return out;
}

function unsupported(what: string): never {
  throw new TokenizerUnsupported(`${what} is not one that byte-level BPE is read with`);
}
