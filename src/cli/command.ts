/**
 * What all commands share: results on stdout (`--json`: one line), progress and hang warnings on stderr, and storage that
 * never keeps the process from ending.
 */
import { once } from "node:events";
import { Option } from "commander";
import type { Command } from "commander";
import { Progress } from "../base/progress.ts";
import { formatDuration, formatNumber } from "../base/units.ts";
import { Usage } from "../base/usage.ts";
import { visible } from "../base/visible.ts";
import type { MissingChunks } from "../dataset/types.ts";
import { Files } from "../staging/files.ts";
import { hungText } from "../storage/io-pool.ts";
import { CAPS, Polite, capsHere } from "../storage/polite.ts";
import { createPosixStorage } from "../storage/posix.ts";
import type { PosixStorage } from "../storage/posix.ts";

let threadsHang = false;

/** Whether a command left an I/O thread in a call that does not return. */
export function hasHungThreads(): boolean {
  return threadsHang;
}

/** Waiting for the caps that is worth a line. Seconds. */
const TOLD_WAIT = 1;

export function politeOption(): Option {
  const defaults = Object.entries(CAPS).map(([kind, cap]) => `${kind}=${cap}`);
  return new Option(
    "--polite <caps>",
    `calls a second to a shared file system: off, or some of ${defaults.join(",")}, the defaults (ATHANOR_POLITE)`,
  );
}

/**
 * Runs `work` with a storage of its own, and its caps (`flag`: what --polite says). A call that hangs is named on stderr after 10 s, and so
 * is what the caps cost.
 */
export async function withStorage<Result>(
  work: (storage: PosixStorage, polite: Polite) => Promise<Result>,
  flag?: string,
): Promise<Result> {
  const polite = new Polite(capsHere(flag, flag === undefined ? undefined : "--polite"));
  const storage = createPosixStorage({
    polite,
    onHang: (hung) => {
      const seconds = Math.round(hung.sinceMs / 1000);
      tell(`waiting for storage: ${hungText(hung)} for ${seconds} s (${hung.target})`);
    },
  });
  try {
    return await work(storage, polite);
  } finally {
    const { nodes: _, ...asked } = polite.stats();
    for (const [kind, { perSecond, waitedSeconds, waited }] of Object.entries(asked))
      if (waitedSeconds >= TOLD_WAIT)
        tell(
          `${formatNumber(waited, "call")} waited ${formatDuration(waitedSeconds / waited)} each for the cap of ${perSecond} ${kind} a second: --polite off, or ATHANOR_POLITE=off, lifts it`,
        );
    // After an error other reads may still be under way.
    threadsHang ||= !(await storage.close());
  }
}

/** Runs `work` with what writes to a data mount. */
export async function withFiles<Result>(work: (files: Files) => Promise<Result>): Promise<Result> {
  const files = new Files({ tell });
  try {
    return await work(files);
  } finally {
    threadsHang ||= !(await files.close());
  }
}

/** Says on ^C that nothing is lost, then ends as without it. */
export async function resumable<Result>(what: string, work: () => Promise<Result>): Promise<Result> {
  const stop = (signal: NodeJS.Signals): void => {
    tell(`\n${what}: stopped; the same line goes on where it was`);
    process.kill(process.pid, signal);
  };
  for (const signal of SIGNALS) process.once(signal, stop);
  try {
    return await work();
  } finally {
    for (const signal of SIGNALS) process.removeListener(signal, stop);
  }
}

const SIGNALS: readonly NodeJS.Signals[] = ["SIGINT", "SIGTERM"];

/** The progress line of a command, off with `--json`. */
export async function withProgress<Result>(
  label: string,
  json: boolean,
  work: (update: (done: number, total: number, what: string) => void) => Promise<Result>,
): Promise<Result> {
  const progress = new Progress(label, { quiet: json });
  try {
    return await work((done, total, what) => progress.update(done, total, what));
  } finally {
    progress.done();
  }
}

/** An empty word is a variable of a script that was not set: as a path it would mean the current folder. Throws ATH_USAGE. */
export function refuseEmptyWords(command: Command): void {
  const remedy = "is a variable of the script not set?";
  const at = command.args.indexOf("");
  if (at >= 0) {
    const names = command.registeredArguments;
    throw new Usage(`an empty ${names[Math.min(at, names.length - 1)]?.name() ?? "argument"} was given`, {}, remedy);
  }
  for (const option of command.options) {
    const name = option.attributeName();
    if (command.getOptionValue(name) === "" && command.getOptionValueSource(name) === "cli")
      throw new Usage(`${option.long ?? name} is empty`, {}, remedy);
  }
}

/** `--json` before or after the name of the command. */
export function wantsJson(command: Command): boolean {
  return command.optsWithGlobals<{ json?: boolean }>().json === true;
}

/** Writes a line to stderr. */
export function tell(line: string): void {
  process.stderr.write(`${visible(line)}\n`);
}

/** Writes a line to stdout and waits when the reader is slow, so that memory stays bounded. */
export async function printLine(line: string): Promise<void> {
  if (!process.stdout.write(`${visible(line)}\n`)) await once(process.stdout, "drain");
}

/** One line of chunks that no file holds. */
export function missingText({ chunks, path, what }: MissingChunks): string {
  const more = chunks > 1 ? `, and ${formatNumber(chunks - 1, "other chunk")}` : "";
  return `missing, read as fill values: ${path}: ${what}${more}`;
}

/** Columns side by side, the first to the left, the others to the right. */
export function tableText(rows: readonly (readonly string[])[], indent = "  "): string {
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map((row) => row[column]!.length)));
  const line = (row: readonly string[]): string =>
    row
      .map((cell, column) => (column === 0 ? cell.padEnd(widths[column]!) : cell.padStart(widths[column]!)))
      .join("  ");
  return rows.map((row) => `${indent}${line(row)}`.trimEnd()).join("\n");
}
