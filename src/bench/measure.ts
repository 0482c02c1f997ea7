/**
 * Measure: one contender once, in rank processes that are there.
 *
 * A measurement of Athanor: a new job (so a new agent) opens and gives its first batch (time with agent start); it is
 * closed and opened again (time with a running agent); then comes the timed span. The agent is ended behind it. CPU of
 * the agent and of all ranks is counted over the same span.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { DEFAULT_SHUFFLE_MEMORY } from "../order/resolve.ts";
import { type RankRun, samplesPerSecond, utilisation } from "./au.ts";
import type { Contender } from "./contenders.ts";
import { type BenchSet, MAP_BYTES } from "./data.ts";
import { BenchData, BenchRank } from "./errors.ts";
import { findAgent, pss, usage } from "./proc.ts";
import type { Client } from "./python.ts";
import type { Crew } from "./rank.ts";

export interface Setting {
  batch: number;
  stepMs: number;
  /** Length of the timed span. */
  seconds: number;
  /** The span ends behind so many samples of a rank, when that comes first. */
  samples?: number;
  /** A step of a rank begins no earlier than so long behind the one before: one rate for any number of ranks. */
  periodMs?: number;
  /** Batches are taken for so long before the span begins. */
  settleSeconds?: number;
  /**
   * The span is counted from the opening, with what was read by then. Athanor is opened once only: what a second opening
   * finds was read by the first.
   */
  fromOpening?: boolean;
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
  /** Ranks, their workers, agent. */
  allCpuPerM: number;
  agentPssBytes?: number;
  /** Of ranks, their workers and the agent; see tree.py for what counts of a rank. `mapped`: pages of files in it. */
  memory?: { bytes: number; mapped: number };
  longestStallSeconds: number;
  samples: number;
  scaledFrom?: number;
  order?: { shuffle: string; window: number; lanes: number };
}

interface Opened {
  first_s: number | null;
  disk_bytes: number;
  order: { shuffle: string; window: number; lanes: number } | null;
}

/** Generous: a cold start on a busy machine, an index in the making. */
export const OPEN_MS = 600_000;
const CLOSE_MS = 60_000;

let jobs = 0;

/** What the command that opens a loader is made of; see worker.py. */
export interface Opening {
  set: BenchSet;
  memmap: string | undefined;
  contender: Contender;
  client: Client;
  rank: number;
  world: number;
  batch: number;
  seed: number;
  job: string;
  /** Bytes, for the `window` mode; the others have the default of a job. */
  shuffleMemory: number;
}

export function openCommand(opening: Opening): Record<string, unknown> {
  const { set, memmap, contender, client, rank, world, batch, seed, job, shuffleMemory } = opening;
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
    world,
    batch,
    seed,
    client,
    job,
    shuffle_memory: contender.mode === "window" ? shuffleMemory : DEFAULT_SHUFFLE_MEMORY,
  };
}

export interface Measurement {
  contender: Contender;
  setting: Setting;
  pass: number;
  /** Values a row. */
  width: number;
  /** The command that opens the loader of a rank. */
  open(rank: number, job: string): Record<string, unknown>;
  /** Ask for the memory, too: walking a process's pages costs some 10 ms. */
  memory?: boolean;
}

