/**
 * Balance: how the bytes of a set of files lie over the OSTs, and which files to lay elsewhere so that they lie evenly. Pure.
 *
 * A set that is read as a whole is done when the fullest OST is: `total / fullest` is how many OSTs work for it at a time, on average.
 */
import { isReleased, spreadOf } from "./layout.ts";
import type { Layout } from "./layout.ts";

export interface PlacedFile {
  path: string;
  layout: Layout;
  /** Bytes. */
  size: number;
}

export interface Balance {
  /** By number of the OST; OSTs that hold nothing of the set are there, too. */
  osts: { index: number; bytes: number; files: number }[];
  /** Bytes on metadata servers. */
  mdt: number;
  /** Bytes without an object: released files, holes. */
  none: number;
  /** How many OSTs work at a time while the whole set is read. */
  parallel: number;
  /** The same if the bytes lay as evenly as these files allow. */
  possible: number;
}

export interface Move {
  path: string;
  size: number;
  from: number;
  to: number;
}

/** `targets`: OSTs that could hold files of the set; those that hold some count even if they do not work now, or no tool lists them. */
export function balanceOf(files: readonly PlacedFile[], targets: readonly number[]): Balance {
  const osts = new Map(targets.map((index) => [index, { index, bytes: 0, files: 0 }]));
  let mdt = 0;
  let none = 0;
  const pieces: number[] = [];
  for (const { layout, size } of files) {
    const spread = spreadOf(layout, 0n, BigInt(size));
    mdt += Number(spread.mdt);
    none += Number(spread.none);
    for (const [index, bytes] of spread.osts) {
      const ost = osts.get(index) ?? { index, bytes: 0, files: 0 };
      ost.bytes += Number(bytes);
      ost.files++;
      osts.set(index, ost);
      pieces.push(Number(bytes));
    }
  }
  const sorted = [...osts.values()].sort((a, b) => a.index - b.index);
  const total = sorted.reduce((sum, { bytes }) => sum + bytes, 0);
  const fullest = Math.max(0, ...sorted.map(({ bytes }) => bytes));
  const atBest = Math.max(leastFullest(pieces, Math.max(1, sorted.length)), total / Math.max(1, sorted.length));
  return {
    osts: sorted,
    mdt,
    none,
    parallel: fullest === 0 ? 0 : total / fullest,
    possible: atBest === 0 ? 0 : total / atBest,
  };
}

/**
 * What the fullest OST holds at least, however pieces that stay whole are laid: of the `k * osts + 1` largest ones some OST has `k + 1`.
 * Six equal files on four OSTs: two on one of them.
 */
function leastFullest(pieces: readonly number[], osts: number): number {
  let least = 0;
  const upTo = [0];
  for (const bytes of pieces.toSorted((a, b) => b - a)) upTo.push(upTo.at(-1)! + bytes);
  for (let k = 0; k * osts < pieces.length; k++) {
    const count = k * osts + 1;
    least = Math.max(least, upTo[count]! - upTo[count - k - 1]!);
  }
  return least;
}

/** A quarter of the time for the whole set, and a set that takes longer than to say so. */
const WORTH = 1.25;
const WORTH_BYTES = 64 * 2 ** 20;
/** Near enough to even to stop. */
const EVEN = 1.05;

/** Whether the set lies so unevenly that moving data is worth it. */
export function isWorthIt({ osts, parallel, possible }: Balance): boolean {
  return possible >= parallel * WORTH && osts.reduce((sum, { bytes }) => sum + bytes, 0) >= WORTH_BYTES;
}

/** The OST of all that was written; undefined: none, or several, or several stripes on one, which no option of `lfs` brings back there. */
export function onlyOst({ components }: Layout): number | undefined {
  if (components.some(({ osts }) => osts.length > 1)) return undefined;
  const osts = new Set(components.flatMap((component) => component.osts));
  return osts.size === 1 ? [...osts][0] : undefined;
}

/**
 * Files on one OST that would lie better on another, the largest gain first: from the fullest OST to the emptiest one until a
 * move gains nothing. Files over several OSTs stay: another striping is the cure for them; so do mirrored
 * ones, whose mirrors a migration drops. `room`: bytes that an OST may take, of those that may take files.
 */
export function movesOf(files: readonly PlacedFile[], balance: Balance, room: ReadonlyMap<number, number>): Move[] {
  if (!isWorthIt(balance)) return [];
  const left = new Map(room);
  const load = new Map(balance.osts.map(({ index, bytes }) => [index, bytes]));
  const here = new Map<number, PlacedFile[]>();
  for (const file of files) {
    const { layout, size } = file;
    const only = onlyOst(layout);
    if (only === undefined || size === 0 || layout.mirrors > 1 || isReleased(layout)) continue;
    const list = here.get(only);
    if (list === undefined) here.set(only, [file]);
    else list.push(file);
  }
  for (const list of here.values()) list.sort((a, b) => b.size - a.size || (a.path < b.path ? -1 : 1));
  const even = (Math.max(...load.values()) * balance.parallel * EVEN) / balance.possible;
  const moves: Move[] = [];
  while (left.size > 0) {
    const from = [...load].reduce((a, b) => (b[1] > a[1] ? b : a))[0];
    const to = [...left.keys()].reduce((a, b) => ((load.get(b) ?? 0) < (load.get(a) ?? 0) ? b : a));
    if (from === to || load.get(from)! <= even) break;
    const gap = load.get(from)! - (load.get(to) ?? 0);
    const list = here.get(from) ?? [];
    // The largest that leaves the other one below where this one was.
    const at = list.findIndex(({ size }) => size < gap && size <= left.get(to)!);
    if (at < 0) {
      left.delete(to);
      continue;
    }
    const [{ path, size }] = list.splice(at, 1) as [PlacedFile];
    load.set(from, load.get(from)! - size);
    load.set(to, (load.get(to) ?? 0) + size);
    left.set(to, left.get(to)! - size);
    moves.push({ path, size, from, to });
  }
  return moves;
}
