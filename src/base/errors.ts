/**
 * Errors: one small class a cause, a stable code, and a message that says what, where, found against
 * expected, and what to do. Match `error.code`, never the text. Every code is listed in
 * `docs/reference/errors.md` (a test checks that none is missing).
 *
 * @example
 * export const ShardTruncated = defineError("ATH_SHARD_TRUNCATED", 1);
 * throw new ShardTruncated("shard is shorter than its index says: found 10 bytes, expected 20",
 *   { file: "/d/a.tfrecord", byteOffset: 10 }, "copy the shard again, then run `athanor index`");
 */

/** Exit codes of the command line: 1 found problems, 2 usage, 3 environment, 4 a defect of ours. */
export type ExitCode = 1 | 2 | 3 | 4;

/** Where an error was found. Record numbers and byte offsets start at 0, lines at 1. */
export interface Where {
  file?: string;
  record?: number;
  byteOffset?: number;
  line?: number;
}

/** The form in which an error crosses threads, sockets and `--json`. */
export interface ErrorRecord extends Where {
  code: string;
  message: string;
  cause?: string;
  remedy?: string;
  exit?: ExitCode;
}

export class AthanorError extends Error {
  readonly code: string;
  readonly exit: ExitCode;
  readonly where: Where;
  readonly remedy: string | undefined;
  /** The message without place and remedy. */
  readonly what: string;

  constructor(code: string, exit: ExitCode, what: string, where: Where = {}, remedy?: string, cause?: unknown) {
    super(compose(what, where, remedy), cause === undefined ? undefined : { cause });
    this.name = code;
    this.code = code;
    this.exit = exit;
    this.what = what;
    this.where = where;
    this.remedy = remedy;
  }

  toRecord(): ErrorRecord {
    const record: ErrorRecord = { code: this.code, message: this.what, ...this.where, exit: this.exit };
    if (this.remedy !== undefined) record.remedy = this.remedy;
    if (this.cause !== undefined) record.cause = messageOf(this.cause);
    return record;
  }

  static fromRecord(record: ErrorRecord): AthanorError {
    const { code, message, cause, remedy, exit, file, record: number, byteOffset, line } = record;
    const where: Where = {};
    if (file !== undefined) where.file = file;
    if (number !== undefined) where.record = number;
    if (byteOffset !== undefined) where.byteOffset = byteOffset;
    if (line !== undefined) where.line = line;
    return new AthanorError(code, exit ?? 1, message, where, remedy, cause);
  }
}

export type AthanorErrorClass = new (what: string, where?: Where, remedy?: string, cause?: unknown) => AthanorError;

/** Makes the class of one cause. `code` is never reused for another cause. */
export function defineError(code: `ATH_${string}`, exit: ExitCode): AthanorErrorClass {
  return class extends AthanorError {
    constructor(what: string, where: Where = {}, remedy?: string, cause?: unknown) {
      super(code, exit, what, where, remedy, cause);
    }
  };
}

/** Anything thrown, as a record: unknown errors become ATH_INTERNAL (a defect of ours). */
export function toErrorRecord(error: unknown): ErrorRecord {
  if (error instanceof AthanorError) return error.toRecord();
  const cause = error instanceof Error ? (error.stack ?? error.message) : String(error);
  return {
    code: "ATH_INTERNAL",
    message: `internal error: ${messageOf(error)}`,
    cause,
    remedy: "this is a defect of Athanor: report it with this text",
    exit: 4,
  };
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

function compose(what: string, where: Where, remedy?: string): string {
  const place = [
    where.file,
    where.line === undefined ? undefined : `line ${where.line}`,
    where.record === undefined ? undefined : `record ${where.record}`,
    where.byteOffset === undefined ? undefined : `byte ${where.byteOffset}`,
  ].filter((part) => part !== undefined);
  return `${place.length > 0 ? `${place.join(", ")}: ` : ""}${what}${remedy === undefined ? "" : ` (${remedy})`}`;
}
