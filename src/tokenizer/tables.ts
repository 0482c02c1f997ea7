/**
 * Tables: vocabulary and merges of a byte-level BPE in shared memory, for all decode workers at once.
 *
 * ```
 * merges   ┌ left id │ right id │ rank │ id of both ┐ × 2^k, at most half of them used; left −1: free
 * words    bytes of all words, one behind the other; slots ┌ start │ length │ id ┐ × 2^k; length 0: free
 * ```
 */
import { TokenizerUnreadable } from "./errors.ts";
import type { BpeTables, WordTable } from "./types.ts";

export type Vocabulary = Readonly<Record<string, number>>;

/** Ranks are packed with a place in the word (`bpe.ts`). */
const MAX_MERGES = 2 ** 22;

/** The character that stands for each byte in a vocabulary, as GPT-2 chose them: printable ones for themselves. */
export const BYTE_CHARS: readonly string[] = byteChars();

function byteChars(): string[] {
  const printable = (byte: number): boolean =>
    (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || (byte >= 0xae && byte <= 0xff);
  let next = 256;
  return Array.from({ length: 256 }, (_, byte) => String.fromCharCode(printable(byte) ? byte : next++));
}

/** Tables of a model. `wholeWords`: words that stand in the vocabulary are not merged but taken. */
export function buildTables(
  vocab: Vocabulary,
  merges: readonly unknown[],
  wholeWords: boolean,
  file: string,
): BpeTables {
  const known = new Map(Object.entries(vocab));
  const bytes = new Int32Array(shared(1024));
  BYTE_CHARS.forEach((char, byte) => (bytes[byte] = known.get(char) ?? -1));
  if (merges.length > MAX_MERGES) throw new TokenizerUnreadable(`${merges.length} merges are too many`, { file });
  const table = new Int32Array(shared(capacity(merges.length) * 16)).fill(-1);
  merges.forEach((merge, rank) => {
    const parts: unknown[] = typeof merge === "string" ? merge.split(" ") : Array.isArray(merge) ? merge : [];
    const [left, right] = parts;
    if (parts.length !== 2 || typeof left !== "string" || typeof right !== "string") {
      throw new TokenizerUnreadable(`merge ${rank} is ${JSON.stringify(merge)}, expected two tokens`, { file });
    }
    const [a, b, both] = [known.get(left), known.get(right), known.get(left + right)];
    if (a === undefined || b === undefined || both === undefined) {
      throw new TokenizerUnreadable(
        `merge ${rank}, ${JSON.stringify(merge)}, makes a token that is not in the vocabulary`,
        { file },
      );
    }
    const at = slotOf(table, a, b);
    // The last of equal ones holds, as in `tokenizers`.
    table.set([a, b, rank, both], at);
  });
  const lengths = lengthsOf(known);
  return wholeWords ? { bytes, merges: table, lengths, words: buildWords(known) } : { bytes, merges: table, lengths };
}

/** Each character of a token is a byte. */
function lengthsOf(known: ReadonlyMap<string, number>): Uint16Array {
  let most = -1;
  for (const id of known.values()) most = Math.max(most, id);
  const lengths = new Uint16Array(shared((most + 1) * 2));
  for (const [token, id] of known) lengths[id] = token.length;
  return lengths;
}

/** Where the merge of two ids stands, or the free slot where it would. */
export function slotOf(table: Int32Array, a: number, b: number): number {
  const mask = (table.length >>> 2) - 1;
  let hash = Math.imul(a, 0x9e3779b1) ^ Math.imul(b, 0x85ebca6b);
  hash ^= hash >>> 15;
  for (;;) {
    hash &= mask;
    const at = hash << 2;
    const left = table[at]!;
    if ((left === a && table[at + 1] === b) || left === -1) return at;
    hash++;
  }
}

/** Id of a whole word by its bytes; −1: not in the table. */
export function wordId({ bytes, slots }: WordTable, word: Uint8Array, length: number): number {
  const mask = slots.length / 3 - 1;
  for (let slot = hashOf(word, length) & mask; ; slot = (slot + 1) & mask) {
    const at = slot * 3;
    const size = slots[at + 1]!;
    if (size === 0) return -1;
    if (size !== length) continue;
    const from = slots[at]!;
    let same = 0;
    while (same < length && bytes[from + same] === word[same]) same++;
    if (same === length) return slots[at + 2]!;
  }
}

function buildWords(known: ReadonlyMap<string, number>): WordTable {
  const byteOf = new Map(BYTE_CHARS.map((char, byte) => [char, byte]));
  const words: { bytes: number[]; id: number }[] = [];
  for (const [token, id] of known) {
    // Others (special tokens) hold characters that no byte stands for: no word is ever like them.
    const bytes = Array.from(token, (char) => byteOf.get(char));
    if (bytes.length > 0 && !bytes.includes(undefined)) words.push({ bytes: bytes as number[], id });
  }
  const blob = new Uint8Array(shared(words.reduce((sum, { bytes }) => sum + bytes.length, 0)));
  const slots = new Int32Array(shared(capacity(words.length) * 12));
  const mask = slots.length / 3 - 1;
  let from = 0;
  for (const { bytes, id } of words) {
    blob.set(bytes, from);
    let slot = hashOf(bytes, bytes.length) & mask;
    while (slots[slot * 3 + 1] !== 0) slot = (slot + 1) & mask;
    slots.set([from, bytes.length, id], slot * 3);
    from += bytes.length;
  }
  return { bytes: blob, slots };
}

function hashOf(bytes: ArrayLike<number>, length: number): number {
  let hash = 0x811c9dc5;
  for (let at = 0; at < length; at++) hash = Math.imul(hash ^ bytes[at]!, 0x01000193);
  return hash ^ (hash >>> 15);
}

/** A power of two, at least twice as many. */
function capacity(entries: number): number {
  return 2 ** Math.ceil(Math.log2(Math.max(entries, 8) * 2));
}

function shared(bytes: number): SharedArrayBuffer {
  return new SharedArrayBuffer(bytes);
}
