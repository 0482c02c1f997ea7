/** `athanor layout show|advise|apply PATH`: how files lie on the targets of a file system, and how they should. */
import { Option, type Command } from "commander";
import { parseDuration } from "../base/units.ts";
import { USES, type Use } from "../lustre/advice.ts";
import { applyAdvice } from "../lustre/apply.ts";
import { reportJson, reportText } from "../lustre/report-text.ts";
import { layoutReport } from "../lustre/report.ts";
import type { LustreReport, OtherReport } from "../lustre/report.ts";
import { politeOption, printLine, wantsJson, withProgress, withStorage } from "./command.ts";
import { whole } from "./order-flags.ts";

interface Flags {
  limit: number;
  timeout: string;
  polite?: string;
  for?: Use;
  apply?: boolean;
}

const forOption = (): Option =>
  new Option("--for <use>", "what the folder is for (otherwise told by the files)").choices(USES);

export function register(program: Command): void {
  const layout = program
    .command("layout")
    .description("how files lie on the targets of a file system, and how they should");
  const part = (name: string, description: string): Command =>
    layout
      .command(name)
      .description(description)
      .argument("<path>", "file or folder")
      .option("--limit <n>", "files that are looked at, chosen evenly", whole, 10_000)
      .option("--timeout <time>", "how long one call may take before it is given up", "10s")
      .addOption(politeOption());
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
    .addOption(forOption())
    .action(async (path: string, flags: Flags, command: Command) => {
      const report = await run(path, flags, true, command);
      await printLine(wantsJson(command) ? JSON.stringify(reportJson(report)) : reportText(report));
      if (report.kind === "lustre" && hasWork(report)) process.exitCode = 1;
    });
  part(
    "apply",
    "set the striping of a folder as `advise` says, for new files only; without --apply it only says what it would do",
  )
    .addOption(forOption())
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
  const { limit, for: use } = flags;
  const timeoutMs = timeoutOf(flags);
  return withStorage(
    (storage, polite) =>
      withProgress("asking", wantsJson(command), (progress) =>
        layoutReport(path, { storage, polite, progress, limit, timeoutMs, use, advise }),
      ),
    flags.polite,
  );
}

function hasWork({ findings, advice, moves }: LustreReport): boolean {
  return findings.length > 0 || advice?.fits === false || moves.length > 0;
}
