/**
 * Timeline: the segments of a run as arithmetic: which row of which source a position is, and at which position a row is
 * served (docs/reference/order.md, "Mixtures and segments").
 *
 * ```
 *  0 ───────────── plain pieces ───────────┬──────── mixed segments ───── …
 *  view 0, pass 0 │ view 0, pass 1, G 512  │ views 0 1 2 │ other weights │ view 3 for 0
 * ```
 * @example
 * const timeline = new Timeline(["web", "code"], shapes, segments);
 * const { source, pass, lane, row } = timeline.locate(123_456);
 * timeline.positionAt(source, pass, lane, row); // 123456
 */
import type { Span } from "./deal.ts";
import { Epochs, quotient, type EpochSpan } from "./epochs.ts";
import { OrderOption } from "./errors.ts";
import { laneRows } from "./lanes.ts";
import { Mixed } from "./mixed.ts";
import { passLength, plainPieces, type PlainPiece } from "./plain.ts";
import { WEIGHT_SUM } from "./schedule.ts";
import type { Located, Segment, Shape } from "./types.ts";

/** A batch of a rank, whose positions may lie some apart. */
const RECENT = 1024;

export class Timeline {
  readonly epochs: Epochs;
  readonly segments: readonly Segment[];
  readonly #shapes: readonly Shape[];
  readonly #pieces: PlainPiece[];
  readonly #mixed: Mixed | undefined;
  /** Where positions lie that were asked for last, by position mod RECENT: a row is asked for by whoever waits, and to take it. */
  readonly #recent: (Located | undefined)[] = Array.from({ length: RECENT }, () => undefined);
  readonly #recentAt = new Float64Array(RECENT).fill(-1);

  /** `names`, `shapes`: of the sources by number. Throws ATH_ORDER_OPTION for segments that leave nothing to serve. */
  constructor(names: readonly string[], shapes: readonly Shape[], segments: readonly Segment[]) {
    const name = names[segments[0]!.sources[0]!];
    const first = segments.findIndex(({ sources }) => sources.length > 1 || names[sources[0]!] !== name);
    const plain = first < 0 ? segments : segments.slice(0, first);
    const later = first < 0 ? [] : segments.slice(first);
    for (const segment of segments) refuseNothing(shapes, segment);
    this.segments = segments;
    this.#shapes = shapes;
    const begin = later[0]?.from ?? Infinity;
    const { pieces, standing } =
      plain.length === 0 ? { pieces: [], standing: undefined } : plainPieces(shapes, plain, begin);
    this.#pieces = pieces;
    this.#mixed = later.length === 0 ? undefined : new Mixed(names, shapes, mixes(later), standing);
    const spans: EpochSpan[] = pieces.map(({ from, pass, place, length }) => ({
      from,
      epoch: pass,
      into: place,
      length,
    }));
    for (const segment of later) {
      const samples = segment.sources.reduce((sum, source) => sum + shapes[source]!.samples, 0);
      spans.push(continued(spans.at(-1), segment.from, passLength(samples, segment)));
    }
    const batches = segments.map(({ from, globalBatch }) => ({ from, size: globalBatch }));
    this.epochs = new Epochs(spans, batches, segments[0]!.last);
  }

