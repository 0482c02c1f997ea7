/**
 * Passes: runs contenders one after the other, pass by pass, in the same rank processes, and measures them.
 *
 * A pass of Athanor: a new job (so a new agent) opens and gives its first batch (time with agent start); it is closed and
 * opened again (time with a running agent); then comes the timed span. The agent is ended behind each pass. CPU of the
 * agent and of all ranks is counted over the same span.
 */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { type RankRun, samplesPerSecond, utilisation } from "./au.ts";
import type { Contender } from "./contenders.ts";
import { type BenchSet, MAP_BYTES } from "./data.ts";
import { BenchData, BenchRank } from "./errors.ts";
import { findAgent, pss, usage } from "./proc.ts";
import type { Client, Python } from "./python.ts";
import { Crew, type Hello } from "./rank.ts";

export interface Setting {
  batch: number;
  stepMs: number;
  /** Length of the timed span. */
  seconds: number;
}

export interface PassResult {
  pass: number;
  samplesPerSecond: number;
  /** Percent; undefined without an emulated step. */
  au?: number;
  /** Bytes the loader asked of the file system a second, 10^6; rows of a memory map count with their size. */
  readMBps: number;
  /** Of them fetched from the block layer (0 in a warm page cache; network file systems do not count here). */
  diskMBps: number;
  /** To the first batch, from nothing: agent start included. */
  firstSeconds: number;
  /** The same on an agent that runs. */
  firstRunningSeconds?: number;
  trainerCpuPerM: number;
  agentCpuPerM?: number;
  allCpuPerM: number;
  agentPssBytes?: number;
  longestStallSeconds: number;
  samples: number;
  scaledFrom?: number;
  order?: { shuffle: string; window: number; lanes: number };
}

interface Opened {
  first_s: number | null;
  order: { shuffle: string; window: number; lanes: number } | null;
}

export interface CrewOptions {
  set: BenchSet;
  /** Folder of the memory map; undefined when no contender needs it. */
  memmap: string | undefined;
  ranks: number;
  client: Client;
  python: Python;
  seed: number;
  cold: boolean;
  /** Bytes, for the `window` mode. */
  shuffleMemory: number;
}

/** The naive loader stops here: its spread is small against its distance. */
export const NAIVE_PASSES = 3;
/** Generous: a cold start on a busy machine, an index in the making. */
const OPEN_MS = 600_000;
const CLOSE_MS = 60_000;
/** Node memory of a view that is held: the default of the job (1 GiB), larger sets are shuffled by Feistel order. */
const DEFAULT_SHUFFLE_MEMORY = 2 ** 30;

let jobs = 0;

export class Passes {
  private readonly options: CrewOptions;
  private readonly crews = new Map<string, Crew>();
  private runDir: string | undefined;

  get ranks(): number {
    return this.options.ranks;
  }

  constructor(options: CrewOptions) {
    this.options = options;
  }

  /** What the first rank says of its software; starts the crew when there is none yet. */
  async hello(contender: Contender): Promise<Hello> {
    return (await this.crew(contender)).hello[0]!;
  }

  /** Reads all files once (warm), so that the first pass finds what the later ones find. */
  async warm(contender: Contender): Promise<void> {
    await this.cache(await this.crew(contender), false);
  }

  async one(contender: Contender, setting: Setting, pass: number): Promise<PassResult> {
    const { set, ranks } = this.options;
    const crew = await this.crew(contender);
    if (this.options.cold) await this.cache(crew, true);
    const job = `bench-${process.pid}-${jobs++}`;
    try {
      const open = async () => crew.all<Opened>((rank) => this.openCommand(contender, setting, job, rank), OPEN_MS);
      const opened = await open();
      let running: Opened[] | undefined;
      let agent: number | undefined;
      if (contender.loader === "athanor") {
        await crew.all(() => ({ cmd: "close" }), CLOSE_MS);
        running = await open();
        agent = findAgent(job);
        if (agent === undefined) throw new BenchRank(`${contender.name}: no agent of job ${job} is running`);
        checkOrder(contender, running[0]?.order ?? null);
      }
      const before = agent === undefined ? undefined : usage(agent);
      const runs = await crew.all<RankRun>(
        () => ({ cmd: "run", seconds: setting.seconds, step_ms: setting.stepMs }),
        setting.seconds * 1000 + OPEN_MS,
      );
      const after = agent === undefined ? undefined : usage(agent);
      const agentPss = agent === undefined ? undefined : pss(agent);
      await crew.all(() => ({ cmd: "close" }), CLOSE_MS);
      if (agent !== undefined && (before === undefined || after === undefined)) {
        throw new BenchRank(`${contender.name}: the agent (pid ${agent}) ended during the timed span`);
      }

      const samples = sum(runs, "samples");
      const total = Math.max(...runs.map((run) => run.total_s));
      const perM = (seconds: number) => (seconds / samples) * 1e6;
      const agentCpu = (after?.cpuSeconds ?? 0) - (before?.cpuSeconds ?? 0);
      const agentRead = (after?.readBytes ?? 0) - (before?.readBytes ?? 0);
      const agentDisk = (after?.diskBytes ?? 0) - (before?.diskBytes ?? 0);
      const mapped = contender.loader.startsWith("memmap") ? samples * set.width * MAP_BYTES : 0;
      const au = utilisation(runs);
      const order = running?.[0]?.order ?? undefined;
      return {
        pass,
        samplesPerSecond: samplesPerSecond(runs),
        ...(au === undefined ? {} : { au }),
        readMBps: (sum(runs, "read_bytes") + agentRead + mapped) / total / 1e6,
        diskMBps: (sum(runs, "disk_bytes") + agentDisk) / total / 1e6,
        firstSeconds: Math.max(...opened.map((each, rank) => each.first_s ?? runs[rank]?.first_s ?? Number.NaN)),
        ...(running === undefined
          ? {}
          : { firstRunningSeconds: Math.max(...running.map((each) => each.first_s ?? Number.NaN)) }),
        trainerCpuPerM: perM(sum(runs, "cpu_s")),
        ...(agent === undefined ? {} : { agentCpuPerM: perM(agentCpu) }),
        allCpuPerM: perM(sum(runs, "cpu_s") + agentCpu),
        ...(agentPss === undefined ? {} : { agentPssBytes: agentPss }),
        longestStallSeconds: Math.max(...runs.map((run) => run.longest_stall_s)),
        samples,
        ...(runs[0]?.scaled_from === undefined ? {} : { scaledFrom: runs[0].scaled_from * ranks }),
        ...(order === undefined ? {} : { order }),
      };
    } finally {
      await endAgent(job);
    }
  }

