/**
 * Journal: what a copy or a series of moves has done, a JSON line each, so that the same command goes on where it was killed. The first line
 * says what it is of. A last line without its end is what a kill cut off, and counts as not written.
 *
 * @example
 * const journal = await Journal.read<CopyLine>(files, "/new/.athanor-copy.jsonl", "copy");
 * await journal.add({ path: "a.tar", size: 10, mtimeNs: "1", crc32c: 7 });
 */
import { JournalInvalid } from "./errors.ts";
import type { Files } from "./files.ts";

/** `from`: of which folder. */
export interface JournalHead {
  athanor: "copy" | "moves";
  version: 1;
  from: string;
}

export class Journal<Line extends object> {
  readonly path: string;
  /** Undefined: there is none yet. */
  private first: JournalHead | undefined;
  readonly lines: readonly Line[];
  private readonly files: Files;
  /** Bytes of whole lines, where a kill has left half a one behind them. */
  private cut: number | undefined;

  private constructor(
    files: Files,
    path: string,
    head: JournalHead | undefined,
    lines: readonly Line[],
    cut: number | undefined,
  ) {
    this.files = files;
    this.path = path;
    this.first = head;
    this.lines = lines;
    this.cut = cut;
  }

  /** Throws ATH_COPY_JOURNAL. */
  static async read<Line extends object>(
    files: Files,
    path: string,
    kind: JournalHead["athanor"],
  ): Promise<Journal<Line>> {
    const text = (await files.call({ op: "text", path })) ?? "";
    const whole = text.slice(0, text.lastIndexOf("\n") + 1);
    const parsed = whole.split("\n").flatMap((line, i) => (line === "" ? [] : [parse(line, path, i + 1)]));
    const [head, ...lines] = parsed as [JournalHead?, ...Line[]];
    if (head !== undefined && (head.athanor !== kind || head.version !== 1))
      throw new JournalInvalid("is not a journal that this version wrote", { file: path, line: 1 }, REMEDY);
    return new Journal(files, path, head, lines, text === whole ? undefined : Buffer.byteLength(whole));
  }

  get head(): JournalHead | undefined {
    return this.first;
  }

  /** Writes the first line where there is none. */
  async begin(head: JournalHead): Promise<void> {
    if (this.first !== undefined) return;
    await this.add(head);
    this.first = head;
  }

  async add(line: Line | JournalHead): Promise<void> {
    const { path, cut } = this;
    await this.files.call({ op: "append", path, text: `${JSON.stringify(line)}\n`, ...(cut !== undefined && { cut }) });
    this.cut = undefined;
  }
}

const REMEDY = "take the file away: what it tells is then found out anew, or begun anew";

function parse(text: string, file: string, line: number): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch (error) {
    throw new JournalInvalid("a line that is no JSON", { file, line }, REMEDY, error);
  }
}
