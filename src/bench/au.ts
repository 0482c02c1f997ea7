/**
 * Accelerator utilisation, and the arithmetic around it.
 *
 * MLPerf Storage: AU = 100 × total compute time / total running time, the first step left out. Here both are measured
 * on the rank's clock: the running time is from the end of the first batch to the end of the last emulated step, the
 * compute time is the sum of the emulated steps in it as they really took. Over ranks AU is the mean, as in DLIO.
 */

/** What a rank process measured in its timed span; seconds and bytes. */
export interface RankRun {
  steps: number;
  samples: number;
  total_s: number;
  compute_s: number;
  stall_s: number;
  longest_stall_s: number;
  /** Of the rank; of its worker processes. */
  cpu_s: number;
  workers_cpu_s: number;
  read_bytes: number;
  disk_bytes: number;
  /** Present when the span was too short for a batch and was scaled up from so many samples. */
  scaled_from?: number;
  /** naive only: its first batch is the run itself. */
  first_s?: number;
}

/** Percent, 0 … 100. Undefined without an emulated step: there is no compute time to be busy with. */
export function utilisation(ranks: readonly Pick<RankRun, "compute_s" | "total_s">[]): number | undefined {
  if (ranks.length === 0 || ranks.every((rank) => rank.compute_s === 0)) return undefined;
  return (100 * ranks.reduce((sum, rank) => sum + rank.compute_s / rank.total_s, 0)) / ranks.length;
}

/** All ranks together; the slowest rank's clock counts. */
export function samplesPerSecond(ranks: readonly Pick<RankRun, "samples" | "total_s">[]): number {
  return ranks.reduce((sum, rank) => sum + rank.samples, 0) / Math.max(...ranks.map((rank) => rank.total_s));
}

/** A loader that leaves AU `au` percent can be beaten by at most this factor: 65 → 1.54. */
export function speedupBound(au: number): number {
  return 100 / au;
}

/** Step time at which a serial loader (load, then compute) reaches `au` percent. */
export function serialStep(loadSeconds: number, au: number): number {
  return (loadSeconds * au) / (100 - au);
}

/**
 * The step time s at which the naive loader takes `ratio` times as long as Athanor: naive loads and computes in turn
 * (s + naive), Athanor loads while the accelerator computes (max(s, ours)); `naive`, `ours`: seconds a batch takes to
 * load. The quotient is greatest at s = ours and falls from there on; the longer of its two solutions is returned,
 * undefined when even the greatest quotient stays below `ratio`.
 */
export function stepOfRatio(naive: number, ours: number, ratio: number): number | undefined {
  const step = naive / (ratio - 1);
  return step >= ours ? step : undefined;
}