  locate(position: number): Located {
    const at = position % RECENT;
    if (this.#recentAt[at] === position) return this.#recent[at]!;
    const located = this.#locate(this.epochs.checked(position));
    this.#recentAt[at] = position;
    this.#recent[at] = located;
    return located;
  }

  /** Position of a row; −1 where it is never served. */
  positionAt(source: number, pass: number, lane: number, row: number): number {
    const { lanes } = this.#shapes[source]!;
    const place = row * lanes + lane;
    for (const piece of this.#pieces) {
      if (piece.view !== source || place >= piece.length) continue;
      const x = (pass - piece.pass) * piece.length + place - piece.place;
      if (x >= 0 && piece.from + x < piece.to) return piece.from + x;
    }
    return this.#mixed?.positionAt(source, pass, lane, row) ?? -1;
  }

  /** The row of a lane in front of which all are served before `position`; undefined: it has none from there on. */
  rowAt(source: number, lane: number, position: number): { pass: number; row: number } | undefined {
    const { lanes } = this.#shapes[source]!;
    for (const { from, to, view, pass, place, length } of this.#pieces) {
      if (view !== source || to <= position || lane >= length) continue;
      const x = place + Math.max(0, position - from);
      let at = pass + Math.floor(x / length);
      let row = Math.ceil(((x % length) - lane) / lanes);
      if (row * lanes + lane >= length) [at, row] = [at + 1, 0];
      if (from + (at - pass) * length + row * lanes + lane - place < to) return { pass: at, row };
    }
    const mixed = this.#mixed;
    return mixed?.rowAt(source, lane, Math.max(position, mixed.from));
  }

  /** Rows of a source's lane that may be served in front of an earlier one of it, at most: 1 where they come in turn. */
  stride(source: number): number {
    return this.#mixed?.stride(source) ?? 1;
  }

  /** Rows of a source's lane between the one that comes first and the last one before it still to come, at most: 0 where they come in turn. */
  apart(source: number): number {
    return this.#mixed?.apart(source) ?? 0;
  }

  /** Positions from one row of a source's lane to the next, at most over its segments. */
  spread(source: number): number {
    let spread = 0;
    for (const { sources, weights } of this.segments) {
      const at = sources.indexOf(source);
      if (at >= 0) spread = Math.max(spread, (this.#shapes[source]!.lanes * WEIGHT_SUM) / weights[at]!);
    }
    return spread;
  }

  /**
   * First position at which a row of a lane is served, from this row on; infinite when there is none. Of the lanes of a
   * mixture that take rows of this one in turn, the one whose turn comes later may be further.
   */
  frontier(source: number, pass: number, lane: number, row: number): number {
    const rows = laneRows(this.#shapes[source]!, lane);
    let first = Infinity;
    for (let ahead = 0; ahead < this.stride(source); ahead++) {
      const at = row + ahead;
      const found = this.positionAt(source, pass + quotient(at, rows), lane, at % rows);
      if (found >= 0) first = Math.min(first, found);
    }
    if (first < Infinity) return first;
    // With `drop` the last rows of a pass are never served: behind them the next pass is due.
    const next = this.positionAt(source, pass + 1, lane, 0);
    return next >= 0 ? next : Infinity;
  }

  /** Is anything of a source served from a position on? */
  serves(source: number, position: number): boolean {
    const { lanes } = this.#shapes[source]!;
    for (let lane = 0; lane < lanes; lane++) {
      const at = this.rowAt(source, lane, position);
      if (at !== undefined && this.frontier(source, at.pass, lane, at.row) < Infinity) return true;
    }
    return false;
  }

  /** First position of the pass or segment that holds a position: nothing before it goes on beyond it unbroken. */
  stretchStart(position: number): number {
    const piece = this.#piece(position);
    if (piece === undefined) return this.#mixed!.segmentStart(position);
    const place = (piece.place + position - piece.from) % piece.length;
    return Math.max(piece.from, position - place);
  }

  /** Positions [start, end) as stretches in each of which the lane is the place mod the lanes. */
  spans(start: number, end: number): Span[] {
    const result: Span[] = [];
    for (let at = start; at < end;) {
      const piece = this.#piece(at);
      if (piece === undefined) {
        const base = this.#mixed!.segmentStart(at);
        result.push({ a: at - base, b: end - base, base, lanes: this.#mixed!.lanes });
        break;
      }
      const place = (piece.place + at - piece.from) % piece.length;
      const stop = Math.min(end, piece.to, at + piece.length - place);
      result.push({ a: place, b: place + stop - at, base: at - place, lanes: this.#shapes[piece.view]!.lanes });
      at = stop;
    }
    return result;
  }

  /** The lane by which a position is dealt; `source`: the one whose own lane that is, undefined in a mixture. */
  laneAt(position: number): { lane: number; source: number | undefined } {
    const piece = this.#piece(position);
    if (piece !== undefined) {
      const { source, lane } = this.#locate(position);
      return { lane, source };
    }
    const mixed = this.#mixed!;
    return { lane: (position - mixed.segmentStart(position)) % mixed.lanes, source: undefined };
  }

  #locate(position: number): Located {
    const piece = this.#piece(position);
    if (piece === undefined) return this.#mixed!.locate(position);
    const { lanes } = this.#shapes[piece.view]!;
    const x = piece.place + position - piece.from;
    const place = x % piece.length;
    const lane = place % lanes;
    return {
      source: piece.view,
      pass: piece.pass + (x - place) / piece.length,
      lane,
      row: (place - lane) / lanes,
    };
  }

  /** The plain piece that holds a position; undefined: a mixed segment does. */
  #piece(position: number): PlainPiece | undefined {
    for (let at = this.#pieces.length - 1; at >= 0; at--) {
      const piece = this.#pieces[at]!;
      if (position >= piece.from) return position < piece.to ? piece : undefined;
    }
    return undefined;
  }
}

/** Without those that differ from the one before in G only: lanes go on over them. */
function mixes(segments: readonly Segment[]): Segment[] {
  return segments.filter((segment, s) => {
    const before = segments[s - 1];
    return before?.sources.join() !== segment.sources.join() || before.weights.join() !== segment.weights.join();
  });
}

/** The epoch in progress goes on with a new length; what is done of it counts, up to the whole of it. */
function continued(before: EpochSpan | undefined, from: number, length: number): EpochSpan {
  if (before === undefined) return { from, epoch: 0, into: 0, length };
  const done = before.into + from - before.from;
  const into = done % before.length;
  return { from, epoch: before.epoch + (done - into) / before.length, into: Math.min(into, length), length };
}

function refuseNothing(shapes: readonly Shape[], segment: Segment): void {
  const samples = segment.sources.reduce((sum, source) => sum + shapes[source]!.samples, 0);
  if (passLength(samples, segment) > 0) return;
  throw new OrderOption(
    samples < 1
      ? "the data set has no samples"
      : `last="drop" drops everything: found ${samples} samples, expected at least one optimizer batch of ${segment.globalBatch}`,
    {},
    samples < 1 ? "check the path and the columns" : 'use last="carry", a smaller global batch, or more data',
  );
}
