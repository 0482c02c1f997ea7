/**
 * The run's ledger on disk: one file an agent start, the files of all nodes and starts in one folder. Counts the distinct
 * bad records of the run and holds them to the quota.
 *
 * Contract: an entry is in the file before its row is handed out; one that finds no room is written to another file, three in all. File-system calls are asynchronous: a folder on a lost
 * target stops the rows that need it, not the agent.
 *
 * @example
 * const ledger = await Ledger.open("/output/proof", 100);
 * await ledger.add([{ source: "data", shard: "a.tfrecord", record: 12, … }]);
 */
import { appendFile, readdir, readFile } from "node:fs/promises";
import { hostname } from "node:os";
import { join } from "node:path";
import { NEW_FILES, mayFitElsewhere } from "../base/atomic-write.ts";
import { makeFolders } from "../base/make-folders.ts";
import { badRecord, LEDGER_FILE, ledgerLine, readLedger } from "../order/ledger.ts";
import type { LedgerEntry } from "../order/ledger.ts";
import { noRoom } from "../storage/no-room.ts";
import { LedgerWrite, QuarantineQuota } from "./errors.ts";

/** Other nodes' files are read again when a bad record is met, at most this often. */
const READ_AGAIN_MS = 1000;

/** By folder. */
const books = new Map<string, Book>();

export class Ledger {
  private readonly quota: number;
  private readonly book: Book;

  private constructor(book: Book, quota: number) {
    this.book = book;
    this.quota = quota;
  }

  /** Reads what is in the folder already; makes nothing before there is something to write. */
  static async open(folder: string, quota: number): Promise<Ledger> {
    const book = books.get(folder) ?? new Book(folder);
    books.set(folder, book);
    await book.open();
    return new Ledger(book, quota);
  }

  /** Distinct bad records of the run, as far as this node knows. */
  get distinct(): number {
    return this.book.distinct;
  }

  /** Writes what is new. Throws ATH_QUARANTINE_QUOTA, and writes nothing, where the run would pass its quota. */
  add(entries: readonly LedgerEntry[], file: string): Promise<void> {
    return this.book.add(entries, file, this.quota);
  }
}

/** What this agent knows of one folder: loaders that come and go, or read beside one another, write each line once. */
class Book {
  private readonly folder: string;
  /** A line that could not be written whole (the disk is full) ends its file: nothing may follow it there. */
  private file: string;
  private files = 0;
  /** Bad record → its entries as lines: another replacement of a known record is a line more, but counts once. */
  private readonly known = new Map<string, Set<string>>();
  private tail: Promise<void> = Promise.resolve();
  private readAt = 0;

  constructor(folder: string) {
    this.folder = folder;
    this.file = this.nextFile();
  }

  get distinct(): number {
    return this.known.size;
  }

  /** Knows what the folder holds now, and nothing else. */
  open(): Promise<void> {
    return this.next(() => {
      this.known.clear();
      return this.read();
    });
  }

  add(entries: readonly LedgerEntry[], file: string, quota: number): Promise<void> {
    return this.next(() => this.write(entries, file, quota));
  }

  private next(work: () => Promise<void>): Promise<void> {
    const turn = this.tail.then(work);
    this.tail = turn.catch(() => undefined);
    return turn;
  }

  private async write(entries: readonly LedgerEntry[], file: string, quota: number): Promise<void> {
    const isNew = (entry: LedgerEntry): boolean => this.known.get(badRecord(entry))?.has(ledgerLine(entry)) !== true;
    if (!entries.some(isNew)) return;
    if (Date.now() - this.readAt >= READ_AGAIN_MS) await this.read();
    const fresh = entries.filter(isNew);
    const more = new Map(fresh.map((entry) => [badRecord(entry), entry]));
    for (const key of this.known.keys()) more.delete(key);
    if (more.size > 0 && this.known.size + more.size > quota) this.refuse([...more.values()], file, quota);
    if (fresh.length === 0) return;
    await this.append(fresh.map(ledgerLine).join(""));
    this.learn(fresh);
  }

  private async append(text: string): Promise<void> {
    for (let tries = 1; ; tries++) {
      const { file } = this;
      try {
        await makeFolders(this.folder);
        return await appendFile(file, text);
      } catch (error) {
        this.file = this.nextFile();
        if (!mayFitElsewhere(error) || tries === NEW_FILES) throw failed(file, "written", error);
      }
    }
  }

  private nextFile(): string {
    const more = this.files++ === 0 ? "" : `-${this.files}`;
    return join(this.folder, `quarantine-${hostname()}-${process.pid}-${Date.now()}${more}.jsonl`);
  }

  private refuse(more: readonly LedgerEntry[], file: string, quota: number): never {
    const [first] = more as [LedgerEntry];
    const records = more.slice(0, 8).map(({ record }) => record);
    throw new QuarantineQuota(
      `${this.known.size} bad records were replaced in this run and ${more.length} more are met, at most ${quota} may be: ` +
        `record ${records.join(", ")}${more.length > records.length ? " …" : ""} (${first.code})`,
      { file, record: first.record, byteOffset: first.byteOffset },
      "look at the data with `athanor verify`, restore the shards, or raise corrupt_quota",
    );
  }

  private async read(): Promise<void> {
    this.readAt = Date.now();
    const names = await readdir(this.folder).catch((error: NodeJS.ErrnoException) => {
      if (error.code === "ENOENT") return [];
      throw failed(this.folder, "read", error);
    });
    for (const name of names.filter((candidate) => LEDGER_FILE.test(candidate))) {
      const path = join(this.folder, name);
      const text = await readFile(path, "utf8").catch((error: unknown) => {
        throw failed(path, "read", error);
      });
      this.learn(readLedger([{ name: path, text }]));
    }
  }

  private learn(entries: readonly LedgerEntry[]): void {
    for (const entry of entries) {
      const key = badRecord(entry);
      const lines = this.known.get(key) ?? new Set<string>();
      this.known.set(key, lines.add(ledgerLine(entry)));
    }
  }
}

function failed(file: string, what: string, error: unknown): Error {
  return new LedgerWrite(
    `the ledger of replaced records cannot be ${what}`,
    { file },
    noRoom(error, file) ?? "make the folder writable, or give another ledger_dir",
    error,
  );
}
