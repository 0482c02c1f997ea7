/** The report of `bench formats` as text. */
import { formatCount } from "../base/units.ts";
import type { FormatsReport } from "./formats.ts";
import { machineLines } from "./machine.ts";
import { figure, range, table } from "./table.ts";

const HEAD = [
  "format",
  "MB",
  "index s",
  "samples/s (min..max)",
  "CPU s/M",
  "cold MB/s",
  "own reader",
  "its samples/s (min..max)",
  "its CPU s/M",
  "its cold MB/s",
  "ratio (min..max)",
];

export function formatsText({ machine, options, rows, left }: FormatsReport): string {
  const { samples, width, batch, passes, seconds } = options;
  const cells = rows.map(({ format, bytes, indexSeconds, samplesPerSecond, cpuPerM, coldMBps, peer }) => [
    format,
    figure(bytes / 1e6),
    figure(indexSeconds),
    range(samplesPerSecond),
    figure(cpuPerM.median),
    figure(coldMBps.median),
    peer?.name ?? "-",
    range(peer?.samplesPerSecond),
    peer === undefined ? "-" : figure(peer.cpuPerM.median),
    peer === undefined ? "-" : figure(peer.coldMBps.median),
    range(peer?.ratio),
  ]);
  return [
    `${formatCount(samples)} samples x ${width}, batch ${batch}, 1 rank, ${passes} interleaved passes of ${seconds} s, medians; ratios are formed inside a pass`,
    ...machineLines(machine),
    table([HEAD, ...cells]),
    ...(left.length === 0 ? [] : [`left out, since what writes them is not installed: ${left.join(", ")}`]),
    "own reader: files in order, one row group or chunk at a time, shuffled in memory, whole batches (python/src/athanor/bench/formats/peers.py).",
    "CPU s/M: of all processes, a million samples. cold: the files' pages dropped before, start of reader and agent included.",
    "megatron and npy hold the ids only; the others a mask too.",
  ].join("\n");
}
