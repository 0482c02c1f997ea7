/**
 * Start-up of Athanor: a fresh index of the files in the page cache, and the first batch of a run that goes on at 1, 50 and 99 % of
 * an epoch.
 */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { buildIndex } from "../dataset/index-build.ts";
import { createPosixStorage } from "../storage/posix.ts";
import type { BenchSet } from "./data.ts";
import type { PeerContender } from "./peer-list.ts";
import type { PeerRuns } from "./peer-runs.ts";
import { type Spread, spread } from "./statistics.ts";

export interface StartUp {
  /** 10^9 bytes of files a second of CPU (user + system, all threads), and a second of the clock. */
  indexPerCpu: Spread;
  indexPerSecond: Spread;
  /** Seconds to the first batch: the agent started, too; on an agent that runs. */
  resume: { at: number; first: Spread; running: Spread }[];
}

const PLACES = [0.01, 0.5, 0.99];

export async function startUp(
  contender: PeerContender,
  runs: PeerRuns,
  set: BenchSet,
  batch: number,
  passes: number,
): Promise<StartUp> {
  const indexes: { cpu: number; wall: number }[] = [];
  const resumed = PLACES.map((at) => ({ at, first: [] as number[], running: [] as number[] }));
  for (let pass = 0; pass < passes; pass++) {
    indexes.push(await index(set));
    for (const place of pass % 2 === 0 ? resumed : resumed.toReversed()) {
      const { firstSeconds, firstRunningSeconds } = await runs.resumed(contender, batch, place.at, pass);
      place.first.push(firstSeconds);
      place.running.push(firstRunningSeconds ?? Number.NaN);
    }
  }
  return {
    indexPerCpu: spread(indexes.map(({ cpu }) => set.bytes / cpu / 1e9)),
    indexPerSecond: spread(indexes.map(({ wall }) => set.bytes / wall / 1e9)),
    resume: resumed.map(({ at, first, running }) => ({ at, first: spread(first), running: spread(running) })),
  };
}

/** Seconds of a fresh index, in a folder of its own. */
async function index(set: BenchSet): Promise<{ cpu: number; wall: number }> {
  const indexDir = await mkdtemp(join(tmpdir(), "athanor-index-"));
  const storage = createPosixStorage();
  try {
    const [wall, cpu] = [performance.now(), process.cpuUsage()];
    await buildIndex(set.source, { storage, indexDir, rebuild: true });
    const used = process.cpuUsage(cpu);
    return { cpu: (used.user + used.system) / 1e6, wall: (performance.now() - wall) / 1000 };
  } finally {
    await storage.close();
    await rm(indexDir, { recursive: true, force: true });
  }
}
