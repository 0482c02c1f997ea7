/**
 * `athanor bench train --compare-ranks 1,8`: what the agent costs with many ranks on a node against few.
 *
 * Contract: numpy clients (importing torch eight times is what would be measured otherwise); passes of both worlds
 * alternate; a ratio is formed inside a pass, last world to first. The step time is the same for every rank, so eight
 * ranks ask for eight times the samples: without a step (`--step-ms 0`) both worlds run at the agent's limit.
 */
import { Usage } from "../base/usage.ts";
import type { Contender, Mode } from "./contenders.ts";
import { type BenchSet, describeSet } from "./data.ts";
import { BenchData } from "./errors.ts";
import { type MachineFacts, machineFacts } from "./machine.ts";
import type { PassResult } from "./measure.ts";
import { Passes, windowMemory } from "./passes.ts";
import { findPython } from "./python.ts";
import { cacheState, type Row, rowOf } from "./report.ts";
import { passRatios, type Spread } from "./statistics.ts";
import type { TrainOptions, Watch } from "./train.ts";

export interface RankComparison {
  version: 1;
  data: Pick<BenchSet, "source" | "samples" | "bytes" | "fileSystem">;
  machine: MachineFacts;
  cache: string;
  client: "numpy";
  mode: Mode;
  batch: number;
  stepMs: number;
  worlds: { ranks: number; row: Row }[];
  /** Last world against the first one. */
  agentMemory: Spread;
  agentCpu: Spread;
  allCpu: Spread;
}

type Options = Pick<
  TrainOptions,
  "source" | "indexDir" | "stepMs" | "seconds" | "passes" | "width" | "python" | "cold" | "seed" | "shuffleMemory"
> & { batch: number; mode: Mode; worlds: number[] };

export async function compareRanks(options: Options, watch: Watch): Promise<RankComparison> {
  const { batch, stepMs, seconds, cold, seed, mode, width } = options;
  if (options.worlds.length < 2) throw new Usage("--compare-ranks must name two numbers of ranks or more, such as 1,8");
  const contender: Contender = { name: `athanor ${mode}`, loader: "athanor", mode };
  const python = await findPython("numpy", options.python);
  const set = await describeSet(options.source, width, options.indexDir);
  const { bytes: shuffleMemory } = windowMemory(set.samples, width, options.shuffleMemory);
  const worlds = options.worlds.map((ranks) => ({
    ranks,
    passes: new Passes({ set, memmap: undefined, ranks, client: "numpy", python, seed, cold, shuffleMemory }),
    results: [] as PassResult[],
  }));
  try {
    const machine = machineFacts(await worlds[0]!.passes.hello(contender));
    if (!cold) await worlds[0]!.passes.warm(contender);
    for (let pass = 0; pass < options.passes; pass++) {
      for (const world of pass % 2 === 0 ? worlds : worlds.toReversed()) {
        watch.say(`${world.ranks} ranks, pass ${pass + 1} of ${options.passes}: ${contender.name}`);
        world.results.push(await world.passes.one(contender, { batch, stepMs, seconds }, pass));
      }
    }
    const [first, last] = [worlds[0]!.results, worlds.at(-1)!.results];
    return {
      version: 1,
      data: { source: set.source, samples: set.samples, bytes: set.bytes, fileSystem: set.fileSystem },
      machine,
      cache: cacheState(cold),
      client: "numpy",
      mode,
      batch,
      stepMs,
      worlds: worlds.map(({ ranks, results }) => ({
        ranks,
        row: rowOf(`${contender.name}, ${ranks} ranks`, results, set.samples, new Map()),
      })),
      agentMemory: ratio(last, first, "agentPssBytes"),
      agentCpu: ratio(last, first, "agentCpuPerM"),
      allCpu: ratio(last, first, "allCpuPerM"),
    };
  } finally {
    await Promise.all(worlds.map((world) => world.passes.stop()));
  }
}

function ratio(
  last: readonly PassResult[],
  first: readonly PassResult[],
  key: "agentPssBytes" | "agentCpuPerM" | "allCpuPerM",
): Spread {
  const found = passRatios(last, first, (pass) => pass[key] ?? 0);
  if (found === undefined) {
    throw new BenchData(
      `${key} is 0 in every pass of the first world`,
      {},
      "use a longer --seconds: CPU is counted in 10 ms",
    );
  }
  return found;
}
