/** `athanor bench bill`: what loaders cost the file system. Parses, calls, prints. */
import { resolve } from "node:path";
import type { Command } from "commander";
import { parseSize } from "../base/units.ts";
import { benchBill } from "../bench/bill.ts";
import { billText } from "../bench/bill-table.ts";
import { defaultCacheDir } from "../bench/data.ts";
import { amount, count, watchOf } from "./bench-flags.ts";
import { printLine, wantsJson } from "./command.ts";

interface BillFlags {
  samples?: string;
  batch: string;
  maxLength: string;
  seed: string;
  indexDir?: string;
  shuffleMemory?: string;
  python?: string;
  cacheDir: string;
}

export function registerBill(bench: Command): void {
  bench
    .command("bill")
    .description("what loaders cost the file system: metadata operations, read requests, bytes against bytes wanted")
    .argument("<path>", "TFRecord set in the story's schema, on the mount that is asked about")
    .option("--samples <n>", "samples of Athanor's span (default: an epoch)")
    .option("--batch <n>", "samples a batch", "32")
    .option("--max-length <n>", "values a row", "512")
    .option("--seed <n>", "seed of the shuffle", "1")
    .option("--index-dir <dir>", "where the index lies when the data is read-only")
    .option("--shuffle-memory <size>", "of Athanor (default: as a job, lowered where the view would fit)")
    .option("--python <path>", "interpreter with torch (default: $ATHANOR_PYTHON, else python3)")
    .option("--cache-dir <dir>", "folder of the memory map; on Lustre on the same file system", defaultCacheDir())
    .action(async (path: string, flags: BillFlags, command: Command) => {
      const json = wantsJson(command);
      const report = await benchBill(
        {
          source: resolve(path),
          batch: count("--batch", flags.batch),
          width: count("--max-length", flags.maxLength),
          seed: Math.floor(amount("--seed", flags.seed)),
          cacheDir: resolve(flags.cacheDir),
          ...(flags.samples === undefined ? {} : { samples: count("--samples", flags.samples) }),
          ...(flags.indexDir === undefined ? {} : { indexDir: resolve(flags.indexDir) }),
          ...(flags.python === undefined ? {} : { python: flags.python }),
          ...(flags.shuffleMemory === undefined
            ? {}
            : { shuffleMemory: parseSize(flags.shuffleMemory, "--shuffle-memory") }),
        },
        watchOf(json),
      );
      await printLine(json ? JSON.stringify(report) : billText(report));
    });
}
