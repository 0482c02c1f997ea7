/**
 * Deal: which rank gets which position of a step (design §4.4.5).
 * The n positions of a step, sorted by (lane, position), are cut into `world` runs: rank r gets those from
 * ⌊r·n/world⌋ to ⌊(r+1)·n/world⌋. With n = S these are equal runs of S/world; a short step (`pad`) is spread
 * evenly, and each rank fills up with repeats of its last row. So a node keeps to its own lanes.
 *
 * Nothing is sorted: the positions of one pass in a step are consecutive, so how many lie in lanes below l is
 * a formula, and the place of a position in the sorted step follows from it.
 */
import { quotient, type Epochs } from "./epochs.ts";
import { OrderOption } from "./errors.ts";

export interface Dealt {
  /** S/world positions in delivery order; those from `valid` on repeat another and count for nothing. */
  positions: Float64Array;
  valid: number;
}

/** Places [a, b) of one pass; position = base + place. */
interface Span {
  a: number;
  b: number;
  base: number;
}

function spans(epochs: Epochs, start: number, end: number): Span[] {
  const result: Span[] = [];
  for (let at = start; at < end;) {
    const { place } = epochs.split(at);
    const count = Math.min(end - at, epochs.length - place);
    result.push({ a: place, b: place + count, base: at - place });
    at += count;
  }
  return result;
}

/** Places below x whose lane (place mod L) is below l. */
function below(x: number, lane: number, lanes: number): number {
  const rest = x % lanes;
  return ((x - rest) / lanes) * lane + Math.min(rest, lane);
}

/** Positions of the step whose lane is below l. */
function before(all: readonly Span[], lane: number, lanes: number): number {
  let count = 0;
  for (const { a, b } of all) count += below(b, lane, lanes) - below(a, lane, lanes);
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

/** Positions of `rank` in the step of `step` positions that begins at `start`. */
export function deal(epochs: Epochs, lanes: number, start: number, step: number, world: number, rank: number): Dealt {
  const batch = checkStep(step, world);
  if (!Number.isInteger(rank) || rank < 0 || rank >= world) {
    throw new OrderOption(`rank must be from 0 to ${world - 1}, found ${rank}`);
  }
  const end = epochs.stepEnd(start, step);
  const n = end - start;
  const all = spans(epochs, start, end);
  const first = quotient(rank * n, world);
  const valid = quotient((rank + 1) * n, world) - first;
  // A rank of a short step may own nothing: it repeats the row at which its run would begin.
  const wanted = Math.max(valid, 1);
  const positions = new Float64Array(batch);

  let low = 0; // the last lane with before(lane) ≤ first
  for (let high = lanes; high - low > 1;) {
    const middle = (low + high) >>> 1;
    if (before(all, middle, lanes) <= first) low = middle;
    else high = middle;
  }
  let skip = first - before(all, low, lanes);
  let filled = 0;
  for (let lane = low; filled < wanted; lane++) {
    for (const { a, b, base } of all) {
      let place = firstIn(a, lane, lanes);
      if (place >= b) continue;
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
export function owner(
  epochs: Epochs,
  lanes: number,
  position: number,
  start: number,
  step: number,
  world: number,
): number {
  checkStep(step, world);
  const end = epochs.stepEnd(start, step);
  if (position < start || position >= end) {
    throw new OrderOption(`position ${position} is not in the step from ${start} to ${end}`);
  }
  const all = spans(epochs, start, end);
  const lane = epochs.split(position).place % lanes;
  let index = before(all, lane, lanes);
  for (const { a, b, base } of all) {
    const place = firstIn(a, lane, lanes);
    const stop = Math.min(b, position - base); // positions before this one
    if (place < stop) index += quotient(stop - 1 - place, lanes) + 1;
  }
  return quotient((index + 1) * world - 1, end - start);
}
