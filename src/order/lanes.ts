/** Lanes of a view: its laid samples 0 … N − 1 cut into L stretches, the first N mod L of them one longer. */
import type { Shape } from "./types.ts";

/** Laid samples of a lane. */
export function laneRows({ samples, lanes }: Shape, lane: number): number {
  const rest = samples % lanes;
  return (samples - rest) / lanes + (lane < rest ? 1 : 0);
}

/** First laid sample of a lane. */
export function laneStart({ samples, lanes }: Shape, lane: number): number {
  const rest = samples % lanes;
  return lane * ((samples - rest) / lanes) + Math.min(lane, rest);
}
