/**
 * Finds the step time at which a loader reaches a given utilisation, by bisection on a logarithmic scale.
 *
 * Contract: AU grows with the step time; a loader that loads and computes in turn has AU = step / (step + load), which
 * gives the first guess. Each probe is a real run. The probe that came nearest is returned with what it measured: noise
 * can leave it some tenths away, and the report prints both.
 */
import { serialStep } from "./au.ts";

export interface FoundStep {
  /** AU asked for, percent. */
  wanted: number;
  stepMs: number;
  /** AU measured there. */
  au: number;
  probes: { stepMs: number; au: number }[];
}

const PROBES = 8;
/** Percentage points: nearer than the noise of a span of 2 s. */
const CLOSE = 0.5;

/** `loadSeconds`: seconds a batch takes without a step. `probe`: AU in percent at a step time. */
export async function findStep(
  wanted: number,
  loadSeconds: number,
  probe: (stepMs: number) => Promise<number>,
): Promise<FoundStep> {
  const guess = serialStep(loadSeconds, wanted) * 1000;
  let low = guess / 4;
  let high = guess * 4;
  const probes: { stepMs: number; au: number }[] = [];
  while (probes.length < PROBES) {
    const stepMs = Math.sqrt(low * high);
    const au = await probe(stepMs);
    probes.push({ stepMs, au });
    if (Math.abs(au - wanted) <= CLOSE) break;
    if (au < wanted) low = stepMs;
    else high = stepMs;
  }
  const distance = (each: { au: number }) => Math.abs(each.au - wanted);
  const best = probes.reduce((a, b) => (distance(b) < distance(a) ? b : a));
  return { wanted, stepMs: best.stepMs, au: best.au, probes };
}
