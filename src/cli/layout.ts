/** `athanor layout show|advise|apply PATH`: how files lie on the targets of a file system, and how they should. */
import type { Command } from "commander";
import { parseDuration } from "../base/units.ts";
import { Usage } from "../base/usage.ts";
import { USES } from "../lustre/advice.ts";
import { applyAdvice } from "../lustre/apply.ts";
import { reportJson, reportText } from "../lustre/report-text.ts";
import { layoutReport } from "../lustre/report.ts";
import type { LustreReport, OtherReport } from "../lustre/report.ts";
import { printLine, wantsJson, withProgress, withStorage } from "./command.ts";

interface Flags {
  limit: string;
  timeout: string;
  for?: string;
  apply?: boolean;
}

const USE_HELP = `what the folder is for: ${USES.join(", ")} (otherwise told by the files)`;

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
    .option("--for <use>", USE_HELP)
    .action(async (path: string, flags: Flags, command: Command) => {
      const report = await run(path, flags, true, command);
      await printLine(wantsJson(command) ? JSON.stringify(reportJson(report)) : reportText(report));
      if (report.kind === "lustre" && hasWork(report)) process.exitCode = 1;
    });
  part(
    "apply",
    "set the striping of a folder as `advise` says, for new files only; without --apply it only says what it would do",
  )
    .option("--for <use>", USE_HELP)
    .option("--apply", "do it")
    .action(async (path: string, flags: Flags, command: Command) => {
      const report = await run(path, flags, true, command);
      await printLine(await applied(report, flags, wantsJson(command)));
    });
}

async function applied(report: LustreReport | OtherReport, flags: Flags, json: boolean): Promise<string> {
  if (report.kind === "other") return json ? JSON.stringify(reportJson(report)) : reportText(report);
  const wanted = report.advice?.change;
  const done = flags.apply === true ? await applyAdvice(report, { timeoutMs: timeoutOf(flags) }) : undefined;
  const { path } = report;
  if (json) return JSON.stringify({ path, change: wanted ?? null, applied: done !== undefined });
  if (wanted === undefined) return `${path} is set that way already: nothing to change`;
  const undo = wanted.undo ?? "not known, so it would be refused";
  if (done === undefined) return `would run: ${wanted.command}\nundo: ${undo}\nnothing was changed: --apply does it`;
  return `done: ${wanted.command}\nundo: ${undo}\nholds for new files; those that are there keep their layout`;
}

const timeoutOf = (flags: Flags): number => parseDuration(flags.timeout, "--timeout") * 1000;

async function run(path: string, flags: Flags, advise: boolean, command: Command): Promise<LustreReport | OtherReport> {
  const limit = Number(flags.limit);
  if (!Number.isSafeInteger(limit) || limit < 1)
    throw new Usage(`--limit must be a whole number of 1 or more, got ${flags.limit}`);
  const use = USES.find((name) => name === flags.for);
  if (flags.for !== undefined && use === undefined)
    throw new Usage(`--for must be one of ${USES.join(", ")}, got ${flags.for}`);
  const timeoutMs = timeoutOf(flags);
  return withStorage((storage) =>
    withProgress("asking", wantsJson(command), (progress) =>
      layoutReport(path, { storage, progress, limit, timeoutMs, use, advise }),
    ),
  );
}

function hasWork({ findings, advice, moves }: LustreReport): boolean {
  return findings.length > 0 || advice?.fits === false || moves.length > 0;
}
