/**
 * Start-up of Athanor: a fresh index of the files in the page cache, the load of a large index, and the first batch of a run that goes
 * on at 1, 50 and 99 % of an epoch.
 */
import { link, mkdtemp, rm, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import { buildIndex } from "../dataset/index-build.ts";
import { createPosixStorage } from "../storage/posix.ts";
import type { BenchSet } from "./data.ts";
import { type Loaded, makeLargeIndex, timeLoad } from "./index-load.ts";
import type { PeerContender } from "./peer-list.ts";
import type { PeerRuns } from "./peer-runs.ts";
import { type Spread, spread } from "./statistics.ts";

export interface StartUp {
  /** 10^9 bytes of files a second of CPU (user + system, all threads), and a second of the clock. */
  indexPerCpu: Spread;
  indexPerSecond: Spread;
  /** An index of `blocks` blocks, from its path to its order: seconds by the clock, and of CPU. */
  load: { blocks: number; wall: Spread; cpu: Spread };
  /** Seconds to the first batch: the agent started, too; on an agent that runs. */
  resume: { at: number; first: Spread; running: Spread }[];
}

interface Indexed {
  bytes: number;
  /** Seconds. */
  cpu: number;
  wall: number;
}

const PLACES = [0.01, 0.5, 0.99];
const COPIES = 8;
const BYTES = 1e9;

export async function startUp(
  contender: PeerContender,
  runs: PeerRuns,
  set: BenchSet,
  batch: number,
  passes: number,
  blocks: number,
): Promise<StartUp> {
  const indexes: Indexed[] = [];
  const resumed = PLACES.map((at) => ({ at, first: [] as number[], running: [] as number[] }));
  for (let pass = 0; pass < passes; pass++) {
    indexes.push(await index(set));
    for (const place of pass % 2 === 0 ? resumed : resumed.toReversed()) {
      const { firstSeconds, firstRunningSeconds } = await runs.resumed(contender, batch, place.at, pass);
      place.first.push(firstSeconds);
      place.running.push(firstRunningSeconds ?? Number.NaN);
    }
  }
  const loads = await indexLoads(set, blocks, passes);
  return {
    indexPerCpu: spread(indexes.map(({ bytes, cpu }) => bytes / cpu / 1e9)),
    indexPerSecond: spread(indexes.map(({ bytes, wall }) => bytes / wall / 1e9)),
    load: {
      blocks: loads[0]!.blocks,
      wall: spread(loads.map(({ wall }) => wall)),
      cpu: spread(loads.map(({ cpu }) => cpu)),
    },
    resume: resumed.map(({ at, first, running }) => ({ at, first: spread(first), running: spread(running) })),
  };
}

/**
 * A fresh index of as many hard links of the files as make 1 GB (COPIES at most): it is big data that the bar is about, and links
 * share the pages of the cache.
 */
async function index({ shards, source }: BenchSet): Promise<Indexed> {
  // Beside the data: a link cannot leave its file system.
  const folder = await mkdtemp(join(dirname(source), ".athanor-links-"));
  const storage = createPosixStorage();
  try {
    let bytes = 0;
    for (let copy = 0; copy < COPIES && bytes < BYTES; copy++) {
      for (const [i, [path]] of shards.entries()) {
        await link(path, join(folder, `${copy}-${i}.tfrecord`));
        bytes += (await stat(path)).size;
      }
    }
    const [wall, cpu] = [performance.now(), process.cpuUsage()];
    await buildIndex(folder, { storage, rebuild: true });
    const used = process.cpuUsage(cpu);
    return { bytes, cpu: (used.user + used.system) / 1e6, wall: (performance.now() - wall) / 1000 };
  } finally {
    await storage.close();
    await rm(folder, { recursive: true, force: true });
  }
}

async function indexLoads({ source }: BenchSet, blocks: number, passes: number): Promise<Loaded[]> {
  const folder = await mkdtemp(join(dirname(source), ".athanor-large-"));
  try {
    await makeLargeIndex(folder, blocks);
    const loads: Loaded[] = [];
    for (let pass = 0; pass < passes; pass++) loads.push(await timeLoad(folder));
    return loads;
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
