/**
 * `athanor layout apply PATH`: sets the striping of a folder; with `--copy-to` copies its data into one that is set right, with `--migrate`
 * lays files elsewhere.
 */
import type { Command } from "commander";
import { parseDuration, parseSize } from "../base/units.ts";
import { Usage } from "../base/usage.ts";
import type { Use } from "../lustre/advice.ts";
import { applyAdvice } from "../lustre/apply.ts";
import { LayoutUnreadable } from "../lustre/errors.ts";
import { reportJson, reportText } from "../lustre/report-text.ts";
import { ASK_OSTS, layoutReport } from "../lustre/report.ts";
import type { LustreReport, OtherReport } from "../lustre/report.ts";
import { copyFolder } from "../staging/copy-folder.ts";
import { planCopy } from "../staging/copy-plan.ts";
import { moveFiles, refuseMoves } from "../staging/moves.ts";
import { copyJson, copyText, movedText, wouldMove } from "./layout-moved.ts";
import { printLine, resumable, wantsJson, withFiles, withProgress, withStorage } from "./command.ts";

export interface LayoutFlags {
  limit: number;
  timeout: string;
  polite?: string;
  for?: Use;
  probe?: boolean;
}

interface ApplyFlags extends LayoutFlags {
  apply?: boolean;
  copyTo?: string;
  migrate?: boolean;
  verify: boolean;
  bandwidth?: string;
}

export function registerApply(command: Command): void {
  command
    .option("--copy-to <folder>", "copy the data into this new folder, set right, file by file and verified; resumable")
    .option("--migrate", "lay the files that `advise` names on other OSTs, one at a time, by lfs migrate --non-block")
    .option("--no-verify", "with --migrate: do not read each file before and after")
    .option("--bandwidth <size>", "bytes a second that are read, and as many written, at most (200MiB)")
    .option("--apply", "do it")
    .action(async (path: string, flags: ApplyFlags, command: Command) => {
      const json = wantsJson(command);
      refuseStray(path, flags);
      if (flags.copyTo !== undefined) return copy(path, flags.copyTo, flags, json);
      if (flags.migrate === true) return printMoves(path, flags, command);
      await printLine(await applied(await reportOf(path, flags, true, command), flags, json));
    });
}

/** Flags that would be passed over. */
function refuseStray(path: string, { copyTo, migrate, verify, bandwidth }: ApplyFlags): void {
  const remedy = "see `athanor layout apply --help`";
  if (copyTo !== undefined && migrate === true)
    throw new Usage("--copy-to and --migrate are two ways: one at a time", { file: path }, remedy);
  if (bandwidth !== undefined && copyTo === undefined && migrate !== true)
    throw new Usage("--bandwidth goes with --copy-to or --migrate", { file: path }, "without them no byte is moved");
  if (!verify && migrate !== true)
    throw new Usage("--no-verify goes with --migrate", { file: path }, "a copy is always verified");
}

async function printMoves(path: string, flags: ApplyFlags, command: Command): Promise<void> {
  const json = wantsJson(command);
  if (flags.apply !== true) {
    const report = await reportOf(path, flags, true, command);
    if (report.kind === "other") return printLine(json ? JSON.stringify(reportJson(report)) : reportText(report));
    await refuseMoves(path, report, timeoutOf(flags));
    const { path: folder, moves, movesInAll } = report;
    return printLine(json ? JSON.stringify({ path: folder, moves, movesInAll, applied: null }) : wouldMove(report));
  }
  const { limit, for: use, verify } = flags;
  const bandwidth = bandwidthOf(flags);
  const timeoutMs = timeoutOf(flags);
  const result = await withFiles((files) =>
    withStorage(
      (storage, polite) =>
        resumable("moving", () =>
          withProgress("moving", json, (progress) =>
            moveFiles(path, { files, storage, polite, timeoutMs, limit, use, verify, bandwidth, progress }),
          ),
        ),
      flags.polite,
    ),
  );
  if ("mount" in result) return printLine(json ? JSON.stringify(reportJson(result)) : reportText(result));
  await printLine(json ? JSON.stringify({ applied: true, ...result }) : movedText(result));
  if (result.stayed.length > 0) process.exitCode = 1;
}

export function reportOf(
  path: string,
  flags: LayoutFlags,
  advise: boolean,
  command: Command,
): Promise<LustreReport | OtherReport> {
  const { limit, for: use, probe = false } = flags;
  const timeoutMs = timeoutOf(flags);
  return withStorage(
    (storage, polite) =>
      withProgress("asking", wantsJson(command), (progress) =>
        layoutReport(path, { storage, polite, progress, limit, timeoutMs, use, advise, probe }),
      ),
    flags.polite,
  );
}

const timeoutOf = (flags: LayoutFlags): number => parseDuration(flags.timeout, "--timeout") * 1000;

async function applied(report: LustreReport | OtherReport, flags: ApplyFlags, json: boolean): Promise<string> {
  if (report.kind === "other") return json ? JSON.stringify(reportJson(report)) : reportText(report);
  if (report.advice === undefined)
    throw new LayoutUnreadable(
      `the OSTs are not known: ${report.notes.join("; ")}`,
      { file: report.path },
      `nothing was set; ${ASK_OSTS}`,
    );
  const wanted = report.advice.change;
  const done = flags.apply === true ? await applyAdvice(report, { timeoutMs: timeoutOf(flags) }) : undefined;
  const { path } = report;
  if (json) return JSON.stringify({ path, change: wanted ?? null, applied: done !== undefined });
  if (wanted === undefined) return `${path} is set that way already: nothing to change`;
  const undo = wanted.undo ?? "not known, so it would be refused";
  if (done === undefined) return `would run: ${wanted.command}\nundo: ${undo}\nnothing was changed: --apply does it`;
  return `done: ${wanted.command}\nundo: ${undo}\nholds for new files; those that are there keep their layout`;
}

function bandwidthOf({ bandwidth }: ApplyFlags): number | undefined {
  if (bandwidth === undefined) return undefined;
  const bytes = parseSize(bandwidth, "--bandwidth");
  if (bytes < 1 << 16) throw new Usage("--bandwidth must be 64KiB or more");
  return bytes;
}

async function copy(path: string, target: string, flags: ApplyFlags, json: boolean): Promise<void> {
  const bandwidth = bandwidthOf(flags);
  const timeoutMs = timeoutOf(flags);
  await withFiles((files) =>
    withStorage(async (storage, polite) => {
      const options = { files, storage, polite, timeoutMs, use: flags.for };
      const plan = await planCopy(path, target, options);
      const result =
        flags.apply === true
          ? await resumable(`copy to ${plan.to}`, () =>
              withProgress("copying", json, (progress) => copyFolder(plan, { ...options, bandwidth, progress })),
            )
          : undefined;
      await printLine(json ? JSON.stringify(copyJson(plan, result)) : copyText(plan, result));
    }, flags.polite),
  );
}
