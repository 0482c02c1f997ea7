/**
 * Progress: one line on stderr for work that takes more than a second.
 * On a terminal the line is rewritten 5 times a second; elsewhere (a log) a line is printed every 10 s;
 * with `quiet` (`--json`) nothing.
 *
 * @example
 * const progress = new Progress("indexing", { quiet: json });
 * progress.update(done, total, "train_003.tfrecord");
 * progress.done();
 */
import { formatDuration, formatSize } from "./units.ts";
import { visible } from "./visible.ts";

export interface ProgressOptions {
  quiet?: boolean;
  /** @default process.stderr */
  stream?: { isTTY?: boolean; write(text: string): unknown };
  /** Milliseconds; for tests. @default performance.now */
  now?: () => number;
}

const FIRST_MS = 1000;
const TERMINAL_MS = 200;
const LOG_MS = 10_000;

export class Progress {
  private readonly label: string;
  private readonly quiet: boolean;
  private readonly stream: { isTTY?: boolean; write(text: string): unknown };
  private readonly now: () => number;
  private readonly started: number;
  private printed = Number.NEGATIVE_INFINITY;
  private shown = false;

  constructor(label: string, options: ProgressOptions = {}) {
    this.label = label;
    this.quiet = options.quiet ?? false;
    this.stream = options.stream ?? process.stderr;
    this.now = options.now ?? (() => performance.now());
    this.started = this.now();
  }

  /** `done` of `total` bytes; `what`: the file in work. */
  update(done: number, total: number, what = ""): void {
    const now = this.now();
    const every = this.stream.isTTY === true ? TERMINAL_MS : LOG_MS;
    const first = this.stream.isTTY === true ? FIRST_MS : LOG_MS;
    if (this.quiet || now - this.started < first || now - this.printed < every) return;
    this.printed = now;
    const seconds = (now - this.started) / 1000;
    const rate = done / seconds;
    const left = rate > 0 && total > done ? `, ${formatDuration((total - done) / rate)} left` : "";
    const line =
      `${this.label}: ${total > 0 ? Math.floor((100 * done) / total) : 100} % of ${formatSize(total)}, ` +
      `${formatSize(rate)}/s${left}${what === "" ? "" : ` (${visible(what)})`}`;
    if (this.stream.isTTY === true) {
      this.stream.write(`\r\u001b[K${line.slice(0, 160)}`);
      this.shown = true;
    } else {
      this.stream.write(`${line}\n`);
    }
  }

  /** Clears the line of a terminal. */
  done(): void {
    if (this.shown) this.stream.write("\r\u001b[K");
    this.shown = false;
  }
}
