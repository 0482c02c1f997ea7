/**
 * Cut: where the samples of a shard of tokens begin (docs/reference/formats.md, "Samples"). Arithmetic only.
 *
 * Contract: samples lie one behind another and hold every token once. A sample belongs to the block in which its first token
 * lies, and the block's segment reaches to the end of its last sample, which is where the next block's first one begins.
 *
 * @example
 * const cut = new CutTable(place, 512);
 * cut.add(0, 700); cut.add(700, 900);   // documents, or one stretch for a stream
 * const table = cut.finish();           // as of a shard whose records are the samples: 2 and 1
 */
import { blockBorders } from "../formats/tokens.ts";
import { RESTART_EVERY, type BlockSamples, type BlockTable, type TokenPlace } from "../formats/types.ts";

export class CutTable {
  private readonly place: TokenPlace;
  private readonly length: number;
  /** First token of each block. */
  private readonly borders: Float64Array;
  private readonly firstSample: Float64Array;
  /** First token of each block's first sample. */
  private readonly firstToken: Float64Array;
  private readonly restartStart: Uint32Array;
  private readonly restarts: number[] = [];
  private samples = 0;
  private block = 0;

  constructor(place: TokenPlace, length: number) {
    this.place = place;
    this.length = length;
    this.borders = blockBorders(place);
    this.firstSample = new Float64Array(this.borders.length);
    this.firstToken = new Float64Array(this.borders.length);
    this.restartStart = new Uint32Array(this.borders.length);
  }

  /** Tokens [start, end), which are cut by themselves. In file order, without gaps. */
  add(start: number, end: number): void {
    const { borders, length } = this;
    if (start === end) return;
    let done = 0;
    while (borders[this.block + 1]! < end) {
      const border = borders[this.block + 1]!;
      const before = border <= start ? 0 : Math.ceil((border - start) / length);
      this.addRestarts(start, done, before);
      done = before;
      this.next(this.samples + before, Math.min(start + before * length, end));
    }
    const all = Math.ceil((end - start) / length);
    this.addRestarts(start, done, all);
    this.samples += all;
  }

  finish(): BlockTable {
    const { borders, firstSample, firstToken, restartStart } = this;
    const { tokens, offset, itemBytes } = this.place;
    while (this.block + 1 < borders.length) this.next(this.samples, tokens);
    const blocks = borders.length - 1;
    const starts = firstToken.subarray(0, blocks);
    return {
      stream: false,
      blocks,
      firstRecord: firstSample,
      tokens: borders.subarray(0, blocks).map((from, b) => borders[b + 1]! - from),
      segmentStart: Uint32Array.from({ length: blocks + 1 }, (_, b) => b),
      segmentFile: new Uint32Array(blocks),
      segmentField: new Uint32Array(blocks),
      segmentOffset: starts.map((token) => offset + token * itemBytes),
      segmentLength: starts.map((token, b) => (firstToken[b + 1]! - token) * itemBytes),
      restartStart,
      restarts: Uint32Array.from(this.restarts),
    };
  }

  /** The block in work ends before a sample, which begins at a token. */
  private next(sample: number, token: number): void {
    this.block++;
    this.firstSample[this.block] = sample;
    this.firstToken[this.block] = token;
    this.restartStart[this.block] = this.restarts.length;
  }

  /** Of samples [from, to) of the stretch that begins at `start`; they are of the block in work. */
  private addRestarts(start: number, from: number, to: number): void {
    const { length, samples, place } = this;
    // Sample k of the stretch is this much more than its number in the block.
    const shift = samples - this.firstSample[this.block]!;
    const begin = this.firstToken[this.block]!;
    let number = Math.ceil((shift + from) / RESTART_EVERY) * RESTART_EVERY;
    for (; number < shift + to; number += RESTART_EVERY) {
      this.restarts.push((start + (number - shift) * length - begin) * place.itemBytes);
    }
  }
}

/** Some documents one behind another: number of the first, and the first token of each and of what comes behind. */
export interface Documents {
  first: number;
  borders: Float64Array;
}

/** Samples that begin in tokens [from, to) of a shard, without regard to documents; `documents`: which hold those tokens. */
export function streamSamples(
  { tokens }: TokenPlace,
  length: number,
  from: number,
  to: number,
  documents?: Documents,
): BlockSamples {
  const first = Math.ceil(from / length);
  const count = Math.max(Math.ceil(to / length) - first, 0);
  const samples = empty(count);
  let at = 0;
  for (let i = 0; i < count; i++) {
    const start = (first + i) * length;
    samples.length[i] = Math.min(length, tokens - start);
    if (documents === undefined) {
      samples.record[i] = start;
    } else {
      // The last one that begins there: those before it hold no token.
      while (documents.borders[at + 1]! <= start) at++;
      samples.record[i] = documents.first + at;
      samples.token[i] = start - documents.borders[at]!;
    }
  }
  return samples;
}

/** Samples that begin in tokens [from, to), each document cut by itself. */
export function documentSamples(length: number, from: number, to: number, documents: Documents): BlockSamples {
  const { first, borders } = documents;
  const each = (visit: (document: number, place: number, tokens: number) => void): void => {
    for (let i = 0; i + 1 < borders.length; i++) {
      const [start, end] = [borders[i]!, borders[i + 1]!];
      const stop = Math.min(end, to);
      for (let token = start + Math.ceil(Math.max(from - start, 0) / length) * length; token < stop; token += length) {
        visit(first + i, token - start, Math.min(length, end - token));
      }
    }
  };
  let count = 0;
  each(() => count++);
  const samples = empty(count);
  let i = 0;
  each((document, place, tokens) => {
    samples.record[i] = document;
    samples.token[i] = place;
    samples.length[i++] = tokens;
  });
  return samples;
}

function empty(count: number): BlockSamples {
  return { record: new Float64Array(count), token: new Uint32Array(count), length: new Uint32Array(count) };
}
