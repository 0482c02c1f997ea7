/**
 * `athanor bench bill`: what loaders cost the file system, not what they give: operations of metadata servers, read requests, their size,
 * bytes that came against bytes that were wanted. Athanor in windows, a random memory map, the naive scan; one after the other.
 *
 * Contract: each contender is one process (and its agent), opened with the pages of its files dropped where the kernel lets them go. Counted
 * are the start (until nothing is read ahead any more), a span of samples behind it, for Athanor an epoch unless told otherwise, and the
 * end. Athanor's pages are dropped again before the span. Nothing is scaled but the naive scan and the memory map to a thousand samples.
 *
 * @example
 * const report = await benchBill({ source: "/mnt/lustre/d", batch: 32, width: 512, cacheDir, seed: 1 }, { say: console.error });
 */
import { mkdtemp, realpath, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { findMount, readMounts } from "../storage/mounts.ts";
import { billBars } from "./bill-bars.ts";
import type { BillBar } from "./bill-bars.ts";
import { meterFor } from "./bill-meter.ts";
import type { Cost, Mark, Meter, Metered, Source } from "./bill-meter.ts";
import { contenders } from "./contenders.ts";
import type { Contender } from "./contenders.ts";
import { describeSet, ensureMemmap, MAP_BYTES } from "./data.ts";
import type { BenchSet } from "./data.ts";
import { endAgent, OPEN_MS, openCommand } from "./measure.ts";
import { windowMemory } from "./passes.ts";
import { findAgent } from "./proc.ts";
import { findPython } from "./python.ts";
import type { Python } from "./python.ts";
import { Crew } from "./rank.ts";
import type { Watch } from "./train.ts";

export interface BillOptions {
  /** Absolute path of a TFRecord set in the story's schema. */
  source: string;
  indexDir?: string;
  /** Samples of Athanor's span. @default an epoch */
  samples?: number;
  batch: number;
  /** Values a row. */
  width: number;
  /** Interpreter; see python.ts for the default. */
  python?: string;
  /** Folder of the memory map; on Lustre it must be of the same file system. */
  cacheDir: string;
  seed: number;
  /** Bytes for the windows. */
  shuffleMemory?: number;
}

export interface BillRow {
  name: string;
  /** Of the span. */
  samples: number;
  /** Bytes of these samples as they are stored. */
  needed: number;
  start: Cost;
  run: Cost;
  end: Cost;
  /** Share of the files' pages that the kernel kept when it was asked to drop them; before the start, and before the span. */
  kept: number[];
}

export interface BillReport {
  version: 1;
  data: { source: string; samples: number; bytes: number; shards: number; fileSystem: string };
  from: Source;
  /** What the counters counted while nothing of ours ran: others. Counters only. */
  quiet: { seconds: number; reads: number; bytes: number; metadata: number } | undefined;
  rows: BillRow[];
  bars: BillBar[];
  notes: string[];
}

/** Of the memory map: its cost a sample is the same for all (981 to 998 requests a thousand on a Lustre 2.17, whatever their number). */
const MAP_SAMPLES = 20_000;
/** Runs of 16 samples. */
const NAIVE_RUNS = 4;
const NAIVE_SAMPLES = 16;
const QUIET_MS = 2000;

export async function benchBill(options: BillOptions, watch: Watch): Promise<BillReport> {
  const python = await findPython("torch", options.python);
  const source = await realpath(options.source);
  const set = await describeSet(source, options.width, options.indexDir);
  const meter = await meterFor(source);
  const notes = [...meter.notes];
  const window = windowMemory(set.samples, set.width, options.shuffleMemory);
  if (window.lowered)
    notes.push("the windows of Athanor have a quarter of the view: all of it would fit, and be read once and held");
  const list = contenders("naive,memmap,athanor", "window").toReversed();
  const elsewhere = meter.source === "client counters" && !sameMount(source, options.cacheDir);
  if (elsewhere) {
    notes.push(`the memory map is left out: ${options.cacheDir} is on another file system than the data (--cache-dir)`);
  } else watch.say("memory map (made once)");
  const memmap = elsewhere ? undefined : await ensureMemmap(set, options.cacheDir, python);
  const runDir = await mkdtemp(join(tmpdir(), "athanor-bill-"));
  try {
    const run = { options, set, memmap, meter, python, runDir, shuffleMemory: window.bytes };
    const quiet = [await quietly(meter)];
    const rows: BillRow[] = [];
    for (const contender of list) {
      if (contender.loader === "memmap" && memmap === undefined) continue;
      watch.say(contender.name);
      rows.push(await measured(run, contender));
    }
    quiet.push(await quietly(meter));
    return {
      version: 1,
      data: {
        source,
        samples: set.samples,
        bytes: set.bytes,
        shards: set.shards.length,
        fileSystem: findMount(source, readMounts())?.type ?? "unknown",
      },
      from: meter.source,
      quiet: quietOf(quiet),
      rows,
      bars: billBars(set, meter.source, rows[0]!),
      notes,
    };
  } finally {
    await rm(runDir, { recursive: true, force: true });
  }
}

interface Running {
  options: BillOptions;
  set: BenchSet;
  memmap: string | undefined;
  meter: Meter;
  python: Python;
  runDir: string;
  shuffleMemory: number;
}

async function measured(running: Running, contender: Contender): Promise<BillRow> {
  const { options, set, memmap, meter, python, runDir, shuffleMemory } = running;
  const { batch, seed, width } = options;
  const job = `bill-${process.pid}-${contender.loader}`;
  const trace = join(runDir, `${contender.loader}.strace`);
  const mapped = contender.loader === "memmap" ? [join(memmap!, "ids.i32"), join(memmap!, "mask.i8")] : undefined;
  const files = mapped ?? set.shards.map(([path]) => path);
  const index = set.indexDir ?? join(set.source, ".athanor");
  const metered = (pids: number[]): Metered => ({
    places: { files, folder: mapped ? memmap! : set.source, index },
    pids,
    trace,
  });
  let crew: Crew | undefined;
  try {
    crew = await Crew.start(contender.name, 1, python, "torch", runDir, { wrapper: meter.wrapper(trace) });
    const { pid } = crew.hello[0]!;
    const rank = crew;
    const kept = [await drop(rank, files)];
    const marks: Mark[] = [await meter.mark(metered([pid]))];
    const command = openCommand({
      set,
      memmap,
      contender,
      client: "torch",
      rank: 0,
      world: 1,
      batch,
      seed,
      job,
      shuffleMemory,
    });
    await rank.all(() => command, OPEN_MS);
    await rank.all(() => ({ cmd: "settle" }), OPEN_MS);
    const agent = contender.loader === "athanor" ? findAgent(job) : undefined;
    const all = metered([pid, ...(agent === undefined ? [] : [agent])]);
    marks.push(await meter.mark(all));
    // A map holds its pages.
    if (mapped === undefined) kept.push(await drop(rank, files));
    marks.push(await meter.mark(all));
    const samples = await take(rank, contender, spanOf(running, contender));
    marks.push(await meter.mark(all));
    await rank.all(() => ({ cmd: "close" }), OPEN_MS);
    await endAgent(job);
    marks.push(await meter.mark(all));
    const stored = contender.loader === "memmap" ? width * MAP_BYTES : set.bytes / set.samples;
    const [start, run, end] = [between(meter, marks, 0), between(meter, marks, 2), between(meter, marks, 3)];
    return { name: contender.name, samples, needed: samples * stored, start, run, end, kept };
  } finally {
    await endAgent(job); // strace lives as long as what it traces
    await crew?.stop();
  }
}

function between(meter: Meter, marks: readonly Mark[], i: number): Cost {
  return meter.between(marks[i]!, marks[i + 1]!);
}

function spanOf({ options, set }: Running, { loader }: Contender): number {
  const wanted = options.samples ?? set.samples;
  return loader === "athanor" ? wanted : Math.min(wanted, set.samples, MAP_SAMPLES);
}

/** Samples that were taken. */
async function take(crew: Crew, { loader }: Contender, samples: number): Promise<number> {
  const command = { cmd: "run", seconds: OPEN_MS / 1000, step_ms: 0, samples };
  if (loader !== "naive") {
    const [run] = await crew.all<{ samples: number }>(() => command, 2 * OPEN_MS);
    await crew.all(() => ({ cmd: "settle" }), OPEN_MS);
    return run!.samples;
  }
  for (let i = 0; i < NAIVE_RUNS; i++) await crew.all(() => command, OPEN_MS);
  return NAIVE_RUNS * NAIVE_SAMPLES;
}

/** Asks the kernel to drop the files' pages; the share that it kept. */
async function drop(crew: Crew, paths: readonly string[]): Promise<number> {
  const [found] = await crew.all<{ bytes: number; resident: number }>(
    () => ({ cmd: "cache", drop: true, paths }),
    OPEN_MS,
  );
  return found!.resident / Math.max(found!.bytes, 1);
}

/** The null case: two seconds of nothing. */
async function quietly(meter: Meter): Promise<Cost | undefined> {
  if (meter.source !== "client counters") return undefined;
  const nothing: Metered = { places: { files: [], folder: "", index: "" }, pids: [], trace: "" };
  const before = await meter.mark(nothing);
  await sleep(QUIET_MS);
  return meter.between(before, await meter.mark(nothing));
}

function quietOf(costs: readonly (Cost | undefined)[]): BillReport["quiet"] {
  const known = costs.filter((cost) => cost !== undefined);
  if (known.length === 0) return undefined;
  const sum = (key: "reads" | "bytes" | "metadata"): number =>
    known.reduce((total, cost) => total + (cost[key] ?? 0), 0);
  return {
    seconds: (known.length * QUIET_MS) / 1000,
    reads: sum("reads"),
    bytes: sum("bytes"),
    metadata: sum("metadata"),
  };
}

function sameMount(a: string, b: string): boolean {
  const mounts = readMounts();
  return findMount(a, mounts)?.point === findMount(b, mounts)?.point;
}
