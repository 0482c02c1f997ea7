/** `athanor bench storage PATH`: raw read and write of a mount. Parses, calls, prints. */
import { availableParallelism } from "node:os";
import type { Command } from "commander";
import { parseDuration, parseSize } from "../base/units.ts";
import { Usage } from "../base/usage.ts";
import { benchStorage } from "../bench/storage.ts";
import { storageText } from "../bench/storage-table.ts";
import { count, watchOf } from "./bench-flags.ts";
import { printLine, wantsJson } from "./command.ts";

interface Flags {
  read?: true;
  size: string;
  processes: string;
  passes: string;
  osts: string;
  timeout: string;
}

/** A guest's: four readers say where a mount goes, without being a load to others. */
const POLITE = Math.min(4, availableParallelism());

export function registerStorage(bench: Command): void {
  bench
    .command("storage")
    .description("raw read and write of a mount in four patterns, for each OST where they are known")
    .argument("<path>", "folder of the mount: all is written into a folder of its own in it, which is removed again")
    .option("--read", "write nothing: read the files that are in the folder (or one file)")
    .option("--size <size>", "bytes of all files together", "1GiB")
    .option("--processes <n>", "the most processes; 1, 2, 4 … of them are measured", String(POLITE))
    .option("--passes <n>", "interleaved passes; medians are printed", "3")
    .option("--osts <n>", "OSTs that are measured one by one, spread over all", "8")
    .option("--timeout <time>", "how long one call may take before it is given up", "60s")
    .action(async (path: string, flags: Flags, command: Command) => {
      const json = wantsJson(command);
      const timeoutMs = parseDuration(flags.timeout, "--timeout") * 1000;
      if (timeoutMs <= 0) throw new Usage("--timeout must be more than 0", {}, "60s is the default");
      const report = await benchStorage(
        {
          path,
          read: flags.read === true,
          size: parseSize(flags.size, "--size"),
          processes: count("--processes", flags.processes),
          passes: count("--passes", flags.passes),
          osts: count("--osts", flags.osts),
          timeoutMs,
        },
        watchOf(json),
      );
      await printLine(json ? JSON.stringify(report) : storageText(report));
    });
}
