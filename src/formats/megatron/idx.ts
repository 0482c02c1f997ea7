/**
 * Megatron's `.idx`, version 1 (Megatron-LM, megatron/core/datasets/indexed_dataset.py): read and checked as a stream, so that
 * memory does not grow with the number of documents.
 *
 * ```
 * │ "MMIDIDX\0\0" │ u64 version 1 │ u8 type │ u64 sequences S │ u64 documents + 1 = D │
 * │ i32 lengths[S] │ i64 pointers[S] │ i64 documents[D] │ i8 modes[S], or nothing │
 * ```
 * @example
 * const { meta, crc32c } = await readIdx(idx, bin, kernels); // throws for one that contradicts itself or the .bin
 */
import type { Kernels } from "../../kernels/kernels.ts";
import { ShardTruncated } from "../../storage/errors.ts";
import type { ReadableObject } from "../../storage/types.ts";
import { SummedReader } from "../checksum.ts";
import { ShardInvalid, Unsupported } from "../errors.ts";
import { itemBytes, type TokenMeta } from "../tokens.ts";

const MAGIC = "MMIDIDX\0\0";
const FAIRSEQ = "TNTIDX\0\0";
export const HEAD_BYTES = 34;
const TYPES = new Map([
  [1, "|u1"],
  [2, "|i1"],
  [3, "<i2"],
  [4, "<i4"],
  [5, "<i8"],
  [8, "<u2"],
]);
const FLOATS = new Map([
  [6, "float64 (in older code float32)"],
  [7, "float32 (in older code float64)"],
]);
/** Looked through at a time. */
const LENGTHS = 1 << 18;
const AGAIN = "write or merge the pair again";

/** `plain`: each document is one sequence, as Megatron's own tools write them. */
export interface MegatronMeta extends TokenMeta {
  readonly sequences: number;
  readonly documents: number;
  readonly plain: boolean;
}

export function hasMagic(head: Uint8Array): boolean {
  return new TextDecoder("latin1").decode(head.slice(0, MAGIC.length)) === MAGIC;
}

/** A whole number of 64 bits: exact where it is one that a file can hold. */
export function int64At(view: DataView, at: number): number {
  return view.getInt32(at + 4, true) * 2 ** 32 + view.getUint32(at, true);
}

interface Sections {
  type: string;
  sequences: number;
  /** Borders of documents: one more than there are documents. */
  borders: number;
  pointersAt: number;
  bordersAt: number;
}

/** `bin`: its size is compared. Throws what docs/reference/formats.md says. */
export async function readIdx(
  idx: ReadableObject,
  bin: ReadableObject,
  kernels: Kernels,
  progress?: (bytes: number) => void,
): Promise<{ meta: MegatronMeta; crc32c: number }> {
  const sections = await readHead(idx);
  const { type, sequences, borders, pointersAt, bordersAt } = sections;
  const reader = new SummedReader(idx, kernels);
  // The first fault of each kind: those of documents are told first, because the others name a document.
  const check = new Checks(idx.uri, sections);
  let plain = borders === sequences + 1;
  try {
    for await (const _ of reader.pieces(0, HEAD_BYTES));
    let sequence = 0;
    for await (const piece of reader.pieces(HEAD_BYTES, pointersAt)) {
      const view = viewOf(piece);
      for (let at = 0; at < piece.length; at += 4) check.length(sequence++, view.getInt32(at, true));
      progress?.(HEAD_BYTES + sequence * 4);
    }
    sequence = 0;
    const lengths = new Lengths(idx);
    for await (const piece of reader.pieces(pointersAt, bordersAt)) {
      const view = viewOf(piece);
      await lengths.load(sequence, piece.length / 8, sequences);
      for (let at = 0; at < piece.length; at += 8, sequence++) {
        check.pointer(sequence, int64At(view, at), lengths.of(sequence));
      }
      progress?.(pointersAt + sequence * 8);
    }
    let document = 0;
    for await (const piece of reader.pieces(bordersAt, bordersAt + borders * 8)) {
      const view = viewOf(piece);
      for (let at = 0; at < piece.length; at += 8, document++) {
        const border = int64At(view, at);
        check.border(document, border);
        if (border !== document) plain = false;
      }
    }
    for await (const _ of reader.pieces(bordersAt + borders * 8, idx.size));
  } finally {
    reader.close();
  }
  check.lastBorder();
  await check.sequences(idx);
  const tokens = check.tokens;
  const size = itemBytes(type);
  if (bin.size < tokens * size) throw await shortBin(idx, bin, sections, tokens);
  if (bin.size > tokens * size) {
    throw new ShardInvalid(
      `.bin has ${bin.size} bytes, the index knows ${tokens * size}: they are not of one pair`,
      { file: bin.uri, byteOffset: tokens * size },
      AGAIN,
    );
  }
  const meta = { type, offset: 0, tokens, sequences, documents: borders - 1, plain };
  return { meta, crc32c: reader.crc32c };
}

