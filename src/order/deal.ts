/**
 * Deal: which rank gets which position of a step (design §4.4.5).
 * The n positions of a step, sorted by (lane, position), are cut into `world` runs: rank r gets those from
 * ⌊r·n/world⌋ to ⌊(r+1)·n/world⌋. With n = S these are equal runs of S/world; a short step (`pad`) is spread
 * evenly, and each rank fills up with repeats of its last row. So a node keeps to its own lanes.
 *
 * Nothing is sorted: the positions of one pass in a step are consecutive, so how many lie in lanes below l is
 * a formula, and the place of a position in the sorted step follows from it.
 */
import { quotient } from "./epochs.ts";
import { OrderOption } from "./errors.ts";

export interface Dealt {
  /** S/world positions in delivery order; those from `valid` on repeat another and count for nothing. */
  positions: Float64Array;
  valid: number;
}

/** Positions base + a … base + b − 1; their lane is the place (a … b − 1) mod the lanes. */
export interface Span {
  a: number;
  b: number;
  base: number;
  lanes: number;
}

/** Places below x whose lane (place mod L) is below l. */
function below(x: number, lane: number, lanes: number): number {
  if (lane >= lanes) return x;
  const rest = x % lanes;
  return ((x - rest) / lanes) * lane + Math.min(rest, lane);
}

/** Positions of the step whose lane is below l. */
function before(all: readonly Span[], lane: number): number {
  let count = 0;
  for (const { a, b, lanes } of all) count += below(b, lane, lanes) - below(a, lane, lanes);
  return count;
}

/** First place ≥ a of a lane. */
function firstIn(a: number, lane: number, lanes: number): number {
  return a + ((((lane - a) % lanes) + lanes) % lanes);
}

function checkStep(step: number, world: number): number {
  if (!Number.isInteger(world) || world < 1 || !Number.isInteger(step) || step < world || step % world !== 0) {
    throw new OrderOption(`a step must be world size × batch size: found step ${step}, world size ${world}`);
  }
  return step / world;
}

/** Positions of `rank` in a step of `step` positions (fewer in a short one), given as its spans. */
export function deal(all: readonly Span[], step: number, world: number, rank: number): Dealt {
  const batch = checkStep(step, world);
  if (!Number.isInteger(rank) || rank < 0 || rank >= world) {
    throw new OrderOption(`rank must be from 0 to ${world - 1}, found ${rank}`);
  }
  const n = sizeOf(all);
  const first = quotient(rank * n, world);
  const valid = quotient((rank + 1) * n, world) - first;
  // A rank of a short step may own nothing: it repeats the row at which its run would begin.
  const wanted = Math.max(valid, 1);
  const positions = new Float64Array(batch);

  let low = 0; // the last lane with before(lane) ≤ first
  for (let high = all.reduce((most, { lanes }) => Math.max(most, lanes), 1); high - low > 1;) {
    const middle = (low + high) >>> 1;
    if (before(all, middle) <= first) low = middle;
    else high = middle;
  }
  let skip = first - before(all, low);
  let filled = 0;
  for (let lane = low; filled < wanted; lane++) {
    for (const { a, b, base, lanes } of all) {
      let place = firstIn(a, lane, lanes);
      if (lane >= lanes || place >= b) continue;
      const skipped = Math.min(skip, quotient(b - 1 - place, lanes) + 1);
      skip -= skipped;
      place += skipped * lanes;
      for (; place < b && filled < wanted; place += lanes) positions[filled++] = base + place;
    }
  }
  positions.fill(positions[wanted - 1]!, wanted);
  return { positions, valid };
}

/** The rank that is dealt a position of the step: a formula, equal to `deal`. */
export function owner(all: readonly Span[], position: number, step: number, world: number): number {
  checkStep(step, world);
  const own = all.find(({ a, b, base }) => position >= base + a && position < base + b);
  if (own === undefined) throw new OrderOption(`position ${position} is not in the step`);
  const lane = (position - own.base) % own.lanes;
  let index = before(all, lane);
  for (const { a, b, base, lanes } of all) {
    if (lane >= lanes) continue;
    const place = firstIn(a, lane, lanes);
    const stop = Math.min(b, position - base); // positions before this one
    if (place < stop) index += quotient(stop - 1 - place, lanes) + 1;
  }
  return quotient((index + 1) * world - 1, sizeOf(all));
}

/** Positions of a step. */
function sizeOf(all: readonly Span[]): number {
  return all.reduce((sum, { a, b }) => sum + b - a, 0);
}
