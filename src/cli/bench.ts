/**
 * `athanor bench train | formats | agent-opens`: the comparison tables, and the agent's opens; `peers | limits` are in
 * bench-peers.ts, `storage` in bench-storage.ts, `bill` in bench-bill.ts. Parses, calls, prints; the work is in src/bench/.
 */
import { resolve } from "node:path";
import type { Command } from "commander";
import { writeAtomic } from "../base/atomic-write.ts";
import { parseDuration, parseSize } from "../base/units.ts";
import { Usage } from "../base/usage.ts";
import { agentOpens } from "../bench/agent-opens.ts";
import { compareRanks } from "../bench/compare-ranks.ts";
import { defaultCacheDir, formatsFolder } from "../bench/data.ts";
import { FORMATS, benchFormats } from "../bench/formats.ts";
import { formatsMarkdown, formatsText } from "../bench/formats-table.ts";
import { reportHtml } from "../bench/html.ts";
import { comparisonText, reportText } from "../bench/table.ts";
import { benchTrain } from "../bench/train.ts";
import { amount, count, oneOf, watchOf } from "./bench-flags.ts";
import { registerBill } from "./bench-bill.ts";
import { registerLimits, registerPeers } from "./bench-peers.ts";
import { registerStorage } from "./bench-storage.ts";
import { printLine, wantsJson } from "./command.ts";

interface TrainFlags {
  data: string;
  indexDir?: string;
  batch: string;
  ranks: string;
  stepMs: string;
  seconds: string;
  passes: string;
  maxLength: string;
  contenders: string;
  mode: string;
  client: string;
  python?: string;
  cacheDir: string;
  cold?: true;
  seed: string;
  shuffleMemory?: string;
  findAu?: string;
  contender: string;
  compareRanks?: string;
  html?: string;
}

interface FormatsFlags {
  formats: string;
  samples: string;
  maxLength: string;
  batch: string;
  passes: string;
  seconds: string;
  seed: string;
  shuffleMemory: string;
  python?: string;
  cacheDir: string;
  markdown?: true;
}