async function readHead(idx: ReadableObject): Promise<Sections> {
  const { uri, size: bytes } = idx;
  const head = new Uint8Array(Math.min(HEAD_BYTES, bytes));
  if (head.length > 0) await idx.readInto(head, 0);
  if (!hasMagic(head)) {
    const text = new TextDecoder("latin1").decode(head.subarray(0, MAGIC.length));
    if (text.startsWith(FAIRSEQ)) throw unsupported(uri, "an old fairseq index (TNTIDX), expected MMIDIDX", 0);
    throw invalid(uri, `begins with ${JSON.stringify(text)}, expected ${JSON.stringify(MAGIC)}`, 0);
  }
  if (head.length < HEAD_BYTES) throw cut(uri, bytes, HEAD_BYTES);
  const view = viewOf(head);
  const version = view.getBigUint64(9, true);
  if (version !== 1n) throw unsupported(uri, `index version ${version}, only 1 is known`, 9);
  const code = view.getUint8(17);
  const float = FLOATS.get(code);
  if (float !== undefined) throw unsupported(uri, `dtype code ${code} is ${float}: no token ids`, 17);
  const type = TYPES.get(code);
  if (type === undefined) throw unsupported(uri, `unknown dtype code ${code}`, 17);
  const [sequences, borders] = [view.getBigUint64(18, true), view.getBigUint64(26, true)];
  if (12n * sequences > BigInt(bytes)) {
    throw invalid(uri, `sequence count ${sequences} does not fit a file of ${bytes} bytes`, 18);
  }
  if (8n * borders > BigInt(bytes)) {
    throw invalid(uri, `document count ${borders} does not fit a file of ${bytes} bytes`, 26);
  }
  const [S, D] = [Number(sequences), Number(borders)];
  const needed = HEAD_BYTES + 12 * S + 8 * D;
  if (bytes < needed) throw cut(uri, bytes, needed);
  if (bytes !== needed && bytes !== needed + S) {
    throw invalid(uri, `has ${bytes} bytes, its counts need ${needed} (with modes ${needed + S})`, needed);
  }
  if (D === 0) throw invalid(uri, `the document index is empty, there are ${S} sequences`, 26);
  return { type, sequences: S, borders: D, pointersAt: HEAD_BYTES + 4 * S, bordersAt: HEAD_BYTES + 12 * S };
}

/** Looks at all numbers of an index one after another. */
class Checks {
  tokens = 0;
  private readonly file: string;
  private readonly sections: Sections;
  private last = 0;
  /** Of all lengths before the pointer in work. */
  private given = 0;
  private negative: { sequence: number; length: number } | undefined;
  private wrong: { sequence: number; pointer: number; given: number } | undefined;

  constructor(file: string, sections: Sections) {
    this.file = file;
    this.sections = sections;
  }

  length(sequence: number, length: number): void {
    if (length < 0) this.negative ??= { sequence, length };
    this.tokens += length;
  }

  pointer(sequence: number, pointer: number, length: number): void {
    if (pointer !== this.given) this.wrong ??= { sequence, pointer, given: this.given };
    this.given += length * itemBytes(this.sections.type);
  }

  border(document: number, border: number): void {
    const at = this.sections.bordersAt + 8 * document;
    if (document === 0 && border !== 0) {
      throw invalid(this.file, `the document index starts at ${border}, expected 0`, at);
    }
    if (border < this.last) {
      throw invalid(this.file, `the document index goes down: ${this.last} then ${border}`, at);
    }
    this.last = border;
  }