export async function measure(crew: Crew, what: Measurement): Promise<PassResult> {
  const { contender, setting, pass } = what;
  const job = `bench-${process.pid}-${jobs++}`;
  try {
    const open = async () => crew.all<Opened>((rank) => what.open(rank, job), OPEN_MS);
    const opened = await open();
    let running: Opened[] | undefined;
    let agent: number | undefined;
    if (contender.loader === "athanor") {
      if (setting.fromOpening !== true) {
        await crew.all(() => ({ cmd: "close" }), CLOSE_MS);
        running = await open();
      }
      agent = findAgent(job);
      if (agent === undefined) throw new BenchRank(`${contender.name}: no agent of job ${job} is running`);
      checkOrder(contender, (running ?? opened)[0]?.order ?? null);
    }
    const run = async (seconds: number) =>
      crew.all<RankRun>(
        () => ({
          cmd: "run",
          seconds,
          step_ms: setting.stepMs,
          ...(setting.samples === undefined ? {} : { samples: setting.samples }),
          ...(setting.periodMs === undefined ? {} : { period_ms: setting.periodMs }),
        }),
        seconds * 1000 + OPEN_MS,
      );
    if (setting.settleSeconds !== undefined) await run(setting.settleSeconds);
    const before = agent === undefined ? undefined : usage(agent);
    const runs = await run(setting.seconds);
    const after = agent === undefined ? undefined : usage(agent);
    const agentPss = agent === undefined ? undefined : pss(agent);
    const memory = what.memory === true ? await memoryOf(crew, agentPss) : undefined;
    await crew.all(() => ({ cmd: "close" }), CLOSE_MS);
    if (agent !== undefined && (before === undefined || after === undefined)) {
      throw new BenchRank(`${contender.name}: the agent (pid ${agent}) ended during the timed span`);
    }

    const samples = sum(runs, "samples");
    const perM = (seconds: number) => (seconds / samples) * 1e6;
    const agentCpu = (after?.cpuSeconds ?? 0) - (before?.cpuSeconds ?? 0);
    const agentRead = (after?.readBytes ?? 0) - (before?.readBytes ?? 0);
    const mapped = contender.loader.startsWith("memmap") ? samples * what.width * MAP_BYTES : 0;
    // The first batch, and what was read for it, too.
    const whole = setting.fromOpening === true;
    const spans = runs.map(({ samples: count, total_s }, rank) =>
      whole
        ? { samples: count + setting.batch, total_s: total_s + (opened[rank]!.first_s ?? 0) }
        : { samples: count, total_s },
    );
    const total = Math.max(...spans.map(({ total_s }) => total_s));
    const early = whole ? opened.reduce((bytes, each) => bytes + each.disk_bytes, 0) : 0;
    const agentDisk = (after?.diskBytes ?? 0) - (whole ? 0 : (before?.diskBytes ?? 0));
    const au = utilisation(runs);
    const order = (running ?? opened)[0]?.order ?? undefined;
    return {
      pass,
      samplesPerSecond: samplesPerSecond(spans),
      ...(au === undefined ? {} : { au }),
      readMBps: (sum(runs, "read_bytes") + agentRead + mapped) / total / 1e6,
      diskMBps: (sum(runs, "disk_bytes") + early + agentDisk) / total / 1e6,
      firstSeconds: Math.max(...opened.map((each, rank) => each.first_s ?? runs[rank]?.first_s ?? Number.NaN)),
      ...(running === undefined
        ? {}
        : { firstRunningSeconds: Math.max(...running.map((each) => each.first_s ?? Number.NaN)) }),
      trainerCpuPerM: perM(sum(runs, "cpu_s")),
      ...(agent === undefined ? {} : { agentCpuPerM: perM(agentCpu) }),
      allCpuPerM: perM(sum(runs, "cpu_s") + sum(runs, "workers_cpu_s") + agentCpu),
      ...(agentPss === undefined ? {} : { agentPssBytes: agentPss }),
      ...(memory === undefined ? {} : { memory }),
      longestStallSeconds: Math.max(...runs.map((each) => each.longest_stall_s)),
      samples,
      ...(runs[0]?.scaled_from === undefined ? {} : { scaledFrom: runs[0].scaled_from * runs.length }),
      ...(order === undefined ? {} : { order }),
    };
  } finally {
    await endAgent(job);
  }
}

async function memoryOf(crew: Crew, agentPss: number | undefined): Promise<{ bytes: number; mapped: number }> {
  const each = await crew.all<{ anonymous: number; file: number; shmem: number }>(() => ({ cmd: "memory" }), CLOSE_MS);
  const mapped = each.reduce((total, rank) => total + rank.file, 0);
  const rest = each.reduce((total, rank) => total + rank.anonymous + rank.shmem, 0);
  return { bytes: mapped + rest + (agentPss ?? 0), mapped };
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
export async function endAgent(job: string): Promise<void> {
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

function sum(
  runs: readonly RankRun[],
  key: "samples" | "read_bytes" | "disk_bytes" | "cpu_s" | "workers_cpu_s",
): number {
  return runs.reduce((total, run) => total + run[key], 0);
}
