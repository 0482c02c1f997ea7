/**
 * Scan of a JSON file: blocks of lines, or of the elements of its array, in one pass and bounded memory.
 *
 * Contract: a record of lines ends at 0x0A and nowhere else; blank lines are no records. Block k of plain and gzip files has the
 * records that begin in [k · 4 MiB, (k + 1) · 4 MiB) of the (decompressed) bytes, at most MAX_RECORDS of them: the rest is a block of its
 * own. Of a Zstandard file of many frames it has the records that begin in group k of its frames. What is read before a fault comes out
 * first. `record(i)` can be called until the next block is asked for.
 *
 * @example
 * for await (const { records, columns } of scan(shard, { kernels })) …
 */
import type { AthanorError } from "../../base/errors.ts";
import { frameGroups } from "../codecs/zstd-groups.ts";
import { readyZstd } from "../codecs/zstd.ts";
import { NotFormat, RecordMalformed, RecordTooLong, RecordTruncated } from "../errors.ts";
import type { Encoding, IndexOptions, ScanEnd, ScannedBlock, ShardFiles } from "../types.ts";
import { RESTART_EVERY } from "../types.ts";
import { columnsOf, decodeRecords, isSpace, type Layout } from "./decode.ts";
import { encodingOf } from "./detect.ts";
import { ElementMatcher } from "./elements.ts";
import { wrongShape } from "./shape.ts";
import { Keys } from "./keys.ts";
import { metaOf } from "./meta.ts";
import { FrameSource } from "./frames.ts";
import { BYTE_GRID, openSource, type Grid, type Source } from "./source.ts";
import { readObject } from "./value.ts";
import { Window } from "./window.ts";

/** Columns of a block take 5 bytes a record and field. */
const MAX_RECORDS = 65536;
/** One record must fit in memory several times. */
const MAX_RECORD_BYTES = 256 * 1024 * 1024;
const CLOSED = -1;

export async function* scan(
  { object, path }: ShardFiles,
  { kernels, progress }: IndexOptions,
): AsyncGenerator<ScannedBlock, ScanEnd> {
  const found = await encodingOf(object);
  const groups = found === "zstd" ? await frameGroups(object) : undefined;
  await readyZstd();
  const frames = groups && new FrameSource(object, groups, kernels);
  const source = frames ?? openSource(object, found, kernels);
  const encoding = frames === undefined ? found : "zstd-frames";
  try {
    const walk = new Walk(source, frames ?? BYTE_GRID, object.uri, path);
    for await (const block of walk.blocks()) {
      yield block;
      progress?.(source.stored);
    }
    progress?.(source.stored);
    return walk.finish(encoding, source.crc32c);
  } finally {
    source.close();
  }
}

class Walk {
  private readonly window: Window;
  private readonly grid: Grid;
  private readonly keys = Keys.all();
  private readonly matcher = new ElementMatcher();
  private readonly file: string;
  private readonly path: string;
  private layout: Layout = "lines";
  private records = 0;
  private line = 1;
  /** What ends the scan once all before it has come out; of the record behind those. */
  private fault: ((record: number) => AthanorError) | undefined;

  constructor(source: Source, grid: Grid, file: string, path: string) {
    this.window = new Window(source);
    this.grid = grid;
    this.file = file;
    this.path = path;
  }

  async *blocks(): AsyncGenerator<ScannedBlock, void> {
    const start = await this.open();
    if (start !== undefined) yield* this.layout === "lines" ? this.lines(start) : this.array(start);
    if (this.fault !== undefined) throw this.fault(this.records);
    if (this.window.failure !== undefined) throw this.window.failure;
  }

  finish(encoding: Encoding, crc32c: number): ScanEnd {
    return metaOf(this.layout, this.keys, encoding, crc32c);
  }

  /** Finds out how records lie; where the first one (or white space before it) begins. Undefined: there is none. */
  private async open(): Promise<number | undefined> {
    const { window } = this;
    while (window.to < 4 && (await window.fill())) {}
    const [a, b, c] = window.bytes.subarray(0, window.to);
    if ((a === 0xff && b === 0xfe) || (a === 0xfe && b === 0xff)) {
      throw new NotFormat(
        "the file is UTF-16, JSON Lines are UTF-8",
        { file: this.file, record: 0, byteOffset: 0 },
        "convert it: iconv -f UTF-16 -t UTF-8",
      );
    }
    const start = a === 0xef && b === 0xbb && c === 0xbf ? 3 : 0;
    const first = await this.space(start);
    if (first === undefined) return undefined;
    if (this.byte(first) !== 0x5b) return start;
    this.layout = "array";
    return first + 1;
  }

  private async *lines(first: number): AsyncGenerator<ScannedBlock, void> {
    const { window } = this;
    let start = first;
    for (;;) {
      const end = await this.lineEnd(start, Math.max(start, (await this.borderBehind(start)) - 1));
      if (end > start) {
        const { block, at } = this.block(start, end, MAX_RECORDS);
        if (block !== undefined) yield block;
        start = at;
        window.drop(start);
      }
      if (this.fault !== undefined || (window.ended && (start >= window.to || end <= start))) return;
    }
  }

  private async *array(first: number): AsyncGenerator<ScannedBlock, void> {
    const { window } = this;
    let next = await this.element(first, true);
    while (next !== undefined && next !== CLOSED) {
      const start = next;
      const border = await this.borderBehind(start);
      let end = start;
      let count = 0;
      while (next !== undefined && next !== CLOSED && next < border && count < MAX_RECORDS) {
        const stop = await this.elementEnd(next);
        if (stop === undefined) {
          next = undefined;
          break;
        }
        end = stop;
        count++;
        next = await this.element(end, false);
      }
      if (count > 0) {
        const { block } = this.block(start, end, count);
        if (block !== undefined) yield block;
      }
      if (next !== undefined && next !== CLOSED) window.drop(next);
    }
    if (next === undefined && window.failure === undefined && this.fault === undefined) this.fault = this.cut();
  }

