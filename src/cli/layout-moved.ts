/** What `athanor layout apply` says of copies and moves, done or to be done. */
import { AthanorError } from "../base/errors.ts";
import { formatNumber, formatSize } from "../base/units.ts";
import type { LustreReport } from "../lustre/report.ts";
import type { CopyResult } from "../staging/copy-folder.ts";
import type { CopyPlan } from "../staging/copy-plan.ts";
import type { MoveResult } from "../staging/moves.ts";

export function copyJson(
  { from, to, left, bytes, done, change, notes }: CopyPlan,
  result: CopyResult | undefined,
): object {
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

export function copyText(plan: CopyPlan, result: CopyResult | undefined): string {
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

const nothingToMove = (path: string): string =>
  `${path}: nothing to move: it lies evenly, or nothing that may be moved would gain`;

export function wouldMove({ path, moves, movesInAll: { files, bytes } }: LustreReport): string {
  if (moves.length === 0) return nothingToMove(path);
  const lines = [`would move ${formatNumber(files, "file")}, ${formatSize(bytes)}, one after the other:`];
  for (const { command, undo } of moves) lines.push(`  ${command}`, `    undo: ${undo}`);
  if (files > moves.length) lines.push(`  and ${files - moves.length} more`);
  return [...lines, "nothing was changed: --apply does it"].join("\n");
}

export function movedText({ path, moved, stayed, notes, journal }: MoveResult): string {
  const bytes = moved.reduce((sum, { size }) => sum + size, 0);
  const lines = [
    moved.length + stayed.length === 0
      ? nothingToMove(path)
      : `moved ${formatNumber(moved.length, "file")}, ${formatSize(bytes)} of ${path}`,
  ];
  for (const note of notes) lines.push(`  ${note}`);
  for (const move of moved) lines.push(`  ${move.path}: OST ${move.from} to OST ${move.to}`, `    undo: ${move.undo}`);
  for (const { path: name, why } of stayed) lines.push(`  stays: ${name}: ${why}`);
  if (moved.length > 0) lines.push(`the undo of each is in ${journal}, too; remove it when it is wanted no more`);
  return lines.join("\n");
}
