/**
 * Cursor: the pages of one column of one row group, decoded one after the other, as far as asked for. Keeps those that records
 * to come still need.
 *
 * @example
 * await cursor.cover(1000);                  // records 0 … 999 of the row group are whole
 * const pages = cursor.touching(1000);       // the pages that hold them
 * cursor.drop(1000);                         // … are no longer needed
 */
import type { ReadableObject } from "../../storage/types.ts";
import { RecordTruncated } from "../errors.ts";
import type { Segment } from "../types.ts";
import type { Chunk } from "./footer.ts";
import {
  checkCrc,
  malformed,
  type Page,
  type PageHead,
  type Place,
  readDictionary,
  readHead,
  readPage,
} from "./page.ts";
import type { Leaf } from "./schema.ts";
import type { Dense } from "./values.ts";

/** A page with the number of the first record that begins in it (that of the next one where none does). */
export interface PlacedPage extends Page {
  firstRow: number;
}

export interface CursorOptions {
  object: ReadableObject;
  leaf: Leaf;
  chunk: Chunk;
  /** Records of the row group, and the number in the shard of its first. */
  rows: number;
  firstRecord: number;
  /** For messages. */
  column: string;
  /** No page reaches beyond: the footer begins here. */
  limit: number;
  /** Bytes of one read. */
  readBytes: number;
  /** Told of each page's stored bytes. */
  progress: (bytes: number) => void;
}

/** Statistics with long text make headers long; beyond this it is none. */
const MAX_HEAD_BYTES = 16 * 1024 * 1024;
const HEAD_BYTES = 4096;
/** Old writers did not count the header of the dictionary into the chunk's size (PARQUET-816). */
const UNCOUNTED_BYTES = 128;

const EMPTY = new Uint8Array(0);

export class Cursor {
  /** Those that records not yet dropped need. */
  pages: PlacedPage[] = [];
  /** The dictionary as it is stored. */
  dictionary: Segment | undefined;
  private readonly options: CursorOptions;
  /** The part of `memory` that was read. */
  private window: Uint8Array = EMPTY;
  private memory: Uint8Array = EMPTY;
  private windowAt = 0;
  private at: number;
  private words: Dense | undefined;
  private entries = 0;
  private begun = 0;
  private told: number;

  constructor(options: CursorOptions) {
    this.options = options;
    this.at = options.chunk.start;
    this.told = this.at;
  }

  /** Records that are whole in the pages so far. */
  get whole(): number {
    if (this.exhausted) return this.begun;
    const { leaf } = this.options;
    // The last record may go on in the next page.
    return leaf.maxRep === 0 ? this.begun : Math.max(0, this.begun - 1);
  }

  get exhausted(): boolean {
    return this.entries === this.options.chunk.values;
  }

  /** Decodes pages until records [0, rows) are whole. */
  async cover(rows: number): Promise<void> {
    while (this.whole < rows && !this.exhausted) await this.next();
    if (this.whole < rows) {
      throw malformed(`${this.begun} records, expected ${this.options.rows}`, this.place());
    }
  }

  /** Decodes the next page of data; false behind the last. */
  async next(): Promise<boolean> {
    while (!this.exhausted) if (await this.step()) return true;
    return false;
  }

  /** Pages that hold records before `rows` (and are not dropped). */
  touching(rows: number): PlacedPage[] {
    return this.pages.filter(({ firstRow, continues }) => firstRow < rows || (firstRow === rows && continues));
  }

  /** Lets go of pages that no record from `rows` on needs. */
  drop(rows: number): void {
    let gone = 0;
    while (gone < this.pages.length && this.pages[gone]!.firstRow + this.pages[gone]!.rows <= rows) gone++;
    this.pages.splice(0, gone);
  }

  place(): Place {
    const { object, column, firstRecord } = this.options;
    return { file: object.uri, column, byteOffset: this.at, record: firstRecord + this.begun };
  }

  /** Reads one page; true: it holds data. */
  private async step(): Promise<boolean> {
    const { leaf, chunk, limit, rows } = this.options;
    const place = this.place();
    if (this.at >= Math.min(limit, chunk.end + UNCOUNTED_BYTES)) {
      throw malformed(`the column ends after ${this.entries} of ${chunk.values} values`, place);
    }
    const head = await this.head(place);
    const length = head.headBytes + head.bodyBytes;
    if (this.at + length > limit) {
      throw malformed(`a page of ${length} bytes reaches past the data, which ends at byte ${limit}`, place);
    }
    const bytes = await this.bytes(this.at, length);
    const body = bytes.subarray(head.headBytes, length);
    checkCrc(head, body, place);
    if (head.kind === "dictionary") {
      if (this.words !== undefined || this.entries > 0) throw malformed("a dictionary behind other pages", place);
      this.words = readDictionary(head, body, leaf, chunk.codec, place);
      this.dictionary = { file: 0, offset: this.at, length };
    } else if (head.kind === "data") {
      this.add(readPage(head, body, leaf, chunk.codec, this.words, place), place);
    }
    this.at += length;
    this.tell();
    if (this.begun > rows || (this.exhausted && this.begun !== rows)) {
      throw malformed(`the column holds ${this.begun} records, its row group ${rows}`, place);
    }
    return head.kind === "data";
  }

  private add(page: Page, place: Place): void {
    const { values } = this.options.chunk;
    if (page.entries > values - this.entries) {
      throw malformed(`pages hold more than the column's ${values} values`, place);
    }
    if (page.continues && this.entries === 0) throw malformed("the first page begins inside a record", place);
    this.pages.push({ ...page, firstRow: this.begun });
    this.entries += page.entries;
    this.begun += page.rows;
  }

  private async head(place: Place): Promise<PageHead> {
    const { limit } = this.options;
    for (let length = HEAD_BYTES; ; length *= 8) {
      const available = Math.min(length, limit - this.at);
      const head = readHead(await this.bytes(this.at, available), 0, place);
      if (head !== undefined) return head;
      if (available < length || length > MAX_HEAD_BYTES) throw malformed("the page header is cut", place);
    }
  }

  /** Bytes of the file, `length` of them; valid until the next call. */
  private async bytes(offset: number, length: number): Promise<Uint8Array> {
    const { object, limit, chunk, readBytes } = this.options;
    const from = offset - this.windowAt;
    if (from >= 0 && from + length <= this.window.length) return this.window.subarray(from, from + length);
    const rest = Math.max(0, Math.min(limit, chunk.end) - offset);
    const want = Math.max(length, Math.min(readBytes, rest));
    // What the window has of it need not be read again. Pages that are stored plain are not copied out of it: it is not used again then.
    const kept = from >= 0 && from < this.window.length ? this.window.subarray(from) : EMPTY;
    const target = chunk.codec !== 0 && want <= this.memory.length ? this.memory : new Uint8Array(want);
    target.set(kept);
    const got = kept.length + (await object.readInto(target.subarray(kept.length, want), offset + kept.length));
    this.memory = target;
    if (got < length) {
      const where = { file: object.uri, byteOffset: offset };
      throw new RecordTruncated(`the file ends after ${got} of ${length} bytes`, where, "copy the file again");
    }
    this.window = target.subarray(0, got);
    this.windowAt = offset;
    return this.window.subarray(0, length);
  }

  private tell(): void {
    this.options.progress(this.at - this.told);
    this.told = this.at;
  }
}
