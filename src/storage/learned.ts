/**
 * Learned: what is asked of files in the background, once a file, many at a time, and remembered.
 *
 * Contract: nothing waits for an answer. Files that did not answer are asked for again when they are expected again, and their file
 * system is left alone for a while first. Where nothing can be asked at all (no tool), nothing is known and nothing asked again.
 *
 * @example
 * const learned = new Learned({ batch: () => 512, ask: (batch) => askFiles(batch.map(({ path }) => path)), onFound: () => undefined });
 * learned.expect(["/mnt/d/a"], "trainfs");
 * learned.get("/mnt/d/a"); // later
 */

export interface Wanted {
  path: string;
  /** Name of its file system. */
  system: string;
  /** How soon it is needed among those it was expected with, 0 first. */
  rank: number;
}

export interface LearnedOptions<Found> {
  /** Files that are asked for at once, now. */
  batch(): number;
  /** One answer a file: what was found; undefined: nothing to be known of it; `"silent"`: no answer. Undefined: there is nothing to ask with. */
  ask(batch: readonly Wanted[]): Promise<readonly (Found | "silent" | undefined)[] | undefined>;
  /** It was learned, or was known already when it was expected again. `rank`: how soon it is needed, 0 first. */
  onFound?(path: string, found: Found, rank: number): void;
}

/** Files that are named within this time are asked for together. Milliseconds. */
const GATHER_MS = 20;
/** A metadata server that does not answer is left alone for so long. Milliseconds. */
const QUIET_MS = 60_000;
/** Files that are remembered; those asked for first are forgotten first. */
const MOST = 50_000;

export class Learned<Found> {
  private readonly options: LearnedOptions<Found>;
  /** By path; undefined: asked for, or not told. */
  private readonly known = new Map<string, Found | undefined>();
  private readonly wanted: Wanted[] = [];
  /** Those that are being asked for. */
  private readonly asked = new Map<string, Promise<unknown>>();
  private timer: NodeJS.Timeout | undefined;
  private asking = false;
  private quietUntil = 0;
  /** Closed, or there is nothing to ask with. */
  private over = false;

  constructor(options: LearnedOptions<Found>) {
    this.options = options;
  }

  get(path: string): Found | undefined {
    return this.known.get(path);
  }

  /** Something newer is known of a file. */
  keep(path: string, found: Found): void {
    this.known.set(path, found);
  }

  /** It is asked for anew when it is expected again. */
  forget(path: string): void {
    this.known.delete(path);
  }

  /** These will be needed soon, the first one first. */
  expect(paths: readonly string[], system: string): void {
    if (this.over) return;
    for (const [rank, path] of paths.entries()) {
      if (this.known.has(path)) {
        const found = this.known.get(path);
        if (found !== undefined) this.options.onFound?.(path, found, rank);
        continue;
      }
      this.known.set(path, undefined);
      this.wanted.push({ path, system, rank });
      if (this.known.size > MOST) this.known.delete(this.known.keys().next().value!);
    }
    this.askSoon(GATHER_MS);
  }

  /**
   * One file whose answer is waited for: asked at once, or waited for with those that are being asked. `systemOf`: where nobody expected
   * it; undefined: there is nothing to ask.
   */
  async now(path: string, systemOf: () => Promise<string | undefined>): Promise<Found | undefined> {
    if (this.known.get(path) !== undefined) return this.known.get(path);
    let asked = this.asked.get(path);
    if (asked === undefined) {
      asked = this.askOne(path, systemOf);
      this.asked.set(path, asked);
    }
    await asked;
    return this.known.get(path);
  }

  close(): void {
    this.over = true;
    clearTimeout(this.timer);
  }

  private async askOne(path: string, systemOf: () => Promise<string | undefined>): Promise<void> {
    let system = this.unqueue(path);
    if (system === undefined) {
      const found = await systemOf();
      // Expected meanwhile: asked for here, and not once more with the others.
      system = this.unqueue(path) ?? found;
    }
    if (system !== undefined) {
      // Not again with those that are expected.
      if (!this.known.has(path)) this.known.set(path, undefined);
      await this.learn([{ path, system, rank: 0 }]);
    }
    this.asked.delete(path);
  }

  /** Takes a file out of those that are to be asked for; its file system. */
  private unqueue(path: string): string | undefined {
    const at = this.wanted.findIndex((wanted) => wanted.path === path);
    return at < 0 ? undefined : this.wanted.splice(at, 1)[0]!.system;
  }

  private askSoon(ms: number): void {
    if (this.asking || this.over || this.wanted.length === 0) return;
    this.timer ??= setTimeout(() => {
      this.timer = undefined;
      void this.askNext();
    }, ms).unref();
  }

  private async askNext(): Promise<void> {
    // Who could not wait may have asked for all of them.
    if (this.wanted.length === 0) return;
    const now = performance.now();
    if (now < this.quietUntil) return this.askSoon(this.quietUntil - now);
    this.asking = true;
    await this.learn(this.wanted.splice(0, this.options.batch()));
    this.asking = false;
    this.askSoon(0);
  }

  private async learn(batch: readonly Wanted[]): Promise<void> {
    const asked = this.options.ask(batch);
    for (const { path } of batch) if (!this.asked.has(path)) this.asked.set(path, asked);
    const answers = await asked;
    for (const { path } of batch) if (this.asked.get(path) === asked) this.asked.delete(path);
    if (answers === undefined) {
      this.over = true;
      return;
    }
    for (const [i, { path, rank }] of batch.entries()) {
      const answer = answers[i];
      if (answer === "silent") {
        this.known.delete(path);
        this.quietUntil = performance.now() + QUIET_MS;
      } else if (answer !== undefined) {
        this.known.set(path, answer);
        this.options.onFound?.(path, answer, rank);
      }
    }
  }
}
