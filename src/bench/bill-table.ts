/** The report of `athanor bench bill` as text. */
import { formatNumber, formatSize } from "../base/units.ts";
import type { BillReport, BillRow } from "./bill.ts";
import { SHARD_BYTES } from "./bill-bars.ts";
import { EXPLAINED } from "./contenders.ts";
import { figure, table } from "./table.ts";

/** More than so much of the pages stayed: not cold. */
const COLD = 0.05;

export function billText(report: BillReport): string {
  const { data, from, quiet, rows, bars, notes } = report;
  const counted = from === "client counters";
  return [
    `data: ${data.source} on ${data.fileSystem}: ${formatNumber(data.shards, "shard")}, ${formatSize(data.bytes)}, ${formatNumber(data.samples, "sample")}`,
    `counted: ${COUNTED[from]}`,
    ...notes.map((note) => `note: ${note}`),
    ...(quiet === undefined ? [] : [quietLine(quiet)]),
    ...rows.map(coldLine),
    ...rows.flatMap(({ name, start, run, end }) => {
      const unsure = new Set([...start.unsure, ...run.unsure, ...end.unsure]);
      return unsure.size === 0
        ? []
        : [`WARNING ${name}: counters were cleared, or servers came or went: ${[...unsure].join(", ")}`];
    }),
    "",
    table([counted ? COUNTER_HEAD : CALL_HEAD, ...rows.map((row) => (counted ? counterCells(row) : callCells(row)))]),
    "",
    "the start, until nothing more is read ahead, and the end:",
    table([
      [
        "loader",
        counted ? "metadata ops" : "metadata calls on data",
        ...(counted ? [] : ["on index and folders"]),
        counted ? "read requests" : "read calls",
        "bytes",
        ...(counted ? [] : ["index reads", "index bytes"]),
        counted ? "metadata ops at the end" : "metadata calls at the end",
      ],
      ...rows.map(({ name, start, end }) => [
        name,
        count(start.metadata),
        ...(counted ? [] : [count(start.otherMetadata)]),
        count(start.reads),
        formatSize(start.bytes),
        ...(counted
          ? []
          : [count(start.indexReads), start.indexBytes === undefined ? "-" : formatSize(start.indexBytes)]),
        count(end.metadata),
      ]),
    ]),
    "",
    ...(bars.length > 0
      ? bars.map(
          ({ what, bar, value, met }) => `${met ? "met   " : "MISSED"} ${what}: ${figure(value)}, at most ${bar}`,
        )
      : [
          from === "/proc"
            ? "no bars: what /proc tells is of all that the processes read"
            : rows[0]!.start.reads + rows[0]!.run.reads === 0
              ? `no bars: not one read of ${rows[0]!.name} was counted`
              : `no bars: they hold for shards of ${formatSize(SHARD_BYTES)} and more`,
        ]),
    "",
    ...(["athanor", "memmap", "naive"] as const).map((name) => `${name}: ${EXPLAINED[name]}`),
    "a sample of the memory map is a row of its ids and a row of its mask: two places",
  ].join("\n");
}

const COUNTED = {
  "client counters":
    "requests over the network, by the counters of the Lustre client: of this node, with whatever else runs here",
  "system calls":
    "system calls on the data, by strace: calls, not requests. A client may make several requests of one, or none; a mapped file is read by page faults, whose bytes the disk tells",
  "/proc": "calls and bytes of the processes by /proc: all that they read, sockets, pipes and programs too",
};

const COUNTER_HEAD = [
  "loader",
  "samples",
  "metadata ops / 1000",
  "read requests / 1000",
  "mean request",
  "of one page",
  "wire B / sample",
  "wire / wanted",
];
const CALL_HEAD = [
  "loader",
  "samples",
  "metadata calls / 1000",
  "read calls / 1000",
  "mean call",
  "faults that read / 1000",
  "read B / sample",
  "read / wanted",
  "disk B / sample",
  "disk / wanted",
];

function counterCells({ name, samples, needed, run }: BillRow): string[] {
  return [
    name,
    count(samples),
    perThousand(run.metadata, samples),
    perThousand(run.reads, samples),
    run.reads === 0 ? "-" : formatSize(run.bytes / run.reads),
    run.onePage === undefined ? "-" : `${figure((100 * run.onePage) / Math.max(run.reads, 1))} %`,
    figure(run.bytes / samples),
    figure(run.bytes / needed),
  ];
}

function callCells({ name, samples, needed, run }: BillRow): string[] {
  return [
    name,
    count(samples),
    perThousand(run.metadata, samples),
    perThousand(run.reads, samples),
    run.reads === 0 ? "-" : formatSize(run.bytes / run.reads),
    perThousand(run.faults, samples),
    run.bytes === 0 ? "-" : figure(run.bytes / samples),
    run.bytes === 0 ? "-" : figure(run.bytes / needed),
    run.diskBytes === undefined ? "-" : figure(run.diskBytes / samples),
    run.diskBytes === undefined ? "-" : figure(run.diskBytes / needed),
  ];
}

function quietLine({ seconds, reads, bytes, metadata }: NonNullable<BillReport["quiet"]>): string {
  if (reads === 0 && metadata === 0) return `null case: nothing in ${seconds} s without a loader`;
  const what = `${formatNumber(reads, "read request")} (${formatSize(bytes)}) and ${formatNumber(metadata, "metadata operation")}`;
  return `WARNING others use this file system on this node: ${what} in ${seconds} s without a loader; they are in all numbers below`;
}

function coldLine({ name, kept }: BillRow): string {
  const most = Math.max(...kept);
  return most <= COLD
    ? `${name}: cold, the pages of its files were dropped`
    : `${name}: NOT cold, the kernel kept ${figure(100 * most)} % of the pages of its files`;
}

function perThousand(value: number | undefined, samples: number): string {
  return value === undefined ? "-" : figure((1000 * value) / samples);
}

function count(value: number | undefined): string {
  return value === undefined ? "-" : figure(value);
}
