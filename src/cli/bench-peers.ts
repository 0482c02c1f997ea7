/** `athanor bench peers | limits`: other loaders on the same samples, and what the machine can do at all. */
import { access, constants, readFile } from "node:fs/promises";
import { basename, dirname, isAbsolute, resolve } from "node:path";
import type { Command } from "commander";
import { writeAtomic } from "../base/atomic-write.ts";
import { parseDuration } from "../base/units.ts";
import { Usage } from "../base/usage.ts";
import { defaultCacheDir } from "../bench/data.ts";
import { benchLimits, limitsText } from "../bench/limits.ts";
import { PARTS, type Part } from "../bench/peer-parts.ts";
import { benchPeers } from "../bench/peers.ts";
import { peersMarkdown, peersText } from "../bench/peer-table.ts";
import { findPython } from "../bench/python.ts";
import { amount, count, oneOf, watchOf } from "./bench-flags.ts";
import { printLine, wantsJson } from "./command.ts";

interface PeersFlags {
  contenders: string;
  batch: string;
  ranks: string;
  passes: string;
  otherPasses: string;
  seconds: string;
  rate: string;
  samples: string;
  maxLength: string;
  seed: string;
  only: string;
  cold?: true;
  short?: true;
  python?: string;
  tfPython?: string;
  cacheDir: string;
  save?: string;
  write?: string;
}

/** Behind a warm-up of the loader, in seconds: processes are new in each measurement. */
const SETTLE = 1;
const [BEGIN, END] = ["<!-- peers -->", "<!-- /peers -->"];

export function registerPeers(bench: Command): void {
  bench
    .command("peers")
    .description("the same samples through other loaders, interleaved (where they are installed: npm run bench:peers)")
    .option("--contenders <list>", "some of them, or all", "all")
    .option("--batch <list>", "samples a rank and step", "32,256")
    .option("--ranks <list>", "numbers of rank processes; the last is compared with the first", "1,2,8")
    .option("--passes <n>", "interleaved passes of the first number of ranks, warm", "7")
    .option("--other-passes <n>", "passes of everything else", "3")
    .option("--seconds <s>", "timed span of one contender in one pass", "1.2")
    .option("--rate <n>", "samples/s of all ranks together where many are compared with few", "40000")
    .option("--samples <n>", "samples of the data, made once", "100000")
    .option("--max-length <n>", "values a row", "512")
    .option("--seed <n>", "seed of data and shuffle", "1")
    .option("--only <list>", `parts: ${PARTS.join(", ")}`, PARTS.join(","))
    .option("--cold", "only the cold part, and the limits it is compared with")
    .option("--short", "tiny data and spans: does it run?")
    .option("--python <path>", "interpreter with torch and the peers (default: $ATHANOR_PYTHON, else python3)")
    .option("--tf-python <path>", "interpreter with torch and TensorFlow; without it tf.data is left out")
    .option("--cache-dir <dir>", "folder of the data", defaultCacheDir())
    .option("--save <file>", "also write the report as JSON")
    .option("--write <file>", `also put the tables between ${BEGIN} and ${END} of this Markdown file`)
    .action(async (flags: PeersFlags, command: Command) => {
      const json = wantsJson(command);
      const counts = (name: string, text: string) => text.split(",").map((each) => count(name, each));
      // Checked before anything is measured: a run takes half an hour.
      const document = flags.write === undefined ? undefined : await sections(resolve(flags.write));
      if (flags.save !== undefined) await writable("--save", dirname(resolve(flags.save)));
      const [passes, otherPasses] = [count("--passes", flags.passes), count("--other-passes", flags.otherPasses)];
      const report = await benchPeers(
        {
          cacheDir: resolve(flags.cacheDir),
          samples: flags.short ? 4000 : count("--samples", flags.samples),
          width: count("--max-length", flags.maxLength),
          seed: count("--seed", flags.seed),
          contenders: flags.contenders,
          batches: counts("--batch", flags.batch),
          ranks: counts("--ranks", flags.ranks),
          passes: flags.short ? 1 : passes,
          otherPasses: flags.short ? 1 : otherPasses,
          seconds: flags.short ? 0.3 : parseDuration(flags.seconds, "--seconds"),
          rate: amount("--rate", flags.rate),
          settleSeconds: flags.short ? 0.05 : SETTLE,
          parts: flags.cold === true ? ["cold", "limits"] : parts(flags.only),
          ...(flags.python === undefined ? {} : { python: flags.python }),
          ...(flags.tfPython === undefined ? {} : { tfPython: flags.tfPython }),
        },
        watchOf(json),
      );
      if (flags.save !== undefined) {
        await writeAtomic(resolve(flags.save), [Buffer.from(`${JSON.stringify(report, withoutPlaces, 1)}\n`)]);
      }
      if (document !== undefined) await document(peersMarkdown(report, typed()));
      await printLine(json ? JSON.stringify(report) : peersText(report));
    });
}

export function registerLimits(bench: Command): void {
  bench
    .command("limits")
    .description("what this machine can do: memory copies, cached and cold reads, tmpfs")
    .requiredOption("--data <path>", "files or a folder that are read")
    .option("--passes <n>", "interleaved passes; medians are printed", "5")
    .option("--mib <n>", "MiB a copy, and of the tmpfs file", "256")
    .option("--shm <dir>", "folder of a tmpfs", "/dev/shm")
    .option("--python <path>", "interpreter with numpy (default: $ATHANOR_PYTHON, else python3)")
    .action(
      async (flags: { data: string; passes: string; mib: string; shm: string; python?: string }, command: Command) => {
        const python = await findPython("numpy", flags.python);
        const options = {
          paths: [resolve(flags.data)],
          passes: count("--passes", flags.passes),
          mib: count("--mib", flags.mib),
          shm: resolve(flags.shm),
        };
        const report = await benchLimits(options, python);
        await printLine(wantsJson(command) ? JSON.stringify(report) : limitsText(report));
      },
    );
}

async function writable(flag: string, folder: string): Promise<void> {
  try {
    await access(folder, constants.W_OK);
  } catch (error) {
    throw new Usage(`${flag}: ${folder} is no folder that can be written to`, {}, "make it, or name another", error);
  }
}

/** What is saved may be shown to others: where things lie on this machine is nobody's affair. */
function withoutPlaces(key: string, value: unknown): unknown {
  if (typeof value !== "string" || !isAbsolute(value)) return value;
  return key === "source" ? basename(value) : undefined;
}

function parts(text: string): Part[] {
  return text.split(",").map((name) => oneOf("--only", name.trim(), PARTS));
}

/** What to call with the new text of the part between the markers; checked before anything is measured. */
async function sections(path: string): Promise<(text: string) => Promise<void>> {
  const [before, rest] = (await readFile(path, "utf8")).split(BEGIN);
  const after = rest?.split(END)[1];
  if (before === undefined || after === undefined) {
    throw new Usage(`${path} has no ${BEGIN} … ${END}`, {}, "add the two lines where the tables shall stand");
  }
  return (text) => writeAtomic(path, [Buffer.from(`${before}${BEGIN}\n\n${text}\n\n${END}${after}`)]);
}

/** The command as it is typed in a checkout. */
function typed(): string {
  const own = ["--python", "--tf-python", "--save", "--write"];
  const given = process.argv.slice(process.argv.indexOf("peers") + 1);
  const shown = given.filter((arg, i) => !own.includes(arg) && !own.includes(given[i - 1] ?? ""));
  return ["npm run bench:peers", ...(shown.length === 0 ? [] : ["--", ...shown])].join(" ");
}
