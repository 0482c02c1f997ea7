/**
 * Audience: the ranks of one supply that live on this node, and how far each has got. It answers one question for
 * every row about to be decoded: will somebody here still ask for it?
 *
 * A rank is split into `stride` consumers when DataLoader workers share its steps (worker w takes steps w, w + n, …).
 * Tensor-, context- and pipeline-parallel *peers* are sessions of one rank that all take the same rows: a row is kept
 * until the last of them has it.
 */
import type { Order } from "../order/order.ts";

export interface ConsumerId {
  rank: number;
  /** Consumers the rank's steps are dealt to, and which of them this is (step number mod stride). */
  stride: number;
  residue: number;
  /** Which of the rank's peers on this node: seats are given out as sessions come. */
  peer: number;
}

/** The seats of one rank. */
interface Seats {
  stride: number;
  peers: number;
  /** Next step start by residue · peers + peer. */
  next: Float64Array;
}

/** Step arithmetic of one run: equal steps from `base`; with `last="pad"` each epoch begins a new step. */
export class Steps {
  readonly base: number;
  readonly size: number;
  private readonly padded: boolean;
  /** Of an epoch, with `pad`. */
  private readonly samples: number;
  private readonly perEpoch: number;

  constructor(order: Order, base: number, size: number) {
    this.size = size;
    this.padded = order.last === "pad";
    this.base = this.padded ? order.epochs.from : base;
    this.samples = order.epochs.spans[0]!.length;
    this.perEpoch = Math.ceil(this.samples / size);
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
    return Math.min(start + this.size, this.epochBegin(start) + this.samples);
  }

  /** Number of the step that begins at `start`, counted from `base`. */
  number(start: number): number {
    if (!this.padded) return Math.round((start - this.base) / this.size);
    const epoch = Math.floor((start - this.base) / this.samples);
    return epoch * this.perEpoch + Math.round((start - this.epochBegin(start)) / this.size);
  }

  private epochBegin(position: number): number {
    return this.base + Math.floor((position - this.base) / this.samples) * this.samples;
  }
}

const GONE = Number.POSITIVE_INFINITY;

export class Audience {
  readonly steps: Steps;
  readonly world: number;
  private readonly order: Order;
  /** By rank; undefined = not on this node. */
  private readonly seats: (Seats | undefined)[] = [];
  private readonly opened = new Set<string>();
  /** All ranks of the world are on this node and reading on: every row that comes is wanted. */
  everybody = false;
  private readonly held: boolean;
  private ceiling = 0;

  /** `held`: the rows of every position are kept. */
  constructor(order: Order, steps: Steps, world: number, held: boolean) {
    this.order = order;
    this.steps = steps;
    this.world = world;
    this.held = held;
  }

  /** Rows for this rank are kept from now on, until all its `peers` here took them, connected yet or not. */
  expect(rank: number, stride: number, peers: number, from: number): void {
    if (this.seats[rank] !== undefined) return;
    this.seats[rank] = { stride, peers, next: new Float64Array(stride * peers).fill(from) };
    this.refresh();
  }

  /** A free seat from which one can read on at `position`, without rows that were never kept or are gone. */
  seat(rank: number, stride: number, residue: number, position: number): ConsumerId | undefined {
    const seats = this.seats[rank];
    if (seats === undefined || seats.stride !== stride || this.steps.start(position) !== position) return undefined;
    for (let peer = 0; peer < seats.peers; peer++) {
      const id = { rank, stride, residue, peer };
      if (this.opened.has(consumerKey(id))) continue;
      // A view that is held whole has the rows of every position.
      if (this.held || position >= (seats.next[residue * seats.peers + peer] as number)) return id;
    }
    return undefined;
  }

  open(id: ConsumerId, position: number): void {
    this.opened.add(consumerKey(id));
    this.advance(id, position);
  }

  advance(id: ConsumerId, position: number): void {
    const seats = this.seats[id.rank];
    if (seats === undefined) throw new Error(`rank ${id.rank} is not expected here`);
    seats.next[id.residue * seats.peers + id.peer] = position;
    if (position > this.ceiling) this.ceiling = position;
  }

  /** Did all peers of this consumer take the step that begins at `start`? */
  passed(id: ConsumerId, start: number): boolean {
    return least(this.seats[id.rank] as Seats, id.residue) > start;
  }

  /** The consumer will not ask again. */
  leave(id: ConsumerId): void {
    this.opened.delete(consumerKey(id));
    this.advance(id, GONE);
    this.refresh();
  }

  /** Sessions that are waited for but never came: their rows are given up. Returns how many. */
  dropAbsent(): number {
    let dropped = 0;
    this.seats.forEach((seats, rank) => {
      seats?.next.forEach((position, at) => {
        const { stride, peers, next } = seats;
        const id = { rank, stride, residue: Math.floor(at / peers), peer: at % peers };
        if (position === GONE || this.opened.has(consumerKey(id))) return;
        next[at] = GONE;
        dropped++;
      });
    });
    if (dropped > 0) this.refresh();
    return dropped;
  }

  /** The consumer that is furthest behind, in words. */
  slowest(): string {
    let behind = GONE;
    let words = "nobody";
    this.seats.forEach((seats, rank) => {
      seats?.next.forEach((position, at) => {
        if (position >= behind) return;
        const { stride, peers } = seats;
        const id = { rank, stride, residue: Math.floor(at / peers), peer: at % peers };
        const which = peers === 1 ? "" : ` (one of ${peers} sessions with its rows)`;
        const here = this.opened.has(consumerKey(id));
        behind = position;
        words = `rank ${rank}${which}, which ${here ? `stands at position ${position}` : "has not connected"}`;
      });
    });
    return words;
  }

  /** Will a consumer on this node still ask for this position? */
  wants(position: number): boolean {
    if (this.everybody && position >= this.ceiling) return true;
    const start = this.steps.start(position);
    const seats = this.seats[this.order.owner(position, start, this.steps.size, this.world)];
    if (seats === undefined) return false;
    return start >= least(seats, seats.stride === 1 ? 0 : this.steps.number(start) % seats.stride);
  }

  /** The furthest position of a consumer that reads on. */
  get top(): number {
    let top = -1;
    for (const seats of this.seats) {
      if (seats !== undefined)
        for (const position of seats.next) if (position !== GONE && position > top) top = position;
    }
    return top;
  }

  /** Every position before this one was served, or has nobody left who wants it. */
  floor(): number {
    let floor = GONE;
    for (const seats of this.seats) {
      if (seats !== undefined) for (const position of seats.next) if (position < floor) floor = position;
    }
    return floor;
  }

  private refresh(): void {
    let here = 0;
    for (const seats of this.seats) if (seats !== undefined && isWhole(seats)) here++;
    this.everybody = here === this.world;
  }
}

/** Next step start of the peer that is furthest behind. */
function least({ peers, next }: Seats, residue: number): number {
  let position = GONE;
  for (let at = residue * peers; at < (residue + 1) * peers; at++) position = Math.min(position, next[at] as number);
  return position;
}

/** Is somebody there for each of the rank's steps? */
function isWhole(seats: Seats): boolean {
  for (let residue = 0; residue < seats.stride; residue++) if (least(seats, residue) === GONE) return false;
  return true;
}

/** Names a consumer inside its run, where all have one stride. */
export function consumerKey(id: ConsumerId): string {
  return `${id.rank}/${id.residue}/${id.peer}`;
}
