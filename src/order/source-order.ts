/**
 * Source order: the samples of one source (one view) in its lanes and passes, and where in the run they are served.
 *
 * Numbers: a *laid* sample counts along the permuted extents of a pass; a *row* counts in a lane, whose rows are shuffled
 * window by window; a *sample* counts in file order. `none` and `global` have one lane; `global` ignores the layout.
 *
 * @example
 * const source = order.sources[0];
 * source.sampleOf(pass, lane, row);
 */
import { quotient } from "./epochs.ts";
import { OrderOption } from "./errors.ts";
import { Feistel } from "./feistel.ts";
import { laneRows, laneStart } from "./lanes.ts";
import { Layout, type Piece } from "./layout.ts";
import { Mixer, permutation, PURPOSE } from "./mix.ts";
import type { Timeline } from "./timeline.ts";
import type { ExtentTable, Located, OrderView, ResolvedSource } from "./types.ts";

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

export class SourceOrder {
  /** N */
  readonly samples: number;
  readonly lanes: number;
  readonly extents: ExtentTable;
  readonly resolved: ResolvedSource;
  /** Its number in the run, a field of every random choice. */
  readonly number: number;
  /** Positions from one row of a lane to the next, at most. */
  readonly spread: number;
  readonly #timeline: Timeline;
  readonly #layouts = new Map<number, Layout>();
  readonly #feistels = new Map<number, Feistel>();
  readonly #windows = new Map<string, Window>();
  #keptRows = 0;

  constructor(view: OrderView, extents: ExtentTable, resolved: ResolvedSource, number: number, timeline: Timeline) {
    const found = extents.sampleStart[extents.count];
    if (found !== view.samples || extents.sampleStart[0] !== 0) {
      throw new OrderOption(`extents do not fit the view: they hold ${found} samples, expected ${view.samples}`);
    }
    this.samples = view.samples;
    this.lanes = resolved.lanes;
    this.extents = extents;
    this.resolved = resolved;
    this.number = number;
    this.#timeline = timeline;
    this.spread = timeline.spread(number);
  }

  /** Where a position of this source lies. */
  locate(position: number): Located {
    return this.#timeline.locate(position);
  }

  /** Sample number, in file order, of a position of this source. */
  sampleAt(position: number): number {
    const { pass, lane, row } = this.#timeline.locate(position);
    return this.sampleOf(pass, lane, row);
  }

  /** Laid rows of a lane; with `drop` the last ones may never be served. */
  laneRows(lane: number): number {
    return laneRows(this, lane);
  }

  /** First laid sample of a lane. */
  laneStart(lane: number): number {
    return laneStart(this, lane);
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
    const chance = new Mixer().bigint(seed).number(PURPOSE.window).number(this.number);
    return { firstRow, rows, perm: permutation(chance.number(epoch).number(lane).number(w), rows) };
  }

  /** Laid (unshuffled) rows [fromRow, toRow) of a lane, in reading order. */
  pieces(epoch: number, lane: number, fromRow: number, toRow: number): Piece[] {
    const start = this.laneStart(lane);
    return this.layout(epoch).pieces(start + fromRow, start + Math.min(toRow, this.laneRows(lane)));
  }

  /** Position at which a row of a lane is served; −1: never (the tail of a pass under `drop`, another view's pass). */
  positionAt(pass: number, lane: number, row: number): number {
    return this.#timeline.positionAt(this.number, pass, lane, row);
  }

  /** The row of a lane in front of which all are served before a position; undefined: it has none from there on. */
  rowAt(lane: number, position: number): { pass: number; row: number } | undefined {
    return this.#timeline.rowAt(this.number, lane, position);
  }

  /** First position at which a row of a lane is served, from this row on; infinite when there is none. */
  frontier(pass: number, lane: number, row: number): number {
    return this.#timeline.frontier(this.number, pass, lane, row);
  }

  /** The furthest position of rows [from, to) of a lane; −1: none of them is served. */
  reach(pass: number, lane: number, from: number, to: number): number {
    let reach = -1;
    // Rows are served nearly in turn: behind the last one that is served only a few others can come later.
    let rest = this.#timeline.stride(this.number);
    for (let row = to - 1; row >= from && rest > 0; row--) {
      reach = Math.max(reach, this.positionAt(pass, lane, row));
      if (reach >= 0) rest--;
    }
    return reach;
  }

  /** Rows of a lane between the one that comes first and the last one before it still to come, at most. */
  get apart(): number {
    return this.#timeline.apart(this.number);
  }

  /** The extents of a pass, laid end to end. */
  layout(epoch: number): Layout {
    const { seed, shuffle } = this.resolved;
    return kept(this.#layouts, epoch, () => {
      if (shuffle !== "window") return new Layout(this.extents, undefined);
      const chance = new Mixer().bigint(seed).number(PURPOSE.extents).number(this.number);
      return new Layout(this.extents, chance.number(epoch).number(0).number(0));
    });
  }

  /** Sample number, in file order, of a row. */
  sampleOf(epoch: number, lane: number, row: number): number {
    const { shuffle, seed, window } = this.resolved;
    if (shuffle === "none") return row;
    if (shuffle === "global") {
      return kept(this.#feistels, epoch, () => new Feistel(seed, this.number, epoch, this.samples)).at(row);
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