  lastBorder(): void {
    const { sequences, borders, bordersAt } = this.sections;
    if (this.last === sequences) return;
    throw invalid(
      this.file,
      `the document index ends at ${this.last}, there are ${sequences} sequences (a merge lost the documents?)`,
      bordersAt + 8 * (borders - 1),
    );
  }

  async sequences(idx: ReadableObject): Promise<void> {
    if (this.negative !== undefined) {
      const { sequence, length } = this.negative;
      const record = await documentOf(idx, this.sections, sequence);
      throw invalid(this.file, `sequence ${sequence} has length ${length}`, HEAD_BYTES + 4 * sequence, record);
    }
    if (this.wrong === undefined) return;
    const { sequence, pointer, given } = this.wrong;
    const size = itemBytes(this.sections.type);
    let what = `pointer ${pointer} of sequence ${sequence}, the lengths before it give ${given}`;
    if (pointer < 0 || (given - pointer) % 2 ** 32 === 0) {
      what += " (it wraps at 2^32: a merge of more than 4 GiB in int32)";
    } else if (pointer % size !== 0) {
      what += `; it is not a multiple of the ${size}-byte item`;
    }
    const record = await documentOf(idx, this.sections, sequence);
    throw invalid(this.file, what, this.sections.pointersAt + 8 * sequence, record);
  }
}

/** Lengths of the sequences whose pointers are looked at. */
class Lengths {
  private readonly idx: ReadableObject;
  private first = 0;
  private view: DataView = new DataView(new ArrayBuffer(0));

  constructor(idx: ReadableObject) {
    this.idx = idx;
  }

  async load(first: number, count: number, sequences: number): Promise<void> {
    const bytes = new Uint8Array(Math.min(count, sequences - first) * 4);
    await this.idx.readInto(bytes, HEAD_BYTES + first * 4);
    this.first = first;
    this.view = viewOf(bytes);
  }

  of(sequence: number): number {
    return this.view.getInt32((sequence - this.first) * 4, true);
  }
}

/** The last document that begins at or before a sequence. */
async function documentOf(idx: ReadableObject, { borders, bordersAt }: Sections, sequence: number): Promise<number> {
  let [low, high] = [0, borders - 1];
  const entry = new Uint8Array(8);
  while (low < high) {
    const middle = (low + high + 1) >>> 1;
    await idx.readInto(entry, bordersAt + 8 * middle);
    if (int64At(viewOf(entry), 0) <= sequence) low = middle;
    else high = middle - 1;
  }
  return low;
}

async function shortBin(idx: ReadableObject, bin: ReadableObject, sections: Sections, tokens: number): Promise<Error> {
  const size = itemBytes(sections.type);
  const lengths = new Lengths(idx);
  let begin = 0;
  let sequence = 0;
  // The one whose end lies behind that of the file: there is one, since all lengths together do.
  for (; ; sequence++) {
    if (sequence % LENGTHS === 0) await lengths.load(sequence, LENGTHS, sections.sequences);
    const end = begin + lengths.of(sequence);
    if (end * size > bin.size) break;
    begin = end;
  }
  return new ShardTruncated(
    `.bin has ${bin.size} bytes, the index needs ${tokens * size}: it ends in sequence ${sequence}`,
    { file: bin.uri, record: await documentOf(idx, sections, sequence), byteOffset: begin * size },
    "copy the .bin again",
  );
}

export function invalid(file: string, what: string, byteOffset: number, record?: number): Error {
  return new ShardInvalid(what, { file, byteOffset, ...(record === undefined ? {} : { record }) }, AGAIN);
}

function unsupported(file: string, what: string, byteOffset: number): Error {
  const remedy = "write the pair again with integer token ids, in Megatron's present format";
  return new Unsupported(what, { file, byteOffset }, remedy);
}

function cut(file: string, found: number, needed: number): Error {
  return new ShardTruncated(
    `.idx has ${found} bytes, its counts need ${needed}`,
    { file, byteOffset: found },
    "copy the .idx again",
  );
}

export function viewOf({ buffer, byteOffset, byteLength }: Uint8Array): DataView {
  return new DataView(buffer, byteOffset, byteLength);
}
