/**
 * `athanor bench train`: real client processes on real files behind an emulated accelerator, as MLPerf Storage does.
 *
 * Contract: contenders take turns in every pass (in reverse order in every second one), in processes that live through
 * the run; nothing is asserted, everything measured is in the report.
 *
 * @example
 * const report = await benchTrain({ source: "/data", batches: [32, 256], … }, { say: console.error });
 */
import { formatSize } from "../base/units.ts";
import { Usage } from "../base/usage.ts";
import { type Contender, contenders } from "./contenders.ts";
import { describeSet, ensureMemmap } from "./data.ts";
import { BenchData } from "./errors.ts";
import { findStep } from "./find-step.ts";
import { machineFacts } from "./machine.ts";
import type { PassResult, Setting } from "./measure.ts";
import { NAIVE_PASSES, Passes, windowMemory } from "./passes.ts";
import { type Client, findPython } from "./python.ts";
import { cacheState, type Report, rowOf, storyOf, type Table } from "./report.ts";

export interface TrainOptions {
  /** Absolute path of a TFRecord data set in the story's schema. */
  source: string;
  indexDir?: string;
  /** Samples a rank and step; one table each. */
  batches: number[];
  /** Rank processes. */
  ranks: number;
  stepMs: number;
  /** Timed span of one contender in one pass. Longer when the machine is noisy or an epoch is long. */
  seconds: number;
  passes: number;
  /** Values a row. */
  width: number;
  /** Comma list. */
  contenders: string;
  mode: "window" | "global" | "both";
  client: Client;
  /** Interpreter; see python.ts for the default. */
  python?: string;
  /** Folder of the memory map. */
  cacheDir: string;
  /** Drop the files' pages before each pass instead of reading them once. */
  cold: boolean;
  seed: number;
  /** Bytes for the `window` mode; lowered when the view fits in it. */
  shuffleMemory?: number;
  /** Find the step time at which `contender` reaches `au` percent, and run all there. */
  find?: { au: number; contender: string };
}

export interface Watch {
  /** One line of progress. */
  say(line: string): void;
}

/** Timed span of a probe of the bisection. */
const PROBE_SECONDS = 2;

export async function benchTrain(options: TrainOptions, watch: Watch): Promise<Report> {
  const list = contenders(options.contenders, options.mode);
  if (options.client === "numpy" && list.some((contender) => contender.loader !== "athanor")) {
    throw new Usage(
      "the numpy client runs athanor only: the other contenders are PyTorch loaders",
      {},
      "add --contenders athanor",
    );
  }
  const finder =
    options.find === undefined ? undefined : list.find((contender) => contender.name === options.find?.contender);
  if (options.find !== undefined && finder === undefined) {
    const names = list.map((contender) => contender.name).join(", ");
    throw new Usage(`--contender must be one of ${names}, got ${JSON.stringify(options.find.contender)}`);
  }
  const python = await findPython(options.client, options.python);
  const set = await describeSet(options.source, options.width, options.indexDir);
  const needsMap = list.some((contender) => contender.loader.startsWith("memmap"));
  if (needsMap) watch.say("memory map of the map-style contender (made once)");
  const memmap = needsMap ? await ensureMemmap(set, options.cacheDir, python) : undefined;
  const window = windowMemory(set.samples, set.width, options.shuffleMemory);
  const { client, seed, cold, ranks } = options;
  const passes = new Passes({ set, memmap, client, python, seed, cold, ranks, shuffleMemory: window.bytes });
  try {
    watch.say(`starting ${ranks * list.length} rank processes`);
    const facts = machineFacts(await passes.hello(list[0]!));
    for (const contender of list) await passes.hello(contender);
    if (!cold) await passes.warm(list[0]!);
    const report: Report = {
      version: 1,
      data: {
        source: set.source,
        samples: set.samples,
        bytes: set.bytes,
        shards: set.shards.length,
        width: set.width,
        fileSystem: set.fileSystem,
      },
      machine: facts,
      cache: cacheState(options.cold),
      client,
      ranks,
      passes: options.passes,
      notes:
        window.lowered && list.some((contender) => contender.mode === "window")
          ? [
              `athanor window: the view fits in the shuffle memory and would be held whole; lowered to ${formatSize(window.bytes)}, a quarter of it`,
            ]
          : [],
      tables: [],
    };
    for (const batch of options.batches) {
      const base = { batch, stepMs: options.stepMs, seconds: options.seconds };
      report.tables.push(
        finder === undefined
          ? await table(passes, list, base, options.passes, set.samples, watch)
          : await tableAt(passes, list, finder, options.find!.au, base, options.passes, set.samples, watch),
      );
    }
    return report;
  } finally {
    await passes.stop();
  }
}

/** One table at a fixed step time. */
async function table(
  passes: Passes,
  list: readonly Contender[],
  setting: Setting,
  count: number,
  samples: number,
  watch: Watch,
): Promise<Table> {
  const results = new Map<string, PassResult[]>(list.map((contender) => [contender.name, []]));
  for (let pass = 0; pass < count; pass++) {
    const turn = list.filter((contender) => contender.loader !== "naive" || pass < NAIVE_PASSES);
    for (const contender of pass % 2 === 0 ? turn : turn.toReversed()) {
      watch.say(
        `batch ${setting.batch}, step ${setting.stepMs.toFixed(2)} ms, pass ${pass + 1} of ${count}: ${contender.name}`,
      );
      results.get(contender.name)!.push(await passes.one(contender, setting, pass));
    }
  }
  const rows = list.map((contender) => rowOf(contender.name, results.get(contender.name)!, samples, results));
  // Only without a step is a loader's rate its own.
  const rates =
    setting.stepMs === 0 ? rows.map((row): [string, number] => [row.name, row.samplesPerSecond.median]) : [];
  return { setting, rows, story: storyOf(new Map(rates), list, setting.batch * passes.ranks, samples) };
}

/** One table at the step time where `finder` reaches `au` percent. */
async function tableAt(
  passes: Passes,
  list: readonly Contender[],
  finder: Contender,
  au: number,
  base: Setting,
  count: number,
  samples: number,
  watch: Watch,
): Promise<Table> {
  const probe = async (contender: Contender, stepMs: number) => {
    const result = await passes.one(contender, { ...base, stepMs, seconds: PROBE_SECONDS }, 0);
    watch.say(
      `batch ${base.batch}: ${contender.name} at ${stepMs.toFixed(2)} ms a step: AU ${result.au?.toFixed(1) ?? "-"} %`,
    );
    return result;
  };
  const load = (base.batch * passes.ranks) / (await probe(finder, 0)).samplesPerSecond;
  const found = await findStep(au, load, async (stepMs) => {
    const result = await probe(finder, stepMs);
    if (result.au === undefined) throw new BenchData(`${finder.name} reports no utilisation at ${stepMs} ms a step`);
    return result.au;
  });
  const made = await table(passes, list, { ...base, stepMs: found.stepMs }, count, samples, watch);
  // The story's second ratio needs what naive and Athanor do without a step.
  const rates = new Map<string, number>();
  for (const contender of list) {
    if (contender.loader === "naive" || contender.loader === "athanor") {
      rates.set(contender.name, (await probe(contender, 0)).samplesPerSecond);
    }
  }
  return {
    ...made,
    story: storyOf(rates, list, base.batch * passes.ranks, samples),
    found: { ...found, contender: finder.name },
  };
}
