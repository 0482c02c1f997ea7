/**
 * Blocks of a Megatron pair, in documents: block b holds those whose first token lies in it (those without tokens: that is the
 * place where the next one begins). Its segments are their tokens, their entries in the `.idx`, and the entry behind them.
 *
 * @example
 * for await (const block of documentBlocks(meta, idx)) table.add(block);
 */
import type { ReadableObject } from "../../storage/types.ts";
import { Unsupported } from "../errors.ts";
import { blockBorders, itemBytes, placeOf } from "../tokens.ts";
import type { BlockTable, Segment } from "../types.ts";
import { bordersAt, pointersAt, readDocuments } from "./borders.ts";
import type { MegatronMeta } from "./idx.ts";

export interface DocumentBlock {
  block: number;
  firstDocument: number;
  documents: number;
  /** First token and first sequence of its documents, and of what comes behind them. */
  firstToken: number;
  endToken: number;
  firstSequence: number;
  endSequence: number;
}

/** The token offset of an identity has 32 bits. */
const MAX_DOCUMENT = 2 ** 32;
/** Documents looked at at a time. */
const PIECE = 1 << 16;

/** All blocks in file order, also those in which no document begins. Of a shard without tokens one with all documents. */
export async function* documentBlocks(meta: MegatronMeta, idx: ReadableObject): AsyncGenerator<DocumentBlock> {
  const borders = blockBorders(placeOf(meta));
  const blocks = Math.max(borders.length - 1, 1);
  let block = 0;
  let [firstDocument, firstToken, firstSequence] = [0, 0, 0];
  const upTo = (document: number, token: number, sequence: number): DocumentBlock => {
    const documents = document - firstDocument;
    const found = {
      block,
      firstDocument,
      documents,
      firstToken,
      firstSequence,
      endToken: token,
      endSequence: sequence,
    };
    [firstDocument, firstToken, firstSequence] = [document, token, sequence];
    block++;
    return found;
  };
  for (let from = 0; from < meta.documents; from += PIECE) {
    const to = Math.min(from + PIECE, meta.documents);
    const { sequences, first } = await readDocuments(meta, idx, from, to);
    for (let i = 0; i < to - from; i++) {
      const token = first[i]!;
      const length = first[i + 1]! - token;
      if (length >= MAX_DOCUMENT) {
        throw new Unsupported(
          `a document of ${length} tokens, fewer than 2^32 can be read`,
          { file: idx.uri, record: from + i },
          "cut it into several documents",
        );
      }
      while (block < blocks - 1 && token >= borders[block + 1]!) yield upTo(from + i, token, sequences[i]!);
    }
  }
  while (block < blocks) yield upTo(meta.documents, meta.tokens, meta.sequences);
}

/** Tokens, entries of documents, pointers of sequences; none where no document begins. */
export function segmentsOf(meta: MegatronMeta, block: DocumentBlock): (Segment & { field: number })[] {
  const { firstDocument, documents, firstToken, endToken, firstSequence, endSequence } = block;
  if (documents === 0) return [];
  const size = itemBytes(meta.type);
  // The entry behind the last sequence is no pointer: there the tokens end.
  const pointers = Math.min(endSequence + 1, meta.sequences) - firstSequence;
  return [
    { file: 0, offset: firstToken * size, length: (endToken - firstToken) * size, field: 0 },
    { file: 1, offset: bordersAt(meta) + firstDocument * 8, length: (documents + 1) * 8, field: 0 },
    { file: 1, offset: pointersAt(meta) + firstSequence * 8, length: Math.max(pointers, 0) * 8, field: 0 },
  ];
}

export class TableMaker {
  private readonly meta: MegatronMeta;
  private readonly firstRecord: number[] = [];
  private readonly segmentStart: number[] = [];
  private readonly segments: Segment[] = [];

  constructor(meta: MegatronMeta) {
    this.meta = meta;
  }

  add(block: DocumentBlock): void {
    this.firstRecord.push(block.firstDocument);
    this.segmentStart.push(this.segments.length);
    this.segments.push(...segmentsOf(this.meta, block));
  }

  finish(): BlockTable {
    const { meta, firstRecord, segmentStart } = this;
    const borders = blockBorders(placeOf(meta));
    const blocks = borders.length - 1;
    // A shard without tokens has documents, but no block.
    const segments = blocks === 0 ? [] : this.segments;
    return {
      stream: false,
      blocks,
      firstRecord: Float64Array.from([...firstRecord.slice(0, blocks), meta.documents]),
      tokens: borders.subarray(0, blocks).map((from, b) => borders[b + 1]! - from),
      segmentStart: Uint32Array.from([...segmentStart.slice(0, blocks), segments.length]),
      segmentFile: Uint32Array.from(segments, ({ file }) => file),
      segmentField: new Uint32Array(segments.length),
      segmentOffset: Float64Array.from(segments, ({ offset }) => offset),
      segmentLength: Float64Array.from(segments, ({ length }) => length),
      restartStart: new Uint32Array(blocks + 1),
      restarts: new Uint32Array(0),
    };
  }
}
