/**
 * Plain segments: one source at a time, place after place (docs/reference/order.md, "Mixtures and segments"). They are cut
 * into pieces in each of which a position is a pass and a place by one formula:
 *
 *   x = place + (P − from);  pass + ⌊x / length⌋, x mod length
 *
 * A view that follows another of the same name (shards were appended) begins with its own next pass.
 */
import type { Segment, Shape } from "./types.ts";

export interface PlainPiece {
  from: number;
  /** First position behind it. */
  to: number;
  view: number;
  /** Where its first position lies. */
  pass: number;
  place: number;
  /** E: places of a pass. */
  length: number;
}

/** Where the source stands when its plain segments end. */
export interface Standing {
  view: number;
  pass: number;
  place: number;
  /** The view in force; another one than `view` when that has not come to the end of its pass. */
  next: number;
}

/** Places of a pass under a segment's rule; 0: `drop` leaves nothing. */
export function passLength(samples: number, { last, globalBatch }: Pick<Segment, "last" | "globalBatch">): number {
  return last === "drop" ? samples - (samples % globalBatch) : samples;
}

/** `end`: where the mixed segments begin; infinite when there are none. */
export function plainPieces(
  shapes: readonly Shape[],
  segments: readonly Segment[],
  end: number,
): { pieces: PlainPiece[]; standing: Standing } {
  const pieces: PlainPiece[] = [];
  let view = segments[0]!.sources[0]!;
  let next = view;
  let pass = 0;
  let place = 0;
  for (const [k, segment] of segments.entries()) {
    const to = segments[k + 1]?.from ?? end;
    next = segment.sources[0]!;
    if (place === 0) view = next;
    for (let at = segment.from; at < to;) {
      const { samples } = shapes[view]!;
      // With `drop` a pass in progress keeps whole optimizer batches of this segment's size.
      const ending = place > 0 && (next !== view || segment.last === "drop");
      const length = ending ? place + passLength(samples - place, segment) : passLength(samples, segment);
      const stop = ending ? Math.min(at + length - place, to) : to;
      if (stop > at) pieces.push({ from: at, to: stop, view, pass, place, length });
      if (stop < Infinity) {
        const x = place + stop - at;
        place = x % length;
        pass += (x - place) / length;
      }
      if (place === 0) view = next;
      at = stop;
    }
  }
  return { pieces, standing: { view, pass, place, next } };
}
