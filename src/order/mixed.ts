/**
 * Mixed segments: the schedule runs inside each of L lanes, and each source goes on in its own lanes and passes
 * (docs/reference/order.md, "Mixtures and segments").
 *
 *   position   from + j·L + l            row j of lane l
 *   occurrence k of a source in lane l   counted through all mixed segments
 *   stream row start(m) + ⌊l/Lᵢ⌋ + k·(L/Lᵢ) of the source's lane m = l mod Lᵢ; row x lies in pass ⌊x/Rₘ⌋
 */
import { OrderOption } from "./errors.ts";
import { laneRows } from "./lanes.ts";
import type { Standing } from "./plain.ts";
import { Schedule } from "./schedule.ts";
import type { Located, Segment, Shape } from "./types.ts";

/** One view of a source, from its first pass on to that of the next view. */
interface Stay {
  view: number;
  shape: Shape;
  /** Lanes of the run to one of the view. */
  stride: number;
  firstPass: number;
  /** First row of each lane's stream. */
  start: Float64Array;
}

interface Strand {
  stays: Stay[];
  /** Its parts, in order. */
  turns: { segment: MixedSegment; part: Part }[];
  /** Passes below this one were begun before the mixed segments. */
  begun: number;
  /** Occurrences that one lane of the run has more than another where a segment ends, at most. */
  drift: number;
}

interface Part {
  strand: Strand;
  /** Place in the segment's list. */
  at: number;
  /** By lane: occurrences in earlier segments, less those of the schedule's rows before the lane's first: so `schedule count + base` numbers a row. */
  base: Float64Array;
  /** By lane: occurrences in earlier segments. */
  first: Float64Array;
}

interface MixedSegment {
  from: number;
  to: number;
  schedule: Schedule;
  parts: Part[];
}

export class Mixed {
  readonly from: number;
  readonly lanes: number;
  readonly #segments: MixedSegment[] = [];
  /** View → where it stands in its source. */
  readonly #views = new Map<number, { strand: Strand; stay: number }>();

