/**
 * Report of `athanor bench train`: what `--json` prints, and how passes become rows.
 * Numbers are medians over passes; ratios are formed inside a pass (statistics.ts).
 */
import { speedupBound, stepOfRatio } from "./au.ts";
import type { Contender } from "./contenders.ts";
import type { FoundStep } from "./find-step.ts";
import type { FileSystem, MachineFacts } from "./machine.ts";
import type { PassResult, Setting } from "./measure.ts";
import type { Client } from "./python.ts";
import { median, passRatios, type Spread, spread } from "./statistics.ts";

export interface Row {
  name: string;
  samplesPerSecond: Spread;
  /** Percent; absent without an emulated step. */
  au?: Spread;
  readMBps: number;
  diskMBps: number;
  epochMinutes: number;
  /** True when every timed span was at least one epoch long; else the minutes are extrapolated from the rate. */
  epochMeasured: boolean;
  firstSeconds: Spread;
  firstRunningSeconds?: Spread;
  trainerCpuPerM: number;
  agentCpuPerM?: number;
  allCpuPerM: number;
  agentPssBytes?: number;
  longestStallSeconds: number;
  /** Timed over so many samples a pass and scaled to a batch. */
  scaledFrom?: number;
  order?: { shuffle: string; window: number; lanes: number };
  /** samples/s against the memory map and the naive loader of the same pass. */
  toMemmap?: Spread;
  toNaive?: Spread;
  passes: PassResult[];
}

export interface Story {
  /** The bound that AU 65 % allows: 1.54. */
  bound: number;
  /** Naive against Athanor, 120 : 35 minutes. */
  ratio: number;
  /** Step time at which that ratio holds here, from the medians; absent when naive or athanor was not run, or is never so far off. */
  stepMs?: number;
  naiveEpochMinutes?: number;
  athanorEpochMinutes?: number;
}

export interface Table {
  setting: Setting;
  /** Set when the step time was found by bisection. */
  found?: FoundStep & { contender: string };
  rows: Row[];
  story: Story;
}

export interface Report {
  version: 1;
  data: { source: string; samples: number; bytes: number; shards: number; width: number; fileSystem: FileSystem };
  machine: MachineFacts;
  cache: string;
  client: Client;
  ranks: number;
  passes: number;
  notes: string[];
  tables: Table[];
}

/** How the files lay in the page cache. */
export function cacheState(cold: boolean): string {
  return cold
    ? "cold: each pass begins with posix_fadvise(DONTNEED) on every file; the disk column tells whether it worked"
    : "warm: every file was read once before the first pass";
}

const STORY_AU = 65;
const STORY_RATIO = 120 / 35;

export function rowOf(
  name: string,
  passes: PassResult[],
  samples: number,
  all: ReadonlyMap<string, PassResult[]>,
): Row {
  const speed = spread(passes.map((pass) => pass.samplesPerSecond));
  const of = (key: "au" | "firstRunningSeconds" | "agentCpuPerM" | "agentPssBytes") =>
    passes.map((pass) => pass[key]).filter((value) => value !== undefined);
  const au = of("au");
  const running = of("firstRunningSeconds");
  const agentCpu = of("agentCpuPerM");
  const agentPss = of("agentPssBytes");
  const toMemmap = against(passes, all.get("memmap"));
  const toNaive = against(passes, all.get("naive"));
  const { scaledFrom, order } = passes[0]!;
  return {
    name,
    samplesPerSecond: speed,
    ...(au.length === 0 ? {} : { au: spread(au) }),
    readMBps: median(passes.map((pass) => pass.readMBps)),
    diskMBps: median(passes.map((pass) => pass.diskMBps)),
    epochMinutes: samples / speed.median / 60,
    epochMeasured: scaledFrom === undefined && passes.every((pass) => pass.samples >= samples),
    firstSeconds: spread(passes.map((pass) => pass.firstSeconds)),
    ...(running.length === 0 ? {} : { firstRunningSeconds: spread(running) }),
    trainerCpuPerM: median(passes.map((pass) => pass.trainerCpuPerM)),
    ...(agentCpu.length === 0 ? {} : { agentCpuPerM: median(agentCpu) }),
    allCpuPerM: median(passes.map((pass) => pass.allCpuPerM)),
    ...(agentPss.length === 0 ? {} : { agentPssBytes: median(agentPss) }),
    longestStallSeconds: Math.max(...passes.map((pass) => pass.longestStallSeconds)),
    ...(scaledFrom === undefined ? {} : { scaledFrom }),
    ...(order === undefined ? {} : { order }),
    ...(toMemmap === undefined ? {} : { toMemmap }),
    ...(toNaive === undefined ? {} : { toNaive }),
    passes,
  };
}

/**
 * Both ratios of the story, with the numbers of this run. `rates`: samples/s without a step, by contender;
 * `batch`: samples of all ranks a step.
 */
export function storyOf(
  rates: ReadonlyMap<string, number>,
  contenders: readonly Contender[],
  batch: number,
  samples: number,
): Story {
  const story: Story = { bound: speedupBound(STORY_AU), ratio: STORY_RATIO };
  const naiveRate = rates.get("naive");
  const ourRate = rates.get(contenders.find((contender) => contender.loader === "athanor")?.name ?? "");
  if (naiveRate === undefined || ourRate === undefined) return story;
  const [naive, ours] = [batch / naiveRate, batch / ourRate];
  const step = stepOfRatio(naive, ours, STORY_RATIO);
  if (step === undefined) return story;
  const minutes = (seconds: number) => ((samples / batch) * seconds) / 60;
  return {
    ...story,
    stepMs: step * 1000,
    naiveEpochMinutes: minutes(step + naive),
    athanorEpochMinutes: minutes(Math.max(step, ours)),
  };
}

/** Samples/s of `passes` over those of `base`. */
export function against(passes: readonly PassResult[], base: readonly PassResult[] | undefined): Spread | undefined {
  return base === undefined ? undefined : passRatios(passes, base, (pass) => pass.samplesPerSecond);
}
