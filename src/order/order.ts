/**
 * Order: the endless sequence of samples of one source in one segment (design §4.4.1–8). Pure: the same view,
 * seed and options give the same sequence on every node, at any world size, and seeking is arithmetic.
 *
 * Numbers: a *position* counts samples since the run began; a *place* counts within a pass over the data
 * (0 … E − 1); place p is row ⌊p/L⌋ of lane p mod L; a *laid* sample counts along the permuted extents;
 * a *sample* counts in file order. `none` and `global` have one lane; `global` ignores the layout.
 *
 * @example
 * const resolved = resolveOrder(view, { seed: 1234n, globalBatch: 256 });
 * const order = new Order(view, await extents(index, resolved.extentBlocks), resolved);
 * order.sampleAt(1_000_000);                    // sample number in file order
 * order.deal(0, 64, 2, 1).positions;            // what rank 1 of 2 gets in the first step of 64
 */
import { deal, owner, type Dealt } from "./deal.ts";
import { Epochs, quotient } from "./epochs.ts";
import { OrderOption } from "./errors.ts";
import { Feistel } from "./feistel.ts";
import { Layout, type Piece } from "./layout.ts";
import { Mixer, permutation, PURPOSE } from "./mix.ts";
import type { ExtentTable, Located, OrderView, ResolvedOrder } from "./types.ts";

export interface Window {
  /** Row of the lane at which the window begins. */
  firstRow: number;
  rows: number;
  /** perm[i]: which laid row of the window (0 … rows − 1) is served i-th. */
  perm: Uint32Array;
}

/** Layouts kept: the pass in progress and its neighbours (a pass of 4 M extents takes 48 MB). */
const KEPT_PASSES = 3;
/** Window rows kept for `locate` (4 bytes each); one window is always kept. */
const KEPT_ROWS = 4 * 1024 * 1024;

export class Order {
  /** N */
  readonly samples: number;
  /** E: positions of one pass; N, or less with `drop`. */
  readonly epochLength: number;
  readonly lanes: number;
  readonly epochs: Epochs;
  readonly extents: ExtentTable;
  readonly resolved: ResolvedOrder;
  readonly #source: number;
  readonly #layouts = new Map<number, Layout>();
  readonly #feistels = new Map<number, Feistel>();
  readonly #windows = new Map<string, Window>();
  #keptRows = 0;

  /** `source`: number of the source, a field of every random choice (0 for a single one). */
  constructor(view: OrderView, extents: ExtentTable, resolved: ResolvedOrder, source = 0) {
    const found = extents.sampleStart[extents.count];
    if (found !== view.samples || extents.sampleStart[0] !== 0) {
      throw new OrderOption(`extents do not fit the view: they hold ${found} samples, expected ${view.samples}`);
    }
    this.epochs = new Epochs(view.samples, resolved);
    this.samples = view.samples;
    this.epochLength = this.epochs.length;
    this.lanes = resolved.lanes;
    this.extents = extents;
    this.resolved = resolved;
    this.#source = source;
  }

  /** The loader's epoch of a position: the greatest e with begin(e) ≤ position. */
  epochOf(position: number): number {
    return this.epochs.epochOf(position);
  }

  /** B(e). */
  begin(epoch: number): number {
    return this.epochs.begin(epoch);
  }

  /** Steps of `step` positions in the loader's epoch e. */
  steps(epoch: number, step: number): number {
    return this.epochs.steps(epoch, step);
  }

  /** End of the step that begins at `start`: `start + step`, or the epoch's end with `pad`. */
  stepEnd(start: number, step: number): number {
    return this.epochs.stepEnd(start, step);
  }