export function register(program: Command): void {
  const bench = program.command("bench").description("measure loaders on this machine and these files");
  bench
    .command("train")
    .description("the comparison table: real clients on real files behind an emulated accelerator")
    .requiredOption("--data <path>", "TFRecord data set with int64 features input_ids and attention_mask")
    .option("--index-dir <dir>", "where the index lies when the data is read-only")
    .option("--batch <list>", "samples a rank and step; one table each", "32,256")
    .option("--ranks <n>", "rank processes on this node", "1")
    .option("--step-ms <ms>", "length of the emulated training step; 0: as fast as the loader can", "0")
    .option("--seconds <s>", "timed span of one contender in one pass", "5")
    .option("--passes <n>", "interleaved passes; medians are printed (naive stops after 3)", "3")
    .option("--max-length <n>", "values a row", "512")
    .option("--contenders <list>", "of naive, memmap, memmap_batch, athanor", "naive,memmap,athanor")
    .option("--mode <mode>", "order of athanor: window, global or both", "both")
    .option("--client <client>", "torch or numpy (athanor only)", "torch")
    .option("--python <path>", "interpreter of the rank processes (default: $ATHANOR_PYTHON, else python3)")
    .option("--cache-dir <dir>", "folder of the memory map, made once a data set", defaultCacheDir())
    .option("--cold", "drop the files from the page cache before each pass")
    .option("--seed <n>", "seed of every shuffle", "1")
    .option("--shuffle-memory <size>", "of the window mode (default 1GiB; lowered when the whole view would fit)")
    .option("--find-au <percent>", "find the step time at which --contender reaches this AU, and run all there")
    .option("--contender <name>", "see --find-au", "memmap")
    .option("--compare-ranks <list>", "instead of the table: agent memory and CPU a sample, e.g. 1,8 (numpy clients)")
    .option("--html <file>", "also write the report as one HTML file")
    .action(async (flags: TrainFlags, command: Command) => {
      const json = wantsJson(command);
      const watch = watchOf(json);
      const mode = oneOf("--mode", flags.mode, ["window", "global", "both"] as const);
      const common = {
        source: resolve(flags.data),
        stepMs: amount("--step-ms", flags.stepMs),
        seconds: parseDuration(flags.seconds, "--seconds"),
        passes: count("--passes", flags.passes),
        width: count("--max-length", flags.maxLength),
        cold: flags.cold === true,
        seed: Math.floor(amount("--seed", flags.seed)),
        ...(flags.indexDir === undefined ? {} : { indexDir: resolve(flags.indexDir) }),
        ...(flags.python === undefined ? {} : { python: flags.python }),
        ...(flags.shuffleMemory === undefined
          ? {}
          : { shuffleMemory: parseSize(flags.shuffleMemory, "--shuffle-memory") }),
      };
      const batches = flags.batch.split(",").map((text) => count("--batch", text));
      if (flags.compareRanks !== undefined) {
        const worlds = flags.compareRanks.split(",").map((text) => count("--compare-ranks", text));
        const compared = await compareRanks(
          { ...common, worlds, batch: batches[0]!, mode: mode === "both" ? "window" : mode },
          watch,
        );
        await printLine(json ? JSON.stringify(compared) : comparisonText(compared));
        return;
      }
      const report = await benchTrain(
        {
          ...common,
          batches,
          mode,
          ranks: count("--ranks", flags.ranks),
          contenders: flags.contenders,
          client: oneOf("--client", flags.client, ["torch", "numpy"] as const),
          cacheDir: resolve(flags.cacheDir),
          ...(flags.findAu === undefined ? {} : { find: { au: percent(flags.findAu), contender: flags.contender } }),
        },
        watch,
      );
      if (flags.html !== undefined) await writeAtomic(resolve(flags.html), [Buffer.from(reportHtml(report))]);
      await printLine(json ? JSON.stringify(report) : reportText(report));
    });
  bench
    .command("formats")
    .description("the same samples in every format: Athanor beside the format's own reader (where that is installed)")
    .option("--formats <list>", "some of them", FORMATS.join(","))
    .option("--samples <n>", "samples of the data, made once", "100000")
    .option("--max-length <n>", "values a row", "512")
    .option("--batch <n>", "samples a batch", "32")
    .option("--passes <n>", "interleaved passes; medians are printed", "3")
    .option("--seconds <s>", "timed span of one reader in one pass", "5")
    .option("--seed <n>", "seed of data and shuffle", "1")
    .option(
      "--shuffle-memory <size>",
      "of Athanor; the default is below the size of the view, as in a large set",
      "96MiB",
    )
    .option("--python <path>", "interpreter with torch and the readers (default: $ATHANOR_PYTHON, else python3)")
    .option("--cache-dir <dir>", "folder of the data", defaultCacheDir())
    .option("--markdown", "the table as Markdown")
    .action(async (flags: FormatsFlags, command: Command) => {
      const json = wantsJson(command);
      const formats = flags.formats.split(",").map((name) => oneOf("--formats", name, FORMATS));
      const samples = count("--samples", flags.samples);
      const width = count("--max-length", flags.maxLength);
      const seed = count("--seed", flags.seed);
      const report = await benchFormats(
        {
          folder: formatsFolder(resolve(flags.cacheDir), samples, width, seed),
          formats,
          samples,
          width,
          batch: count("--batch", flags.batch),
          passes: count("--passes", flags.passes),
          seconds: parseDuration(flags.seconds, "--seconds"),
          seed,
          shuffleMemory: parseSize(flags.shuffleMemory, "--shuffle-memory"),
          ...(flags.python === undefined ? {} : { python: flags.python }),
        },
        watchOf(json),
      );
      await printLine(
        json ? JSON.stringify(report) : flags.markdown === true ? formatsMarkdown(report) : formatsText(report),
      );
    });
  registerPeers(bench);
  registerLimits(bench);
  registerStorage(bench);
  registerBill(bench);
  bench
    .command("agent-opens")
    .description("count the files that the start of an agent opens (needs strace)")
    .option("--data <path>", "an indexed set: count until a client has its first batch, the set's own files left out")
    .option("--index-dir <dir>", "where the index lies when the data is read-only")
    .option("--python <path>", "interpreter of the client (default: $ATHANOR_PYTHON, else python3)")
    .action(async (flags: { data?: string; indexDir?: string; python?: string }, command: Command) => {
      const { data, indexDir, python } = flags;
      const found = await agentOpens(
        data === undefined
          ? undefined
          : {
              source: resolve(data),
              ...(indexDir === undefined ? {} : { indexDir: resolve(indexDir) }),
              ...(python === undefined ? {} : { python }),
            },
      );
      const until = found.session ? "a client has its first batch" : "the agent accepts";
      await printLine(
        wantsJson(command)
          ? JSON.stringify(found)
          : `${found.files.join("\n")}\n${found.files.length} files opened until ${until} ` +
              `(${found.opens} opens with kernel files, folders and data, ${found.failed} failed)`,
      );
    });
}

function percent(text: string): number {
  const value = amount("--find-au", text);
  if (value <= 0 || value >= 100) throw new Usage(`--find-au must lie between 0 and 100, got ${JSON.stringify(text)}`);
  return value;
}
