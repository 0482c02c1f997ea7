/**
 * Audience: the ranks of one supply that live on this node, and how far each has got. It answers one question for
 * every row about to be decoded: will somebody here still ask for it?
 *
 * A rank is split into `stride` consumers when DataLoader workers share its steps (worker w takes steps w, w + n, …).
 */
import type { Order } from "../order/order.ts";

export interface ConsumerId {
  rank: number;
  /** Consumers the rank's steps are dealt to, and which of them this is (step number mod stride). */
  stride: number;
  residue: number;
}

/** Step arithmetic of one run: equal steps from `base`; with `last="pad"` each epoch begins a new step. */
export class Steps {
  readonly base: number;
  readonly size: number;
  private readonly order: Order;
  private readonly padded: boolean;
  private readonly perEpoch: number;

  constructor(order: Order, base: number, size: number) {
    this.order = order;
    this.size = size;
    this.padded = order.resolved.last === "pad";
    this.base = this.padded ? order.resolved.from : base;
    this.perEpoch = Math.ceil(order.samples / size);
  }

  /** First position of the step that holds `position`. */
  start(position: number): number {
    if (!this.padded) return this.base + Math.floor((position - this.base) / this.size) * this.size;
    const begin = this.epochBegin(position);
    return begin + Math.floor((position - begin) / this.size) * this.size;
  }

  /** First position of the next step. */
  after(start: number): number {
    if (!this.padded) return start + this.size;
    return Math.min(start + this.size, this.epochBegin(start) + this.order.samples);
  }

  /** Number of the step that begins at `start`, counted from `base`. */
  number(start: number): number {
    if (!this.padded) return Math.round((start - this.base) / this.size);
    const epoch = Math.floor((start - this.base) / this.order.samples);
    return epoch * this.perEpoch + Math.round((start - this.epochBegin(start)) / this.size);
  }

  private epochBegin(position: number): number {
    return this.base + Math.floor((position - this.base) / this.order.samples) * this.order.samples;
  }
}

const GONE = Number.POSITIVE_INFINITY;

export class Audience {
  readonly steps: Steps;
  readonly world: number;
  private readonly order: Order;
  /** Per rank: next step start of each of its consumers; undefined = not on this node. */
  private readonly next: (Float64Array | undefined)[] = [];
  private readonly opened = new Set<string>();
  /** All ranks of the world are on this node and reading on: every row that comes is wanted. */
  everybody = false;
  private readonly held: boolean;
  private ceiling = 0;

  constructor(order: Order, steps: Steps, world: number) {
    this.order = order;
    this.steps = steps;
    this.world = world;
    this.held = order.resolved.held;
  }

  /** Rows for this rank are kept from now on, whether it has connected yet or not. */
  expect(rank: number, stride: number, from: number): void {
    if (this.next[rank] !== undefined) return;
    this.next[rank] = new Float64Array(stride).fill(from);
    this.refresh();
  }

  /** Can the consumer read on from `position` here, without rows that were never kept or are gone? */
  covers(id: ConsumerId, position: number): boolean {
    if (this.opened.has(consumerKey(id))) return false;
    if (this.steps.start(position) !== position) return false;
    const next = this.next[id.rank];
    const mine = next?.[id.residue];
    if (mine === undefined || next?.length !== id.stride) return false;
    // A view that is held whole has the rows of every position.
    return this.held || position >= mine;
  }

  open(id: ConsumerId, position: number): void {
    this.opened.add(consumerKey(id));
    this.advance(id, position);
  }

  advance(id: ConsumerId, position: number): void {
    const next = this.next[id.rank];
    if (next === undefined) throw new Error(`rank ${id.rank} is not expected here`);
    next[id.residue] = position;
    if (position > this.ceiling) this.ceiling = position;
  }

  /** The consumer will not ask again. */
  leave(id: ConsumerId): void {
    this.opened.delete(consumerKey(id));
    this.advance(id, GONE);
    this.refresh();
  }

  /** Ranks that are waited for but never came: their rows are given up. Returns how many. */
  dropAbsent(): number {
    let dropped = 0;
    this.next.forEach((next, rank) => {
      next?.forEach((position, residue) => {
        if (position !== GONE && !this.opened.has(consumerKey({ rank, stride: next.length, residue }))) {
          next[residue] = GONE;
          dropped++;
        }
      });
    });
    if (dropped > 0) this.refresh();
    return dropped;
  }

  /** The consumer that is furthest behind, in words. */
  slowest(): string {
    let rank = -1;
    let behind = GONE;
    this.next.forEach((next, candidate) => {
      const position = next === undefined ? GONE : Math.min(...next);
      if (position < behind) [rank, behind] = [candidate, position];
    });
    if (rank < 0) return "nobody";
    const here = [...this.opened].some((key) => key.startsWith(`${rank}/`));
    return `rank ${rank}, which ${here ? `stands at position ${behind}` : "has not connected"}`;
  }

  /** Will a consumer on this node still ask for this position? */
  wants(position: number): boolean {
    if (this.everybody && position >= this.ceiling) return true;
    const start = this.steps.start(position);
    const next = this.next[this.order.owner(position, start, this.steps.size, this.world)];
    if (next === undefined) return false;
    const residue = next.length === 1 ? 0 : this.steps.number(start) % next.length;
    return start >= (next[residue] as number);
  }

  /** The furthest position of a consumer that reads on. */
  get top(): number {
    let top = -1;
    for (const next of this.next) {
      if (next !== undefined) for (const position of next) if (position !== GONE && position > top) top = position;
    }
    return top;
  }

  /** Every position before this one was served, or has nobody left who wants it. */
  floor(): number {
    let floor = GONE;
    for (const next of this.next) {
      if (next !== undefined) for (const position of next) if (position < floor) floor = position;
    }
    return floor;
  }

  private refresh(): void {
    let here = 0;
    for (const next of this.next) if (next?.every((position) => position !== GONE) === true) here++;
    this.everybody = here === this.world;
  }
}

/** Names a consumer inside its run, where all have one stride. */
export function consumerKey(id: ConsumerId): string {
  return `${id.rank}/${id.residue}`;
}
