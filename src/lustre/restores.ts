/**
 * Restores: brings files back that HSM has released, ahead of their use.
 *
 * The first read of one byte of a released file waits until the whole file is back, in a call that cannot be ended, and without a
 * copytool for ever. So its reader is held back here, where waiting can be named and given up, and `lfs hsm_restore` asks for it: any
 * user may, by default. At most `atOnce` at a time, those that are needed first before the others; the layout tells when one is back.
 *
 * Contract: a file that cannot be asked for (no `lfs`, refused) is told of, and its reader goes on: its read brings it back.
 *
 * @example
 * restores.add("/mnt/lustre/d/a.tar", 0);
 * await restores.arrival("/mnt/lustre/d/a.tar");
 */
import { runTool } from "../base/run-tool.ts";
import { formatDuration } from "../base/units.ts";

export interface RestoreOptions {
  /** Files that are brought back at a time: a guest leaves the copytools to others too. @default 4 */
  atOnce?: number;
  /** Milliseconds between two looks at those under way; grows to ten times as much. @default 2000 */
  pollMs?: number;
  /** Milliseconds for one call of `lfs`. @default 10000 */
  timeoutMs?: number;
  tell?: (text: string) => void;
  /** Which of these files are still released; undefined: not told. */
  released: (paths: readonly string[]) => Promise<(boolean | undefined)[]>;
}

/** A restore that has run for longer is told of: a copytool may be missing. Milliseconds. */
const LONG_MS = 60_000;
/** New ones within this time are told of together. Milliseconds. */
const GATHER_MS = 50;

interface Restore {
  path: string;
  /** Lower ones first. */
  rank: number;
  /** When it was asked for; undefined: it waits for its turn. */
  since: number | undefined;
  told: boolean;
  done: Promise<void>;
  finish: () => void;
}

export class Restores {
  private readonly options: Required<Pick<RestoreOptions, "atOnce" | "pollMs">> & RestoreOptions;
  /** Those that are not back, by path. */
  private readonly open = new Map<string, Restore>();
  /** Not to be asked for again: given up. */
  private readonly refused = new Set<string>();
  private running = 0;
  private polls = 0;
  private timer: NodeJS.Timeout | undefined;
  private announcing: NodeJS.Timeout | undefined;
  private fresh: string[] = [];
  private closed = false;

  constructor(options: RestoreOptions) {
    const { atOnce = 4, pollMs = 2000 } = options;
    this.options = { ...options, atOnce, pollMs };
  }

  /** `rank`: how soon it is needed, 0 first. */
  add(path: string, rank: number): void {
    const known = this.open.get(path);
    if (known !== undefined) known.rank = Math.min(known.rank, rank);
    if (known !== undefined || this.refused.has(path) || this.closed) return;
    let finish = (): void => undefined;
    const done = new Promise<void>((resolve) => (finish = resolve));
    this.open.set(path, { path, rank, since: undefined, told: false, done, finish });
    this.fresh.push(path);
    this.announcing ??= setTimeout(() => this.begin(), GATHER_MS).unref();
  }

  /** Undefined: nothing to wait for. Who asks needs it now. */
  arrival(path: string): Promise<void> | undefined {
    if (this.open.size === 0) return undefined;
    const restore = this.open.get(path);
    if (restore !== undefined) restore.rank = -1;
    return restore?.done;
  }

  noteOf(path: string): string | undefined {
    const restore = this.open.get(path);
    if (restore === undefined) return undefined;
    if (restore.since === undefined) return "released to HSM, its restore waits for others";
    return `released to HSM, its restore was asked for ${formatDuration((performance.now() - restore.since) / 1000)} ago`;
  }

  close(): void {
    this.closed = true;
    clearTimeout(this.timer);
    clearTimeout(this.announcing);
    for (const restore of this.open.values()) restore.finish();
    this.open.clear();
  }

  /** Says how many there are, then asks for the first ones. */
  private begin(): void {
    this.announcing = undefined;
    const [first] = this.fresh;
    const many = this.fresh.length > 1;
    this.tell(
      `${many ? `${this.fresh.length} shards are` : "a shard is"} released to HSM and restored ahead of use, at most ${this.options.atOnce} at a time` +
        `${many ? "; the first" : ""}: ${first}. \`lfs hsm_restore\` before the job saves the waiting`,
    );
    this.fresh = [];
    this.pump();
  }

  private pump(): void {
    while (!this.closed && this.running < this.options.atOnce) {
      const next = [...this.open.values()]
        .filter(({ since }) => since === undefined)
        .reduce<Restore | undefined>(
          (best, one) => (best === undefined || one.rank < best.rank ? one : best),
          undefined,
        );
      if (next === undefined) break;
      next.since = performance.now();
      this.running++;
      void this.ask(next);
    }
  }

  private async ask(restore: Restore): Promise<void> {
    const { path } = restore;
    const { timeoutMs } = this.options;
    const ran = await runTool("lfs", ["hsm_restore", path], { timeoutMs });
    if (this.closed) return;
    if (ran.status === 0) return this.pollSoon();
    const why = ran.missing
      ? "there is no `lfs` here"
      : ran.timedOut
        ? "`lfs hsm_restore` does not answer"
        : `\`lfs hsm_restore\`: ${ran.stderr.trim() || `status ${ran.status}`}`;
    this.tell(
      `${path} is released to HSM and cannot be restored ahead (${why}): its first read brings it back, and waits`,
    );
    this.refused.add(path);
    this.end(restore);
  }

  private pollSoon(): void {
    if (this.closed) return;
    const wait = Math.min(this.options.pollMs * 1.5 ** this.polls, this.options.pollMs * 10);
    this.timer ??= setTimeout(() => {
      this.timer = undefined;
      void this.poll();
    }, wait).unref();
  }

  private async poll(): Promise<void> {
    const asked = [...this.open.values()].filter(({ since }) => since !== undefined);
    const released = await this.options.released(asked.map(({ path }) => path));
    if (this.closed) return;
    this.polls++;
    for (const [i, restore] of asked.entries()) {
      if (released[i] === false) this.end(restore);
      else this.tellIfLong(restore);
    }
    if (this.running > 0) this.pollSoon();
  }

  private tellIfLong(restore: Restore): void {
    const { path, since, told } = restore;
    const tookMs = performance.now() - since!;
    if (told || tookMs < LONG_MS) return;
    restore.told = true;
    this.tell(
      `${path} has been under restore for ${formatDuration(tookMs / 1000)}: \`lfs hsm_action ${path}\` says how far it is; without a copytool it never ends`,
    );
  }

  private end(restore: Restore): void {
    if (!this.open.delete(restore.path)) return;
    this.running--;
    this.polls = 0;
    restore.finish();
    this.pump();
  }

  private tell(text: string): void {
    this.options.tell?.(text);
  }
}