  /** Where a position lies; `epoch` is the pass over the data in which its sample is served. */
  locate(position: number): Located {
    const { pass, place } = this.epochs.split(position);
    const lane = place % this.lanes;
    const row = (place - lane) / this.lanes;
    return { epoch: pass, lane, row, sample: this.#sample(pass, lane, row) };
  }

  /** Sample number in file order. */
  sampleAt(position: number): number {
    const { pass, place } = this.epochs.split(position);
    const lane = place % this.lanes;
    return this.#sample(pass, lane, (place - lane) / this.lanes);
  }

  /** Laid rows of a lane; with `drop` the last ones may never be served. */
  laneRows(lane: number): number {
    return quotient(this.samples, this.lanes) + (lane < this.samples % this.lanes ? 1 : 0);
  }

  /** First laid sample of a lane. */
  laneStart(lane: number): number {
    return lane * quotient(this.samples, this.lanes) + Math.min(lane, this.samples % this.lanes);
  }

  /** Windows of a lane. */
  windows(lane: number): number {
    return quotient(this.laneRows(lane) + this.resolved.window - 1, this.resolved.window);
  }

  /** Window w of a lane; computed at each call (some 40 ns a row), so callers keep what they need. Not for `global`. */
  window(epoch: number, lane: number, w: number): Window {
    const { window, shuffle, seed } = this.resolved;
    if (shuffle === "global") throw new OrderOption('shuffle="global" has no windows: use sampleAt');
    const firstRow = w * window;
    const rows = Math.min(window, this.laneRows(lane) - firstRow);
    if (!(rows > 0)) throw new OrderOption(`lane ${lane} has ${this.windows(lane)} windows, found window ${w}`);
    if (shuffle === "none") return { firstRow, rows, perm: Uint32Array.from({ length: rows }, (_, i) => i) };
    const chance = new Mixer().bigint(seed).number(PURPOSE.window).number(this.#source);
    return { firstRow, rows, perm: permutation(chance.number(epoch).number(lane).number(w), rows) };
  }

  /** Laid (unshuffled) rows [fromRow, toRow) of a lane, in reading order. */
  pieces(epoch: number, lane: number, fromRow: number, toRow: number): Piece[] {
    const start = this.laneStart(lane);
    return this.layout(epoch).pieces(start + fromRow, start + Math.min(toRow, this.laneRows(lane)));
  }

  /** Position at which a row of a lane is served; −1 if it lies beyond E (`drop`). */
  positionAt(epoch: number, lane: number, row: number): number {
    const place = row * this.lanes + lane;
    return place >= this.epochLength ? -1 : this.resolved.from + epoch * this.epochLength + place;
  }

  /** Positions of a rank in one step, in delivery order. */
  deal(stepStart: number, step: number, world: number, rank: number): Dealt {
    return deal(this.epochs, this.lanes, stepStart, step, world, rank);
  }

  /** The rank that `deal` gives a position to. */
  owner(position: number, stepStart: number, step: number, world: number): number {
    return owner(this.epochs, this.lanes, position, stepStart, step, world);
  }

  /** The extents of a pass, laid end to end. */
  layout(epoch: number): Layout {
    const { seed, shuffle } = this.resolved;
    return kept(this.#layouts, epoch, () => {
      if (shuffle !== "window") return new Layout(this.extents, undefined);
      const chance = new Mixer().bigint(seed).number(PURPOSE.extents).number(this.#source);
      return new Layout(this.extents, chance.number(epoch).number(0).number(0));
    });
  }

  #sample(epoch: number, lane: number, row: number): number {
    const { shuffle, seed, window } = this.resolved;
    if (shuffle === "none") return row;
    if (shuffle === "global") {
      return kept(this.#feistels, epoch, () => new Feistel(seed, this.#source, epoch, this.samples)).at(row);
    }
    const w = quotient(row, window);
    const { firstRow, perm } = this.#keptWindow(epoch, lane, w);
    const laid = this.laneStart(lane) + firstRow + perm[row - firstRow]!;
    const layout = this.layout(epoch);
    const rank = layout.rankOf(laid);
    return this.extents.sampleStart[layout.extentAt(rank)]! + laid - layout.start(rank);
  }

  #keptWindow(epoch: number, lane: number, w: number): Window {
    const key = `${epoch}/${lane}/${w}`;
    let found = this.#windows.get(key);
    if (found === undefined) {
      found = this.window(epoch, lane, w);
      this.#windows.set(key, found);
      this.#keptRows += found.rows;
      for (const [old, { rows }] of this.#windows) {
        if (this.#keptRows <= KEPT_ROWS || old === key) break;
        this.#windows.delete(old);
        this.#keptRows -= rows;
      }
    }
    return found;
  }
}

/** A map that forgets its oldest entry. */
function kept<T>(map: Map<number, T>, key: number, make: () => T): T {
  let found = map.get(key);
  if (found === undefined) {
    found = make();
    map.set(key, found);
    for (const old of map.keys()) {
      if (map.size <= KEPT_PASSES) break;
      map.delete(old);
    }
  }
  return found;
}