  /** `names`, `shapes`: of the sources by number. `standing`: the plain source of before, if there is one. */
  constructor(
    names: readonly string[],
    shapes: readonly Shape[],
    segments: readonly Segment[],
    standing: Standing | undefined,
  ) {
    this.from = segments[0]!.from;
    this.lanes = segments[0]!.lanes;
    const strands = new Map<string, { strand: Strand; counts: Float64Array }>();
    for (const [s, segment] of segments.entries()) {
      const to = segments[s + 1]?.from ?? Infinity;
      const schedule = new Schedule(segment.weights);
      const parts = segment.sources.map((view, at) => {
        const name = names[view]!;
        let found = strands.get(name);
        if (found === undefined) {
          const was = standing !== undefined && names[standing.view] === name ? standing : undefined;
          found = { strand: this.#strand(shapes, view, was), counts: new Float64Array(this.lanes) };
          strands.set(name, found);
        }
        const { strand, counts } = found;
        this.#renew(strand, counts, shapes, view);
        for (const stay of strand.stays) refuseUneven(name, stay.shape, segment.lanes, this.lanes);
        const base = counts.map((count, lane) => count - schedule.count(at, lane));
        return { strand, at, base, first: counts.slice(), counts };
      });
      const made = { from: segment.from, to, schedule, parts: parts.map(({ counts: _, ...part }) => part) };
      this.#segments.push(made);
      for (const part of made.parts) part.strand.turns.push({ segment: made, part });
      if (to === Infinity) continue;
      for (const { strand, at, base, counts } of parts) {
        let [least, most] = [Infinity, 0];
        for (let lane = 0; lane < this.lanes; lane++) {
          const rows = Math.floor((to - segment.from - lane + this.lanes - 1) / this.lanes);
          counts[lane] = base[lane]! + schedule.count(at, lane + rows);
          least = Math.min(least, counts[lane]!);
          most = Math.max(most, counts[lane]!);
        }
        strand.drift = Math.max(strand.drift, most - least);
      }
    }
    for (const { strand } of strands.values()) {
      for (const [stay, { view }] of strand.stays.entries()) this.#views.set(view, { strand, stay });
    }
  }

  has(view: number): boolean {
    return this.#views.has(view);
  }

  /** Start of the segment that holds a position. */
  segmentStart(position: number): number {
    return this.#segmentOf(position).from;
  }

  locate(position: number): Located {
    const segment = this.#segmentOf(position);
    const p = position - segment.from;
    const lane = p % this.lanes;
    const row = lane + (p - lane) / this.lanes;
    const { strand, base } = segment.parts[segment.schedule.at(row)]!;
    return this.#rowOf(strand, lane, base[lane]! + segment.schedule.rank(row));
  }

  /** Position of a row of a view's lane; −1: it is never served in mixed segments. */
  positionAt(view: number, pass: number, lane: number, row: number): number {
    const found = this.#views.get(view);
    if (found === undefined) return -1;
    const { strand } = found;
    const stay = strand.stays[found.stay]!;
    const x = pass * laneRows(stay.shape, lane) + row - stay.start[lane]!;
    if (x < 0 || (strand.stays[found.stay + 1]?.firstPass ?? Infinity) <= pass) return -1;
    const group = x % stay.stride;
    const own = group * stay.shape.lanes + lane;
    let k = (x - group) / stay.stride;
    for (let t = 0; t < found.stay; t++) k += this.#taken(strand, t, own);
    return this.#positionOf(strand, own, k);
  }

  /**
   * The first row of a view's lane, in its stream, in front of which all rows are served before a position; undefined:
   * the view has none from there on.
   */
  rowAt(view: number, lane: number, position: number): { pass: number; row: number } | undefined {
    const found = this.#views.get(view);
    if (found === undefined) return undefined;
    const { strand } = found;
    const stay = strand.stays[found.stay]!;
    let first = Infinity;
    for (let group = 0; group < stay.stride; group++) {
      const own = group * stay.shape.lanes + lane;
      let k = this.#countBefore(strand, own, position);
      for (let t = 0; t < found.stay; t++) k -= this.#taken(strand, t, own);
      first = Math.min(first, group + Math.max(k, 0) * stay.stride);
    }
    const x = stay.start[lane]! + first;
    const rows = laneRows(stay.shape, lane);
    const pass = Math.floor(x / rows);
    if ((strand.stays[found.stay + 1]?.firstPass ?? Infinity) <= pass) return undefined;
    return { pass, row: x % rows };
  }

  /** Rows of a view's lane that can be served before an earlier one of it, at most. */
  stride(view: number): number {
    const found = this.#views.get(view);
    return found === undefined ? 1 : found.strand.stays[found.stay]!.stride;
  }

  /**
   * Rows from the one that comes first to the last one before it that is still to come, at most. In a segment lanes of the
   * run that share one of the view are three turns apart; each segment begins the schedule anew, so that more of them add up.
   */
  apart(view: number): number {
    const found = this.#views.get(view);
    if (found === undefined) return 0;
    const { strand, stay } = found;
    const { stride } = strand.stays[stay]!;
    return stride > 1 ? (4 + strand.drift) * stride : 0;
  }

  #segmentOf(position: number): MixedSegment {
    const segments = this.#segments;
    let at = segments.length - 1;
    while (at > 0 && segments[at]!.from > position) at--;
    return segments[at]!;
  }