  async stop(): Promise<void> {
    await Promise.all([...this.crews.values()].map((crew) => crew.stop()));
    this.crews.clear();
    if (this.runDir !== undefined) await rm(this.runDir, { recursive: true, force: true });
    this.runDir = undefined;
  }

  private async crew(contender: Contender): Promise<Crew> {
    const { ranks, python, client } = this.options;
    const known = this.crews.get(contender.name);
    if (known !== undefined) return known;
    // The agents of a run come one after the other; their socket and log lie in a folder that goes with the run.
    this.runDir ??= await mkdtemp(join(tmpdir(), "athanor-bench-run-"));
    const crew = await Crew.start(contender.name, ranks, python, client, this.runDir);
    this.crews.set(contender.name, crew);
    return crew;
  }

  private async cache(crew: Crew, drop: boolean): Promise<void> {
    const { set, memmap } = this.options;
    const paths = set.shards.map(([path]) => path);
    if (memmap !== undefined) paths.push(`${memmap}/ids.i32`, `${memmap}/mask.i8`);
    await crew.all((rank) => (rank === 0 ? { cmd: "cache", drop, paths } : { cmd: "cache", drop, paths: [] }), OPEN_MS);
  }

  private openCommand(contender: Contender, setting: Setting, job: string, rank: number): Record<string, unknown> {
    const { set, memmap, ranks, client, seed, shuffleMemory } = this.options;
    return {
      cmd: "open",
      contender: contender.loader,
      mode: contender.mode ?? null,
      source: set.source,
      index_dir: set.indexDir ?? null,
      shards: set.shards,
      width: set.width,
      memmap: memmap ?? null,
      rank,
      world: ranks,
      batch: setting.batch,
      seed,
      client,
      job,
      shuffle_memory: contender.mode === "window" ? shuffleMemory : DEFAULT_SHUFFLE_MEMORY,
    };
  }
}

/**
 * Shuffle memory for the `window` mode: the job's default, but a quarter of the view when the view would fit, which
 * would resolve to `global` and hold all rows. `lowered`: whether that was done.
 */
export function windowMemory(
  samples: number,
  width: number,
  wanted = DEFAULT_SHUFFLE_MEMORY,
): { bytes: number; lowered: boolean } {
  // Nominal row bytes of the order: two delivered columns of `width` values, 4 bytes each.
  const view = samples * 2 * width * 4;
  return view <= wanted
    ? { bytes: Math.max(1, Math.floor(view / 4)), lowered: true }
    : { bytes: wanted, lowered: false };
}

function checkOrder(contender: Contender, order: Opened["order"]): void {
  if (order === null || order.shuffle === contender.mode) return;
  throw new BenchData(
    `${contender.name}: the agent resolved the order to ${order.shuffle}`,
    {},
    "the bench measures what it names: lower --shuffle-memory",
  );
}

/** The agent of a pass is ours alone; ended here so that its grace time does not reach into the next pass. */
async function endAgent(job: string): Promise<void> {
  const agent = findAgent(job);
  if (agent === undefined) return;
  process.kill(agent, "SIGTERM");
  // Looked up by its title, which a zombie (its parent is a rank) no longer has.
  for (let waited = 0; findAgent(job) !== undefined; waited += 20) {
    if (waited === 5000) process.kill(agent, "SIGKILL");
    if (waited > 10_000) throw new BenchRank(`the agent of job ${job} (pid ${agent}) does not end`);
    await sleep(20);
  }
}

function sum(runs: readonly RankRun[], key: "samples" | "read_bytes" | "disk_bytes" | "cpu_s"): number {
  return runs.reduce((total, run) => total + run[key], 0);
}
