/** The report of `bench formats` as text, and as Markdown for docs/benchmarks.md. */
import { formatCount } from "../base/units.ts";
import type { FormatsReport } from "./formats.ts";
import { machineLines } from "./machine.ts";
import { figure, markdownTable, range, table } from "./table.ts";

const HEAD = [
  "format",
  "MB",
  "files",
  "index s",
  "samples/s (min..max)",
  "CPU s/M, trainer",
  "CPU s/M, all",
  "cold MB/s",
  "MB a read",
  "own reader",
  "its samples/s (min..max)",
  "its CPU s/M",
  "its cold MB/s",
  "ratio (min..max)",
  "held: samples/s",
  "held: CPU s/M",
  "held: ratio",
];

const EXPLAINED = [
  "own reader: files in order, one row group or chunk at a time, shuffled in memory, whole batches (python/src/athanor/bench/formats/peers.py).",
  "CPU s/M: seconds a million samples, of the training process and of all. cold: the files' pages dropped before, start of reader and agent included.",
  "held: decoded once and kept, which the loader does by itself with a set that fits its shuffle memory; the pass that fills it counts.",
  "MB a read: mean size of the agent's reads. megatron and npy hold the ids only; the others a mask too.",
];

export function formatsText(report: FormatsReport): string {
  return [...heading(report), table([HEAD, ...cells(report)]), ...leftOut(report), ...EXPLAINED].join("\n");
}

export function formatsMarkdown(report: FormatsReport): string {
  return [...heading(report), "", markdownTable([HEAD, ...cells(report)]), "", ...leftOut(report), ...EXPLAINED].join(
    "\n",
  );
}

function heading({ machine, options }: FormatsReport): string[] {
  const { samples, width, batch, passes, seconds } = options;
  return [
    `${formatCount(samples)} samples x ${width}, batch ${batch}, 1 rank, ${passes} interleaved passes of ${seconds} s, medians; ratios are formed inside a pass`,
    ...machineLines(machine),
  ];
}

function leftOut({ left }: FormatsReport): string[] {
  return left.length === 0 ? [] : [`left out, since what writes them is not installed: ${left.join(", ")}`];
}

function cells({ rows }: FormatsReport): string[][] {
  return rows.map((row) => [
    row.format,
    figure(row.bytes / 1e6),
    formatCount(row.files),
    figure(row.indexSeconds),
    range(row.samplesPerSecond),
    figure(row.trainerCpuPerM.median),
    figure(row.cpuPerM.median),
    figure(row.coldMBps.median),
    row.readBytes === undefined ? "-" : figure(row.readBytes / 1e6),
    row.peer?.name ?? "-",
    range(row.peer?.samplesPerSecond),
    row.peer === undefined ? "-" : figure(row.peer.cpuPerM.median),
    row.peer === undefined ? "-" : figure(row.peer.coldMBps.median),
    range(row.peer?.ratio),
    figure(row.held.samplesPerSecond.median),
    figure(row.held.cpuPerM.median),
    row.peer === undefined ? "-" : figure(row.peer.heldRatio.median),
  ]);
}
