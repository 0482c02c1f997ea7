/**
 * `athanor bench peers`: the same samples through every loader of peer-list.ts, interleaved pass by pass.
 *
 * Contract: each measurement has fresh rank processes, forked from one that has done the imports (rank.ts), so nothing of a
 * former pass lives on and no page of a file is mapped when it shall be dropped. A peer that cannot be installed or fails is
 * left out from there on and named with its reason; Athanor or the floor failing ends the run. Nothing is asserted here: the
 * bars are compared in peer-bars.ts.
 *
 * @example
 * const report = await benchPeers({ cacheDir, samples: 100_000, batches: [32, 256], ranks: [1, 2, 8], … }, watch);
 */
import { execFile } from "node:child_process";
import { mkdir, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { messageOf } from "../base/errors.ts";
import { type BenchSet, describeSet, ensureMemmap } from "./data.ts";
import { BenchData, BenchEnvironment } from "./errors.ts";
import { type Limit, measureLimits } from "./limits.ts";
import { machineFacts, type MachineFacts } from "./machine.ts";
import { median } from "./statistics.ts";
import { NOTHING, type PeerContender, peerContenders } from "./peer-list.ts";
import { PeerRuns, type PeerPass } from "./peer-runs.ts";
import { type Opens, strace } from "./peer-opens.ts";
import { windowMemory } from "./passes.ts";
import { findPython, type Python } from "./python.ts";
import type { Watch } from "./train.ts";

const run = promisify(execFile);

export const PARTS = ["warm", "cold", "rate", "opens", "limits"] as const;
export type Part = (typeof PARTS)[number];

export interface PeersOptions {
  /** Data and memory map are made and kept here. */
  cacheDir: string;
  samples: number;
  /** Tokens a sample. */
  width: number;
  seed: number;
  /** See peerContenders. */
  contenders: string;
  batches: number[];
  /** Numbers of rank processes; `rate` compares the last with the first. */
  ranks: number[];
  /** Interleaved passes of the first number of ranks with a warm page cache. */
  passes: number;
  /** Of everything else. */
  otherPasses: number;
  /** Timed span of one measurement. */
  seconds: number;
  /** Samples/s of all ranks together in the part `rate`; a slower contender gets half of what it can. */
  rate: number;
  /** Batches taken before a warm span begins. */
  settleSeconds: number;
  parts: readonly Part[];
  /** Interpreter with torch and the peers, and one with TensorFlow. */
  python?: string;
  tfPython?: string;
}

export interface Section {
  part: "warm" | "cold" | "rate";
  ranks: number;
  batch: number;
  passes: number;
  results: { name: string; passes: PeerPass[] }[];
}

export interface PeersReport {
  version: 1;
  machine: MachineFacts;
  options: PeersOptions;
  data: Pick<BenchSet, "source" | "samples" | "bytes" | "fileSystem">;
  contenders: { name: string; about: string; versions: Record<string, string>; bytes: number }[];
  /** Who was not measured, or not everywhere, and why. */
  left: { name: string; where: string; why: string }[];
  notes: string[];
  sections: Section[];
  opens: Opens[];
  limits: Limit[];
  minutes: number;
}

const DATA_MS = 1_800_000;
/** Samples of a contender under strace, behind its first batch. */
const TRACED = 2000;
const LIMITS = { shm: "/dev/shm", mib: 256 };

export async function benchPeers(options: PeersOptions, watch: Watch): Promise<PeersReport> {
  const began = performance.now();
  const wanted = peerContenders(options.contenders);
  const python = await findPython("torch", options.python);
  const tf = await tensorFlow(wanted, options.tfPython);
  const left: PeersReport["left"] = [];
  const { folder, made } = await makeData(options, python, wanted, watch);
  const set = await describeSet(join(folder, "tfrecord"), options.width, undefined);
  watch.say("memory map (made once)");
  const memmap = await ensureMemmap(set, options.cacheDir, python);
  const folderOf = (data: string) => (data === "memmap" ? memmap : join(folder, data));
  const window = windowMemory(set.samples, set.width);
  const runDir = await mkdtemp(join(tmpdir(), "athanor-bench-run-"));
  const runs = new PeerRuns({ set, memmap, folderOf, runDir, seed: options.seed, shuffleMemory: window.bytes });
  try {
    const present: PeerContender[] = [];
    for (const each of [NOTHING, ...wanted]) {
      const interpreter = each.environment === "tf" ? tf : python;
      watch.say(`starting ${each.name}`);
      try {
        if (interpreter === undefined) throw new BenchEnvironment("no interpreter with TensorFlow was given");
        if (each.data !== "memmap" && !made.includes(each.data)) {
          throw new BenchEnvironment(`what writes its data (${each.data}) is not installed`);
        }
        await runs.prepare(each, interpreter);
        if (each !== NOTHING) present.push(each);
      } catch (error) {
        leave(left, each, "start", error);
      }
    }
    const machine = machineFacts(runs.hello(NOTHING));
    const sections: Section[] = [];
    const context = { options, present, runs, left, watch };
    if (options.parts.includes("warm")) {
      for (const [i, ranks] of options.ranks.entries()) {
        sections.push(...(await warm(context, ranks, i === 0 ? options.passes : options.otherPasses, i === 0)));
      }
    }
    if (options.parts.includes("cold")) sections.push(await cold(context, set));
    if (options.parts.includes("rate")) sections.push(...(await fixedRate(context, sections)));
    const opens: Opens[] = [];
    if (options.parts.includes("opens")) {
      for (const each of present) {
        watch.say(`opens and stats: ${each.name}`);
        try {
          opens.push(await strace(each, runs, options.batches[0]!, TRACED));
        } catch (error) {
          leave(left, each, "opens", error);
        }
      }
    }
    if (options.parts.includes("limits")) watch.say("limits of the machine");
    const limits = options.parts.includes("limits")
      ? await measureLimits({ ...LIMITS, paths: [set.source], passes: options.otherPasses }, python)
      : [];
    return {
      version: 1,
      machine,
      options,
      data: { source: set.source, samples: set.samples, bytes: set.bytes, fileSystem: set.fileSystem },
      contenders: present.map((each) => ({
        name: each.name,
        about: each.about,
        versions: runs.hello(each).packages,
        bytes: runs.bytes(each),
      })),
      left,
      notes: window.lowered
        ? [
            `athanor window: the view fits in the shuffle memory and would be held whole; lowered to ${window.bytes} bytes, a quarter of it`,
          ]
        : [],
      sections,
      opens,
      limits,
      minutes: (performance.now() - began) / 60_000,
    };
  } finally {
    await runs.stop();
    await rm(runDir, { recursive: true, force: true });
  }
}

interface Context {
  options: PeersOptions;
  present: readonly PeerContender[];
  runs: PeerRuns;
  left: PeersReport["left"];
  watch: Watch;
}

/** One section a batch size; the passes of all batch sizes take turns, too. */
async function warm(context: Context, ranks: number, passes: number, first: boolean): Promise<Section[]> {
  const { options, present } = context;
  const { seconds, settleSeconds } = options;
  // Worker processes are one rank's affair: eight ranks with two each on a machine of two cores tell nothing.
  const list = first ? present : present.filter((each) => each.workers === 0);
  const sections = options.batches.map((batch): Section => ({ part: "warm", ranks, batch, passes, results: [] }));
  for (let pass = 0; pass < passes; pass++) {
    for (const section of sections) {
      const setting = { batch: section.batch, stepMs: 0, seconds, settleSeconds };
      await turn(context, section, list, pass, (each) => context.runs.one(each, ranks, setting, pass));
    }
  }
  return sections;
}

/** One epoch at most, from a cache without the files; Athanor also with them, for the bar. */
async function cold(context: Context, set: BenchSet): Promise<Section> {
  const { options, present, runs } = context;
  const batch = options.batches.at(-1)!;
  const section: Section = { part: "cold", ranks: 1, batch, passes: options.otherPasses, results: [] };
  const list = present.filter((each) => each.workers === 0);
  // The span ends before the epoch does: behind it the files are warm.
  const samples = Math.max(batch, Math.floor((set.samples * 0.9) / batch) * batch);
  const setting = { batch, stepMs: 0, seconds: options.seconds, samples, once: true };
  for (let pass = 0; pass < options.otherPasses; pass++) {
    await turn(context, section, list, pass, (each) => runs.one(each, 1, setting, pass, true));
    for (const each of list.filter(({ loader }) => loader === "athanor")) {
      context.watch.say(`the same, warm: ${each.name}`);
      add(section, `${each.name}, warm`, await runs.one(each, 1, setting, pass));
    }
  }
  return section;
}

/** Many ranks against few, all together at one rate; peers once, Athanor in every pass. */
async function fixedRate(context: Context, measured: readonly Section[]): Promise<Section[]> {
  const { options, present, runs } = context;
  const worlds = [options.ranks[0]!, options.ranks.at(-1)!];
  if (worlds[0] === worlds[1]) return [];
  const batch = options.batches[0]!;
  const passes = options.otherPasses;
  const sections = worlds.map((ranks): Section => ({ part: "rate", ranks, batch, passes, results: [] }));
  for (let pass = 0; pass < passes; pass++) {
    for (const section of pass % 2 === 0 ? sections : sections.toReversed()) {
      const list = present.filter((each) => each.workers === 0 && (pass === 0 || each.loader === "athanor"));
      await turn(context, section, list, pass, (each) => {
        const rate = rateOf(options.rate, each.name, batch, measured);
        const periodMs = (section.ranks * batch * 1000) / rate;
        const setting = {
          batch,
          stepMs: 0,
          seconds: options.seconds * 2,
          settleSeconds: options.settleSeconds,
          periodMs,
        };
        return runs.one(each, section.ranks, setting, pass);
      });
    }
  }
  return sections;
}

/** Half of what the contender gave without a limit, on few and on many ranks, and no more than asked. */
function rateOf(asked: number, name: string, batch: number, measured: readonly Section[]): number {
  const rates = measured
    .filter((section) => section.part === "warm" && section.batch === batch)
    .flatMap(({ results }) => results.filter((result) => result.name === name))
    .map(({ passes }) => median(passes.map((pass) => pass.samplesPerSecond)));
  return Math.min(asked, ...rates.map((rate) => rate / 2));
}

/** All contenders once, in reverse order in every second pass; first the process without a loader. */
async function turn(
  context: Context,
  section: Section,
  list: readonly PeerContender[],
  pass: number,
  one: (each: PeerContender) => Promise<PeerPass>,
): Promise<void> {
  const { present, left, watch, runs } = context;
  const { part, ranks, batch, passes } = section;
  const where = `${part}, ${ranks} rank${ranks === 1 ? "" : "s"}, batch ${batch}`;
  await runs.empty(ranks, batch, pass);
  const gone = new Set(left.filter((entry) => entry.where === where).map(({ name }) => name));
  for (const each of pass % 2 === 0 ? list : list.toReversed()) {
    if (gone.has(each.name) || !present.includes(each)) continue;
    watch.say(`${where}, pass ${pass + 1} of ${passes}: ${each.name}`);
    try {
      add(section, each.name, await one(each));
    } catch (error) {
      leave(left, each, where, error);
    }
  }
}

function add(section: Section, name: string, result: PeerPass): void {
  const row = section.results.find((each) => each.name === name);
  if (row === undefined) section.results.push({ name, passes: [result] });
  else row.passes.push(result);
}

/** A peer may fail; what all are compared with may not. */
function leave(left: PeersReport["left"], each: PeerContender, where: string, error: unknown): void {
  if (["athanor", "memmap_batch", "null"].includes(each.loader)) throw error;
  const cause = error instanceof Error && error.cause instanceof Error ? `: ${lastLine(error.cause.message)}` : "";
  left.push({ name: each.name, where, why: `${messageOf(error)}${cause}` });
}

function lastLine(text: string): string {
  return text.trimEnd().split("\n").at(-1) ?? "";
}

async function tensorFlow(wanted: readonly PeerContender[], path: string | undefined): Promise<Python | undefined> {
  if (path === undefined || wanted.every(({ environment }) => environment !== "tf")) return undefined;
  return findPython("torch", path);
}

async function makeData(
  options: PeersOptions,
  python: Python,
  wanted: readonly PeerContender[],
  watch: Watch,
): Promise<{ folder: string; made: string[] }> {
  const { samples, width, seed } = options;
  const folder = join(options.cacheDir, `formats-${samples}x${width}-seed${seed}`);
  await mkdir(folder, { recursive: true });
  const formats = [...new Set(["tfrecord", ...wanted.map(({ data }) => data)])].filter((data) => data !== "memmap");
  watch.say(`data: ${samples} samples x ${width} in ${formats.length} formats (made once)`);
  const args = ["--out", folder, "--formats", formats.join(","), "--n", `${samples}`, "--seq", `${width}`];
  const done = await run(python.path, ["-m", "athanor.bench.peers.data", ...args, "--seed", `${seed}`], {
    env: python.env,
    timeout: DATA_MS,
    maxBuffer: 2 ** 28,
  });
  const made = JSON.parse(done.stdout) as string[];
  if (!made.includes("tfrecord")) throw new BenchData("the data could not be written", {}, done.stderr.trim());
  return { folder, made };
}
