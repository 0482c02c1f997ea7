/** `athanor layout show|advise PATH`: how files lie on the targets of a file system, and how they should. Changes nothing. */
import type { Command } from "commander";
import { parseDuration } from "../base/units.ts";
import { Usage } from "../base/usage.ts";
import { USES } from "../lustre/advice.ts";
import { reportJson, reportText } from "../lustre/report-text.ts";
import { layoutReport } from "../lustre/report.ts";
import type { LustreReport, OtherReport } from "../lustre/report.ts";
import { printLine, wantsJson, withProgress, withStorage } from "./command.ts";

interface Flags {
  limit: string;
  timeout: string;
  for?: string;
}

export function register(program: Command): void {
  const layout = program
    .command("layout")
    .description("how files lie on the targets of a file system, and how they should");
  const part = (name: string, description: string): Command =>
    layout
      .command(name)
      .description(description)
      .argument("<path>", "file or folder")
      .option("--limit <n>", "files that are looked at, chosen evenly", "10000")
      .option("--timeout <time>", "how long one call may take before it is given up", "10s");
  part("show", "striping, balance over the targets, and what is wrong with it").action(
    async (path: string, flags: Flags, command: Command) => {
      const report = await run(path, flags, false, command);
      await printLine(wantsJson(command) ? JSON.stringify(reportJson(report)) : reportText(report));
    },
  );
  part(
    "advise",
    "what the striping should be, why, the line that changes it and its undo; exit code 1 when there is something to do",
  )
    .option("--for <use>", `what the folder is for: ${USES.join(", ")} (otherwise told by the files)`)
    .action(async (path: string, flags: Flags, command: Command) => {
      const report = await run(path, flags, true, command);
      await printLine(wantsJson(command) ? JSON.stringify(reportJson(report)) : reportText(report));
      if (report.kind === "lustre" && hasWork(report)) process.exitCode = 1;
    });
}

async function run(path: string, flags: Flags, advise: boolean, command: Command): Promise<LustreReport | OtherReport> {
  const limit = Number(flags.limit);
  if (!Number.isSafeInteger(limit) || limit < 1)
    throw new Usage(`--limit must be a whole number of 1 or more, got ${flags.limit}`);
  const use = USES.find((name) => name === flags.for);
  if (flags.for !== undefined && use === undefined)
    throw new Usage(`--for must be one of ${USES.join(", ")}, got ${flags.for}`);
  const timeoutMs = parseDuration(flags.timeout, "--timeout") * 1000;
  return withStorage((storage) =>
    withProgress("asking", wantsJson(command), (progress) =>
      layoutReport(path, { storage, progress, limit, timeoutMs, use, advise }),
    ),
  );
}

function hasWork({ findings, advice, moves }: LustreReport): boolean {
  return findings.length > 0 || advice?.fits === false || moves.length > 0;
}
