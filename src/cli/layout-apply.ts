/** `athanor layout apply PATH`: sets the striping of a folder; with `--copy-to` copies its data into one that is set right. */
import type { Command } from "commander";
import { AthanorError } from "../base/errors.ts";
import { formatNumber, formatSize, parseDuration, parseSize } from "../base/units.ts";
import { Usage } from "../base/usage.ts";
import type { Use } from "../lustre/advice.ts";
import { applyAdvice } from "../lustre/apply.ts";
import { reportJson, reportText } from "../lustre/report-text.ts";
import { layoutReport } from "../lustre/report.ts";
import type { LustreReport, OtherReport } from "../lustre/report.ts";
import { copyFolder } from "../staging/copy-folder.ts";
import type { CopyResult } from "../staging/copy-folder.ts";
import { planCopy } from "../staging/copy-plan.ts";
import type { CopyPlan } from "../staging/copy-plan.ts";
import { printLine, resumable, wantsJson, withFiles, withProgress, withStorage } from "./command.ts";

export interface LayoutFlags {
  limit: number;
  timeout: string;
  polite?: string;
  for?: Use;
}

interface ApplyFlags extends LayoutFlags {
  apply?: boolean;
  copyTo?: string;
  bandwidth?: string;
}

export function registerApply(command: Command): void {
  command
    .option("--copy-to <folder>", "copy the data into this new folder, set right, file by file and verified; resumable")
    .option("--bandwidth <size>", "bytes a second that a copy reads, and writes, at most (200MiB)")
    .option("--apply", "do it")
    .action(async (path: string, flags: ApplyFlags, command: Command) => {
      const json = wantsJson(command);
      if (flags.copyTo !== undefined) return copy(path, flags.copyTo, flags, json);
      if (flags.bandwidth !== undefined)
        throw new Usage("--bandwidth goes with --copy-to", { file: path }, "without it no byte is moved");
      await printLine(await applied(await reportOf(path, flags, true, command), flags, json));
    });
}

export function reportOf(
  path: string,
  flags: LayoutFlags,
  advise: boolean,
  command: Command,
): Promise<LustreReport | OtherReport> {
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

const timeoutOf = (flags: LayoutFlags): number => parseDuration(flags.timeout, "--timeout") * 1000;

async function applied(report: LustreReport | OtherReport, flags: ApplyFlags, json: boolean): Promise<string> {
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

function copyJson({ from, to, left, bytes, done, change, notes }: CopyPlan, result: CopyResult | undefined): object {
  const index = result?.index instanceof AthanorError ? result.index.toRecord() : result?.index;
  return {
    from,
    to,
    files: left.length,
    bytes,
    before: done,
    change: change ?? null,
    notes,
    applied: result === undefined ? null : { ...result, index },
  };
}

function copyText(plan: CopyPlan, result: CopyResult | undefined): string {
  const { from, to, mount, left, bytes, done, change, why, notes } = plan;
  const what = `${formatNumber(left.length, "file")}, ${formatSize(bytes)}`;
  const lines = [result === undefined ? `would copy ${what}: ${from} to ${to}` : `copied ${what}: ${from} to ${to}`];
  if (done.files > 0)
    lines.push(`  ${formatNumber(done.files, "file")}, ${formatSize(done.bytes)} are there from an earlier run`);
  for (const note of notes) lines.push(`  ${note}`);
  if (change !== undefined) {
    lines.push(`  striped ${result === undefined ? "by" : "so"}: ${change.command}`);
    for (const reason of why) lines.push(`    ${reason}`);
    if (change.overrides !== undefined) lines.push(`    instead of: ${change.overrides}`);
  }
  if (result === undefined) return [...lines, "nothing was changed: --apply does it"].join("\n");
  const cached = result.files - result.direct;
  const where =
    mount.kind === "memory"
      ? "in memory, where it lies"
      : cached === 0
        ? "past the page cache"
        : `${formatNumber(cached, "file")} perhaps from the page cache: this file system has no direct reads`;
  lines.push(`  each was read back and compared by size and CRC32C, ${where}`);
  if (result.otherTimes > 0)
    lines.push(`  ${formatNumber(result.otherTimes, "file")} with another mtime: the file system did not take it`);
  lines.push(`  ${indexText(result.index, to)}`, `  undo: remove ${to}; ${from} is untouched`);
  return lines.join("\n");
}

function indexText(index: CopyResult["index"], to: string): string {
  if (index === "none") return `no index came along: \`athanor index ${to}\` makes one`;
  if (index === "fits") return "its index came along and fits";
  if (index === "adopted") return "its index came along and was adopted";
  return `its index came along and does not fit (${index.message}): \`athanor index ${to}\``;
}
