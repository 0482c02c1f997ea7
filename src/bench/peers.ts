/**
 * `athanor bench peers`: the same samples through every loader of peer-list.ts, interleaved pass by pass.
 *
 * Contract: each measurement has fresh rank processes, forked from one that has done the imports (rank.ts), so nothing of a
 * former pass lives on and no page of a file is mapped when it shall be dropped. A peer that cannot be installed or fails is
 * left out from there on and named with its reason; Athanor or the floor failing in the warm part ends the run. Nothing is asserted here: the
 * bars are compared in peer-bars.ts.
 *
 * @example
 * const report = await benchPeers({ cacheDir, samples: 100_000, batches: [32, 256], ranks: [1, 2, 8], … }, watch);
 */
import { execFile } from "node:child_process";
import { mkdir, mkdtemp, rm } from "node:fs/promises";
import { loadavg, tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { pythonModule } from "../base/python.ts";
import { formatSize } from "../base/units.ts";
import { Usage } from "../base/usage.ts";
import { type BenchSet, describeSet, ensureMemmap, formatsFolder } from "./data.ts";
import { BenchData, BenchEnvironment } from "./errors.ts";
import { type Limit, measureLimits } from "./limits.ts";
import { machineFacts, type MachineFacts } from "./machine.ts";
import { NOTHING, type PeerContender, peerContenders } from "./peer-list.ts";
import { PeerRuns } from "./peer-runs.ts";
import type { Opens } from "./peer-opens.ts";
import {
  cold,
  type Context,
  fixedRate,
  leave,
  type Left,
  type PeersOptions,
  type Section,
  traced,
  warm,
} from "./peer-parts.ts";
import { type StartUp, startUp } from "./peer-start.ts";
import { windowMemory } from "./passes.ts";
import { findPython, type Python } from "./python.ts";
import type { Watch } from "./train.ts";

const run = promisify(execFile);

export interface PeersReport {
  version: 1;
  machine: MachineFacts;
  options: PeersOptions;
  data: Pick<BenchSet, "source" | "samples" | "bytes" | "fileSystem">;
  contenders: { name: string; about: string; versions: Record<string, string>; bytes: number }[];
  left: Left[];
  notes: string[];
  sections: Section[];
  start: StartUp | undefined;
  opens: Opens[];
  limits: Limit[];
  minutes: number;
}

/** Too short to tell how fast anything is. */
export function isTrial({ seconds }: PeersOptions): boolean {
  return seconds < 1;
}

const DATA_MS = 1_800_000;
/** Of the index whose load is timed: 4 TB; of a trial, 40 GB. */
const [BLOCKS, TRIAL_BLOCKS] = [1_000_000, 10_000];
const LIMITS = { shm: "/dev/shm", mib: 256 };

export async function benchPeers(options: PeersOptions, watch: Watch): Promise<PeersReport> {
  const began = performance.now();
  const loadBefore = loadavg()[0]!;
  checkSizes(options);
  const wanted = peerContenders(options.contenders);
  const python = await findPython("torch", options.python);
  const tf = await tensorFlow(wanted, options.tfPython);
  const left: Left[] = [];
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
        leave(left, each, "start", error, true);
      }
    }
    const machine = { ...machineFacts(runs.hello(NOTHING)), loadBefore };
    const sections: Section[] = [];
    const notes: string[] = [];
    if (isTrial(options))
      notes.push("spans of less than a second: it runs; rates mean little, and bars are not judged");
    if (window.lowered) {
      const bytes = formatSize(window.bytes);
      notes.push(
        `athanor window: the view would fit in the shuffle memory and be held whole; lowered to ${bytes}, a quarter`,
      );
    }
    const context: Context = { options, present, runs, left, notes, out: new Set(), watch };
    if (options.parts.includes("warm")) {
      for (const [i, ranks] of options.ranks.entries()) {
        sections.push(...(await warm(context, ranks, i === 0 ? options.passes : options.otherPasses, i === 0)));
      }
    }
    if (options.parts.includes("cold")) sections.push(await cold(context, set));
    if (options.parts.includes("rate")) sections.push(...(await fixedRate(context, sections)));
    const ours = present.find(({ mode }) => mode === "window");
    const starts = options.parts.includes("start") && ours !== undefined;
    if (starts) watch.say("start-up: index, resume");
    const blocks = isTrial(options) ? TRIAL_BLOCKS : BLOCKS;
    const start = starts ? await startUp(ours, runs, set, options.batches[0]!, options.otherPasses, blocks) : undefined;
    const opens = options.parts.includes("opens") ? await traced(context) : [];
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
      notes,
      sections,
      start,
      opens,
      limits,
      minutes: (performance.now() - began) / 60_000,
    };
  } finally {
    await runs.stop();
    await rm(runDir, { recursive: true, force: true });
  }
}

/** Throws ATH_USAGE where a rank would have less than one batch. */
function checkSizes({ samples, batches, ranks }: PeersOptions): void {
  const [batch, most] = [Math.max(...batches), Math.max(...ranks)];
  if (samples >= batch * most) return;
  throw new Usage(
    `${samples} samples are fewer than one batch of ${batch} for each of ${most} ranks`,
    {},
    "ask for more --samples (--short has 4000), smaller --batch or fewer --ranks",
  );
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
  const folder = formatsFolder(options.cacheDir, samples, width, seed);
  await mkdir(folder, { recursive: true });
  const formats = [...new Set(["tfrecord", ...wanted.map(({ data }) => data)])].filter((data) => data !== "memmap");
  watch.say(`data: ${samples} samples x ${width} in ${formats.length} formats (made once)`);
  const args = ["--out", folder, "--formats", formats.join(","), "--n", `${samples}`, "--seq", `${width}`];
  const done = await run(python.path, [...pythonModule("athanor.bench.peers.data"), ...args, "--seed", `${seed}`], {
    env: python.env,
    timeout: DATA_MS,
    maxBuffer: 2 ** 28,
  });
  const made = JSON.parse(done.stdout) as string[];
  if (!made.includes("tfrecord")) throw new BenchData("the data could not be written", {}, done.stderr.trim());
  return { folder, made };
}
