/**
 * Token bucket: how many of something may be begun now, at so many a second with a burst. Pure but for its clock, which can be given.
 *
 * Contract: full at first. Takes no time and sets no timer: who asks decides what to do with a wait. More may be taken than is there;
 * what is owed fills up first.
 *
 * By hand, since those looked at bring timers and a clock of their own, and promises that cannot wait in a queue which has other reasons
 * to wait too: p-throttle 8 (a window, no burst), bottleneck 2.19 (a scheduler; last release 2019), limiter 4 (its own clock).
 *
 * @example
 * const bucket = new Bucket(1000, 256);
 * if (bucket.waitMs() === 0) bucket.take();
 */
export class Bucket {
  private rate: number;
  private most: number;
  private tokens: number;
  private at: number;
  private readonly now: () => number;

  /** `now`: milliseconds of any clock that never goes back. */
  constructor(perSecond: number, burst: number, now: () => number = () => performance.now()) {
    this.rate = perSecond;
    this.most = burst;
    this.tokens = burst;
    this.now = now;
    this.at = now();
  }

  get perSecond(): number {
    return this.rate;
  }

  get burst(): number {
    return this.most;
  }

  /** From now on another rate and burst; what is there stays, as far as it has room. */
  change(perSecond: number, burst: number): void {
    this.tokens = Math.min(this.there(), burst);
    this.rate = perSecond;
    this.most = burst;
  }

  /** Tokens, a part of one too; below 0: owed. */
  there(): number {
    const now = this.now();
    this.tokens = Math.min(this.most, this.tokens + ((now - this.at) * this.rate) / 1000);
    this.at = now;
    return this.tokens;
  }

  /** Milliseconds until one is there; 0: now. */
  waitMs(): number {
    const missing = 1 - this.there();
    // Sums of parts: a thousand times a thousandth may come to a little less than one.
    return missing < 1e-9 ? 0 : (missing * 1000) / this.rate;
  }

  /** Takes so many, there or not. */
  take(count = 1): void {
    this.tokens = this.there() - count;
  }
}