  /** Parses [start, end) of the stream. */
  private block(start: number, end: number, most: number): { block: ScannedBlock | undefined; at: number } {
    const { window, layout, keys, file } = this;
    const bytes = window.bytes;
    const base = -window.index(0);
    const place = { file, firstRecord: this.records, base, ...(layout === "lines" ? { line: this.line } : {}) };
    const found = decodeRecords(layout, keys, bytes, { from: window.index(start), to: window.index(end), most }, place);
    const records = found.begins.length;
    const at = found.at + base;
    if (records === 0) return { block: undefined, at };
    if (this.records === 0) {
      const rest = bytes.subarray(found.begins[0], window.index(window.to));
      const wrong = wrongShape(layout, this.path, found, keys, rest, window.ended && at >= window.to);
      if (wrong !== undefined) throw new NotFormat(wrong.what, { file, ...wrong.where }, wrong.remedy);
    }
    this.records += records;
    this.line += found.lines;
    const [first] = found.begins as [number];
    const offset = first + base;
    const { segments, origin } = this.grid.place(offset, at);
    const restarts = found.begins.filter((_, i) => i % RESTART_EVERY === 0).map((begin) => begin + base);
    if (origin !== undefined) restarts.push(at);
    const block: ScannedBlock = {
      records,
      segments: segments.map((segment) => ({ ...segment, field: 0 })),
      restarts: restarts.map((restart) => restart - (origin ?? offset)),
      columns: { fields: columnsOf(keys, records), faults: found.faults },
      offsets: found.begins.map((begin) => begin + base),
      record: (i) => readObject(bytes, found.begins[i]!),
    };
    if (origin !== undefined) block.origin = origin;
    return { block, at };
  }

  /** The border behind a position; the end of the data where there is none. */
  private async borderBehind(position: number): Promise<number> {
    for (;;) {
      const border = this.grid.borderBehind(position);
      if (border !== undefined) return border;
      if (!(await this.window.fill())) return this.window.to;
    }
  }

  /** The end of the line that has byte `from`: behind its 0x0A, or the end of the data; of whole lines where the data is cut. */
  private async lineEnd(start: number, from: number): Promise<number> {
    const { window } = this;
    for (let at = from; ;) {
      if (at < window.to) {
        const found = window.bytes.subarray(window.index(at), window.index(window.to)).indexOf(0x0a);
        if (found >= 0) return at + found + 1;
        at = window.to;
      }
      if (window.to - from > MAX_RECORD_BYTES) this.fault = this.tooLong(from);
      else if (await window.fill()) continue;
      else if (window.failure === undefined) return window.to;
      const whole = window.bytes.subarray(window.index(start), window.index(window.to)).lastIndexOf(0x0a);
      return start + whole + 1;
    }
  }

  /** Where the next element begins, from behind the one before (or the opening bracket). Undefined: it ends, or is wrong. */
  private async element(from: number, first: boolean): Promise<number | undefined> {
    let at = await this.space(from);
    if (at === undefined) return undefined;
    if (this.byte(at) === 0x5d) return this.behind(at + 1);
    if (!first) {
      if (this.byte(at) !== 0x2c) return this.malformed("expected ',' or ']' behind an element", at);
      at = await this.space(at + 1);
      if (at === undefined) return undefined;
    }
    const byte = this.byte(at);
    return byte === 0x2c || byte === 0x5d ? this.malformed("expected an element", at) : at;
  }

  /** Nothing but white space may follow the array. */
  private async behind(from: number): Promise<number | undefined> {
    this.window.drop(Math.min(from, this.window.to));
    const at = await this.space(from, true);
    return at === undefined ? CLOSED : this.malformed("bytes behind the end of the array", at);
  }

  private async elementEnd(begin: number): Promise<number | undefined> {
    const { window, matcher } = this;
    matcher.reset();
    for (;;) {
      const end = matcher.end(
        window.bytes.subarray(window.index(begin), window.index(window.to)),
        0,
        window.to - begin,
      );
      if (end >= 0) return begin + end;
      if (window.to - begin > MAX_RECORD_BYTES) {
        this.fault = this.tooLong(begin);
        return undefined;
      }
      if (!(await window.fill())) return undefined;
    }
  }

  /** The first byte from `from` on that is no white space. */
  private async space(from: number, dropping = false): Promise<number | undefined> {
    const { window } = this;
    for (let at = from; ;) {
      while (at < window.to && isSpace(this.byte(at))) at++;
      if (at < window.to) return at;
      if (dropping) window.drop(at);
      if (!(await window.fill())) return undefined;
    }
  }

  private byte(position: number): number {
    return this.window.bytes[this.window.index(position)]!;
  }

  private malformed(what: string, at: number): undefined {
    this.fault ??= (record) =>
      new RecordMalformed(
        `no valid JSON array: ${what}`,
        { file: this.file, record, byteOffset: at },
        "the file is damaged, or no JSON array: copy or write it again",
      );
  }

  private cut(): Walk["fault"] {
    return (record) =>
      new RecordTruncated(
        "the JSON array is not closed: the file is cut short",
        { file: this.file, record, byteOffset: this.window.to },
        "the file was not copied to its end: copy it again",
      );
  }

  private tooLong(begin: number): Walk["fault"] {
    return (record) =>
      new RecordTooLong(
        `a record of more than ${MAX_RECORD_BYTES} bytes`,
        { file: this.file, record, byteOffset: begin },
        "split it, or check whether the file is JSON Lines at all",
      );
  }
}