  #strand(shapes: readonly Shape[], view: number, standing: Standing | undefined): Strand {
    if (standing === undefined) {
      return { stays: [this.#stay(shapes, view, 0)], turns: [], begun: 0, drift: 0 };
    }
    const { pass, place, next } = standing;
    const begun = place > 0 ? pass + 1 : pass;
    const stay = this.#stay(shapes, standing.view, pass);
    const { lanes } = stay.shape;
    for (let lane = 0; lane < lanes; lane++) {
      stay.start[lane]! += Math.floor((place - lane + lanes - 1) / lanes);
    }
    const stays = [stay];
    if (next !== standing.view) stays.push(this.#stay(shapes, next, pass + 1));
    return { stays, turns: [], begun, drift: 0 };
  }

  #stay(shapes: readonly Shape[], view: number, firstPass: number): Stay {
    const shape = shapes[view]!;
    const start = Float64Array.from({ length: shape.lanes }, (_, lane) => firstPass * laneRows(shape, lane));
    return { view, shape, stride: this.lanes / shape.lanes, firstPass, start };
  }

  /** Another view of the source is in force: it begins with the first pass that the one before has not begun. */
  #renew(strand: Strand, counts: Float64Array, shapes: readonly Shape[], view: number): void {
    const { stays } = strand;
    const last = stays.at(-1)!;
    if (last.view === view) return;
    let firstPass = Math.max(last.firstPass, stays.length === 1 ? strand.begun : 0);
    for (let own = 0; own < this.lanes; own++) {
      let taken = counts[own]!;
      for (let t = 0; t < stays.length - 1; t++) taken -= this.#taken(strand, t, own);
      if (taken <= 0) continue;
      const lane = own % last.shape.lanes;
      const group = (own - lane) / last.shape.lanes;
      const x = last.start[lane]! + group + (taken - 1) * last.stride;
      firstPass = Math.max(firstPass, Math.floor(x / laneRows(last.shape, lane)) + 1);
    }
    if (firstPass === last.firstPass) stays.pop();
    if (stays.at(-1)?.view === view) return;
    stays.push(this.#stay(shapes, view, firstPass));
  }

  /** Rows that a lane of the run takes of a stay in all. */
  #taken({ stays }: Strand, t: number, own: number): number {
    const { shape, stride, start } = stays[t]!;
    const next = stays[t + 1];
    if (next === undefined) return Infinity;
    const lane = own % shape.lanes;
    const group = (own - lane) / shape.lanes;
    const rows = next.firstPass * laneRows(shape, lane) - start[lane]! - group;
    return rows <= 0 ? 0 : Math.ceil(rows / stride);
  }

  #rowOf(strand: Strand, own: number, occurrence: number): Located {
    let k = occurrence;
    let t = 0;
    for (let taken = this.#taken(strand, t, own); k >= taken; taken = this.#taken(strand, t, own)) {
      k -= taken;
      t++;
    }
    const { view, shape, stride, start } = strand.stays[t]!;
    const lane = own % shape.lanes;
    const x = start[lane]! + (own - lane) / shape.lanes + k * stride;
    const row = x % laneRows(shape, lane);
    return { source: view, pass: (x - row) / laneRows(shape, lane), lane, row };
  }

  #positionOf({ turns }: Strand, own: number, k: number): number {
    // Asked for each row: of many phases the right one is found at once.
    let [low, high] = [0, turns.length];
    while (high - low > 1) {
      const middle = (low + high) >>> 1;
      if (turns[middle]!.part.first[own]! <= k) low = middle;
      else high = middle;
    }
    const { segment, part } = turns[low]!;
    if (k < part.first[own]!) return -1;
    const { from, to, schedule } = segment;
    const position = from + (schedule.nth(part.at, k - part.base[own]!) - own) * this.lanes + own;
    return position < to ? position : -1;
  }

  /** Occurrences of a source in a lane of the run before a position. */
  #countBefore(strand: Strand, own: number, position: number): number {
    for (let s = this.#segments.length - 1; s >= 0; s--) {
      const { from, to, schedule, parts } = this.#segments[s]!;
      const part = parts.find((candidate) => candidate.strand === strand);
      if (part === undefined || from > position) continue;
      const rows = Math.max(0, Math.floor((Math.min(position, to) - from - own + this.lanes - 1) / this.lanes));
      return part.base[own]! + schedule.count(part.at, own + rows);
    }
    return 0;
  }
}

/** Lanes of a mixture take rows of a source's lanes in turn: what does not divide, or has none, would have rows nowhere. */
function refuseUneven(name: string, { samples, lanes }: Shape, own: number, all: number): void {
  if (own === all && all % lanes === 0 && lanes <= samples) return;
  throw new OrderOption(
    `source ${name} cannot be mixed: ${samples} samples in ${lanes} lanes, among the ${own} of a segment and ${all} of the mixture`,
    {},
    "begin a new order (override=True), with fewer `lanes`",
  );
}
