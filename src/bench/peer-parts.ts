/**
 * The parts of `athanor bench peers`: which contender is measured when. Contenders take turns inside a pass, in reverse order
 * in every second one; one that fails is left out of that part and named.
 */
import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { messageOf } from "../base/errors.ts";
import type { BenchSet } from "./data.ts";
import type { PeerContender } from "./peer-list.ts";
import { type Opens, strace } from "./peer-opens.ts";
import type { PeerPass, PeerRuns } from "./peer-runs.ts";
import { median } from "./statistics.ts";
import type { Watch } from "./train.ts";

const run = promisify(execFile);

export const PARTS = ["warm", "cold", "rate", "start", "opens", "limits"] as const;
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

/** A contender that was not measured, or not everywhere, and why. */
export interface Left {
  name: string;
  where: string;
  why: string;
}

/** A contender that takes longer for one measurement is not asked again in that section, or a run would take hours. */
const SLOW_MS = 20_000;
/** Samples of a contender under strace, behind its first batch. */
const TRACED = 2000;

export interface Context {
  options: PeersOptions;
  present: readonly PeerContender[];
  runs: PeerRuns;
  left: Left[];
  notes: string[];
  /** `NAME (WHERE)` of those that failed there or are too slow to be asked again. */
  out: Set<string>;
  watch: Watch;
}

/** One section a batch size; the passes of all batch sizes take turns, too. */
export async function warm(context: Context, ranks: number, passes: number, first: boolean): Promise<Section[]> {
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

/** From the opening to nine tenths of an epoch, with none of the files cached; Athanor also with them, for the bar. */
export async function cold(context: Context, set: BenchSet): Promise<Section> {
  const { options, present, runs } = context;
  const batch = options.batches.at(-1)!;
  const section: Section = { part: "cold", ranks: 1, batch, passes: options.otherPasses, results: [] };
  const list = present.filter((each) => each.workers === 0);
  // The span ends before the epoch does: behind it the files are warm.
  const samples = Math.max(batch, Math.floor((set.samples * 0.9) / batch) * batch);
  const setting = { batch, stepMs: 0, seconds: options.seconds * 2, samples, fromOpening: true };
  for (let pass = 0; pass < options.otherPasses; pass++) {
    await turn(context, section, list, pass, (each) => runs.one(each, 1, setting, pass, "drop"));
    for (const each of list.filter(({ loader }) => loader === "athanor")) {
      context.watch.say(`the same, warm: ${each.name}`);
      add(section, `${each.name}, warm`, await runs.one(each, 1, setting, pass, "read"));
    }
  }
  for (const each of list) await runs.warm(each); // for what is measured next
  return section;
}

/** Many ranks against few, all together at one rate; peers once, Athanor in every pass. */
export async function fixedRate(context: Context, measured: readonly Section[]): Promise<Section[]> {
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

export async function traced({ options, present, runs, left, watch }: Context): Promise<Opens[]> {
  try {
    await run("strace", ["-V"]);
  } catch {
    left.push({ name: "opens and stats", where: "opens", why: "strace is not installed" });
    return [];
  }
  const opens: Opens[] = [];
  for (const each of present) {
    watch.say(`opens and stats: ${each.name}`);
    try {
      opens.push(await strace(each, runs, options.batches[0]!, TRACED));
    } catch (error) {
      leave(left, each, "opens", error, false);
    }
  }
  return opens;
}

/** All contenders once, in reverse order in every second pass; first the process without a loader. */
async function turn(
  context: Context,
  section: Section,
  list: readonly PeerContender[],
  pass: number,
  one: (each: PeerContender) => Promise<PeerPass>,
): Promise<void> {
  const { left, notes, out, watch, runs } = context;
  const { part, ranks, batch, passes } = section;
  const where = `${part}, ${ranks} rank${ranks === 1 ? "" : "s"}, batch ${batch}`;
  await runs.empty(ranks, batch, pass);
  for (const each of pass % 2 === 0 ? list : list.toReversed()) {
    const title = `${each.name} (${where})`;
    if (out.has(title)) continue;
    watch.say(`${where}, pass ${pass + 1} of ${passes}: ${each.name}`);
    try {
      const start = performance.now();
      add(section, each.name, await one(each));
      const took = performance.now() - start;
      if (took > SLOW_MS && passes > 1) {
        notes.push(`${title} took ${Math.round(took / 1000)} s for a measurement: no more passes of it`);
        out.add(title);
      }
    } catch (error) {
      leave(left, each, where, error, part === "warm");
      out.add(title);
    }
  }
}

function add(section: Section, name: string, result: PeerPass): void {
  const row = section.results.find((each) => each.name === name);
  if (row === undefined) section.results.push({ name, passes: [result] });
  else row.passes.push(result);
}

/** `needed`: a peer may fail here, what all are compared with may not. */
export function leave(left: Left[], each: PeerContender, where: string, error: unknown, needed: boolean): void {
  if (needed && ["athanor", "memmap_batch", "null"].includes(each.loader)) throw error;
  const text = messageOf(error);
  // What a process wrote last tells why it ended; one that answered has said so itself.
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause.message : "";
  const last = /it ended|it closed/.test(text) ? `: ${cause.trimEnd().split("\n").at(-1) ?? ""}` : "";
  left.push({ name: each.name, where, why: `${text}${last}` });
}
