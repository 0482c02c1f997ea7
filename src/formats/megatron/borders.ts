/**
 * Borders of documents: the first token of each, from the `.idx`, a stretch at a time.
 *
 * @example
 * await readBorders(meta, idx, 0, 2); // first tokens of documents 0, 1 and 2
 */
import type { ReadableObject } from "../../storage/types.ts";
import { itemBytes } from "../tokens.ts";
import { HEAD_BYTES, int64At, invalid, viewOf, type MegatronMeta } from "./idx.ts";

/** Numbers read at a time: sequences of one document can be many. */
const PIECE = 1 << 17;

/** Documents [from, to]; document number `documents` begins behind the last token. Throws ATH_SHARD_INVALID. */
export async function readBorders(
  meta: MegatronMeta,
  idx: ReadableObject,
  from: number,
  to: number,
): Promise<Float64Array> {
  return (await readDocuments(meta, idx, from, to)).first;
}

/** First sequence and first token of documents [from, to]. */
export async function readDocuments(
  meta: MegatronMeta,
  idx: ReadableObject,
  from: number,
  to: number,
): Promise<{ sequences: Float64Array; first: Float64Array }> {
  const sequences = meta.plain
    ? Float64Array.from({ length: to - from + 1 }, (_, i) => from + i)
    : await read(idx, bordersAt(meta) + from * 8, to - from + 1);
  const first = Float64Array.from(sequences, () => meta.tokens);
  for (let next = 0; next < sequences.length && sequences[next]! < meta.sequences;) {
    const begin = sequences[next]!;
    const count = Math.min(PIECE, meta.sequences - begin, sequences.at(-1)! - begin + 1);
    const pointers = await read(idx, pointersAt(meta) + begin * 8, count);
    for (; next < sequences.length && sequences[next]! < begin + count; next++) {
      first[next] = pointers[sequences[next]! - begin]! / itemBytes(meta.type);
    }
  }
  return { sequences, first: checked(first, meta, idx.uri) };
}

/** The same from the bytes of both sections, for the documents of a block and the one behind them. */
export function bordersIn(
  documents: Uint8Array,
  pointers: Uint8Array,
  meta: MegatronMeta,
  count: number,
  file: string,
): Float64Array {
  const [borders, starts] = [viewOf(documents), viewOf(pointers)];
  const firstSequence = count === 0 || documents.length < 8 ? 0 : int64At(borders, 0);
  const first = new Float64Array(count + 1).fill(meta.tokens);
  for (let i = 0; i <= count; i++) {
    const sequence = i * 8 < documents.length ? int64At(borders, i * 8) : Number.NaN;
    if (sequence === meta.sequences) continue;
    const at = (sequence - firstSequence) * 8;
    // NaN where it lies outside: refused below.
    first[i] = at >= 0 && at + 8 <= pointers.length ? int64At(starts, at) / itemBytes(meta.type) : Number.NaN;
  }
  return checked(first, meta, file);
}

export function pointersAt({ sequences }: MegatronMeta): number {
  return HEAD_BYTES + sequences * 4;
}

export function bordersAt({ sequences }: MegatronMeta): number {
  return HEAD_BYTES + sequences * 12;
}

async function read(idx: ReadableObject, at: number, count: number): Promise<Float64Array> {
  const bytes = new Uint8Array(count * 8);
  await idx.readInto(bytes, at);
  const view = viewOf(bytes);
  return Float64Array.from({ length: count }, (_, i) => int64At(view, i * 8));
}

/** The index was checked when it was made: other numbers are damage since then. */
function checked(first: Float64Array, { tokens }: MegatronMeta, file: string): Float64Array {
  let before = 0;
  for (const [i, token] of first.entries()) {
    if (!(token >= before && token <= tokens) || !Number.isInteger(token)) {
      throw invalid(file, `a document begins at token ${token}, the one before it at ${before} of ${tokens}`, 0, i);
    }
    before = token;
  }
  return first;
}
