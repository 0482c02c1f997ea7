/**
 * Restores: brings files back that HSM has released, ahead of their use.
 *
 * The first read of one byte of a released file waits until the whole file is back, in a call that cannot be ended, and without a
 * copytool for ever. So its reader is held back here, where waiting can be named and given up, and `lfs hsm_restore` asks for it: any
 * user may, by default. At most `atOnce` at a time, and as many a second as `polite` allows, those that are needed first before the
 * others; the layout tells when one is back.
 *
 * Contract: a file that cannot be asked for (no `lfs`, refused) is told of, and its reader goes on: its read brings it back. So is one
 * that does not tell its state any more (deleted, lost metadata server): its reader says what is wrong. What stays released is asked
 * for again now and then: a copytool may have lost it, and who asks twice has asked once.
 *
 * @example
 * restores.add("/mnt/lustre/d/a.tar", 0);
 * await restores.arrival("/mnt/lustre/d/a.tar");
 */
import { runTool } from "../base/run-tool.ts";
import { formatDuration } from "../base/units.ts";
import type { Polite } from "../storage/polite.ts";

/** `silent`: did not answer in time. `unclear`: answered, but with no layout that is known. */
export type Told = "released" | "back" | "silent" | "unclear";

export interface RestoreOptions {
  /** Files that are brought back at a time: a guest leaves the copytools to others too. @default 4 */
  atOnce?: number;
  /** Milliseconds between two looks at those under way; grows to ten times as much. @default 2000 */
  pollMs?: number;
  /** Milliseconds after which a file that is still released is asked for again. @default 300000 */
  againMs?: number;
  /** Milliseconds for one call of `lfs`. @default 10000 */
  timeoutMs?: number;
  tell?: (text: string) => void;
  /** @default no cap */
  polite?: Polite;
  /** What these files say of themselves. */
  look: (paths: readonly string[]) => Promise<Told[]>;
}

/** A restore that has run for longer is told of: a copytool may be missing. Milliseconds. */
const LONG_MS = 60_000;
/** New ones within this time are told of together. Milliseconds. */
const GATHER_MS = 50;
/** Looks in a row without an answer, each of which may leave a process behind in its call. */
const SILENT = 3;

interface Restore {
  path: string;
  /** Lower ones first. */
  rank: number;
  /** When it was asked for; undefined: it waits for its turn. */
  since: number | undefined;
  /** When it was last. */
  asked: number;
  /** Looks in a row that it did not answer. */
  silent: number;
  told: boolean;
  done: Promise<void>;
  finish: () => void;
}

export class Restores {
  private readonly options: Required<Pick<RestoreOptions, "atOnce" | "pollMs" | "againMs">> & RestoreOptions;
  /** Those that are not back, by path. */
  private readonly open = new Map<string, Restore>();
  /** Not to be asked for again: given up. */
  private readonly refused = new Set<string>();
  private running = 0;
  private polls = 0;
  private looking = false;
  private timer: NodeJS.Timeout | undefined;
  private announcing: NodeJS.Timeout | undefined;
  /** Set while the next one waits for the cap: since when, and who is told of the time. */
  private capped: { since: number; done: (ms: number) => void } | undefined;
  private later: NodeJS.Timeout | undefined;
  private fresh: string[] = [];
  private closed = false;

  constructor(options: RestoreOptions) {
    const { atOnce = 4, pollMs = 2000, againMs = 300_000 } = options;
    this.options = { ...options, atOnce, pollMs, againMs };
  }

  /** `rank`: how soon it is needed, 0 first. */
  add(path: string, rank: number): void {
    const known = this.open.get(path);
    if (known !== undefined) known.rank = Math.min(known.rank, rank);
    if (known !== undefined || this.refused.has(path) || this.closed) return;
    let finish = (): void => undefined;
    const done = new Promise<void>((resolve) => (finish = resolve));
    this.open.set(path, { path, rank, since: undefined, asked: 0, silent: 0, told: false, done, finish });
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

  get any(): boolean {
    return this.open.size > 0;
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
    clearTimeout(this.later);
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
      const { polite } = this.options;
      const waitMs = polite?.waitMs("restores") ?? 0;
      if (waitMs > 0) return this.pumpLater(waitMs);
      polite?.take("restores");
      this.capped?.done(performance.now() - this.capped.since);
      this.capped = undefined;
      next.since = performance.now();
      this.running++;
      void this.ask(next);
    }
  }

  private pumpLater(waitMs: number): void {
    this.capped ??= { since: performance.now(), done: this.options.polite!.waits("restores") };
    this.later ??= setTimeout(() => {
      this.later = undefined;
      this.pump();
    }, Math.ceil(waitMs)).unref();
  }

  private async ask(restore: Restore): Promise<void> {
    const { path } = restore;
    const { timeoutMs } = this.options;
    const again = restore.asked > 0;
    restore.asked = performance.now();
    const ran = await runTool("lfs", ["hsm_restore", path], { timeoutMs });
    if (this.closed || this.open.get(path) !== restore) return;
    // No answer to the second question takes nothing from the first one.
    if (ran.status === 0 || (again && ran.timedOut)) return this.pollSoon();
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
    if (this.closed || this.looking) return;
    const wait = Math.min(this.options.pollMs * 1.5 ** this.polls, this.options.pollMs * 10);
    this.timer ??= setTimeout(() => {
      this.timer = undefined;
      void this.poll();
    }, wait).unref();
  }

  private async poll(): Promise<void> {
    const asked = [...this.open.values()].filter(({ since }) => since !== undefined);
    this.looking = true;
    const told = await this.options.look(asked.map(({ path }) => path));
    this.looking = false;
    if (this.closed) return;
    this.polls++;
    for (const [i, restore] of asked.entries()) {
      restore.silent = told[i] === "silent" ? restore.silent + 1 : 0;
      if (told[i] === "back") this.end(restore);
      else if (told[i] === "unclear" || restore.silent === SILENT) this.giveUp(restore);
      else {
        this.tellIfLong(restore);
        if (performance.now() - restore.asked >= this.options.againMs) void this.ask(restore);
      }
    }
    if (this.running > 0) this.pollSoon();
  }

  private giveUp(restore: Restore): void {
    const { path, silent } = restore;
    const why =
      silent === 0 ? "has no layout to tell of any more" : "does not answer any more when it is asked for its layout";
    this.tell(`${path} is under restore and ${why}: its readers wait no longer, and say what is wrong with it`);
    this.end(restore);
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
    if (this.open.get(restore.path) !== restore) return;
    this.open.delete(restore.path);
    this.running--;
    this.polls = 0;
    restore.finish();
    this.pump();
  }

  private tell(text: string): void {
    this.options.tell?.(text);
  }
}
