/** `athanor verify PATH`: checks every byte against checksums and index. */
import type { Command } from "commander";
import { AthanorError } from "../base/errors.ts";
import { formatNumber, formatSize } from "../base/units.ts";
import { verify } from "../dataset/verify.ts";
import { politeOption, printLine, wantsJson, withProgress, withStorage } from "./command.ts";

interface Flags {
  indexDir?: string;
  strictChunks?: boolean;
  polite?: string;
}

export function register(program: Command): void {
  program
    .command("verify")
    .description("check every byte: record checksums, sizes, and what the index says")
    .argument("<path>", "folder, file or glob of shards")
    .option("--index-dir <dir>", "where the index lies when the data is read-only")
    .option("--strict-chunks", "arrays: a chunk that no file holds is a problem (by default it is counted)")
    .addOption(politeOption())
    .action(async (path: string, flags: Flags, command: Command) => {
      const json = wantsJson(command);
      const report = await withStorage(
        (storage) =>
          withProgress("verifying", json, (progress) =>
            verify(path, { storage, progress, indexDir: flags.indexDir, strictChunks: flags.strictChunks === true }),
          ),
        flags.polite,
      );
      const { problems, indexed, shards, records, bytes, missingChunks } = report;
      if (json) {
        await printLine(JSON.stringify({ ...report, problems: problems.map(({ exit: _, ...problem }) => problem) }));
      } else {
        for (const problem of problems)
          await printLine(`${AthanorError.fromRecord(problem).message} [${problem.code}]`);
        if (missingChunks > 0)
          await printLine(`${formatNumber(missingChunks, "chunk")} of arrays missing: they read as fill values`);
        await printLine(
          `${formatNumber(shards, "shard")}, ${formatNumber(records, "record")}, ${formatSize(bytes)} checked` +
            `${indexed ? " against the index" : " (there is no index)"}: ${problems.length === 0 ? "no problem" : `${problems.length} with problems`}`,
        );
      }
      // The first problem is the error; all of them stand on stdout.
      if (problems.length > 0) throw AthanorError.fromRecord(problems[0]!);
    });
}
