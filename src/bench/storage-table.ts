/** The report of `bench storage` as text. */
import { formatSize } from "../base/units.ts";
import { machineLines } from "./machine.ts";
import type { Row, StorageReport } from "./storage-report.ts";
import { figure, range, table } from "./table.ts";

const MIB = 1 << 20;
const mib = (bytes: number): string => figure(bytes / MIB);
const most = (bytes: number | undefined): string => (bytes === undefined ? "not known" : `${mib(bytes)} MiB/s`);
const percent = (share: number | undefined): string => (share === undefined ? "-" : (100 * share).toFixed(0));
const HEAD = ["pattern", "processes", "MiB/s (min..max)", "% network", "% targets", "% best", "cache"];
const SMALL = ["small files of 64KiB", "processes", "files/s (min..max)", "ms p50", "p90", "p99", "max", "cache"];

const WAYS = {
  dropped: "cold: fsync, posix_fadvise(DONTNEED) on each file before each read, and mincore says how much stayed",
  direct: "direct: O_DIRECT past the page cache of this node, which could not be dropped",
  cached:
    "NOT cold: pages cannot be dropped here (a file system in memory, or no Python) nor passed by with O_DIRECT: reads are of memory",
};

export function storageText(report: StorageReport): string {
  const { mount, network, rows, targets, limits, notes } = report;
  const files = rows.filter((row) => row.files !== undefined);
  const lines = [
    `raw storage: ${report.path}, ${mount.type} at ${mount.point} (${mount.source})`,
    `${formatSize(report.bytes)} ${report.written ? "written and removed" : "of files that were there, nothing written"}; ${report.passes} interleaved passes, medians`,
    machineLines(report.machine)[0]!,
    `network of this node to the servers: ${network.text}`,
    `the most that came together: read ${most(report.best.read)}, write ${most(report.best.write)}`,
    `cache: ${WAYS[report.way]}`,
    "What servers, controllers and the host of a virtual disk keep in memory is not seen from here.",
    "",
    table([HEAD, ...rows.map(cells)]),
  ];
  if (files.length > 0) lines.push("", table([SMALL, ...files.map(fileCells)]));
  if (targets.length > 0) {
    const head = ["target, one process", "read MiB/s (min..max)", "write MiB/s (min..max)", "others read x", "cache"];
    const body = targets.map(({ name, read, write, slower, cold }) => [
      name,
      range(read, mib),
      range(write, mib),
      slower === undefined ? "-" : figure(slower),
      cold ? "cold" : "not cold",
    ]);
    lines.push("", table([head, ...body]));
  }
  lines.push("", ...limits.map(({ about, text }) => `${about}: ${text}`), ...notes.map((note) => `note: ${note}`));
  return lines.join("\n");
}

function cells(row: Row): string[] {
  return [
    `${row.pattern} ${row.op}`,
    String(row.processes),
    range(row.rate, mib),
    percent(row.ofNetwork),
    percent(row.ofTargets),
    percent(row.ofBest),
    cacheText(row),
  ];
}

function fileCells(row: Row): string[] {
  const { perSecond, p50, p90, p99, max } = row.files!;
  return [row.op, String(row.processes), range(perSecond), ...[p50, p90, p99, max].map(figure), cacheText(row)];
}

function cacheText({ op, pattern, processes, cold, kept }: Row): string {
  if (op === "write") return pattern === "small-files" ? "not synced" : "synced";
  const stayed = kept === undefined ? "" : ` (${(100 * kept).toFixed(1)} % kept)`;
  if (!cold) return `not cold${stayed}`;
  if (kept === undefined) return "direct";
  return pattern === "shared" && processes > 1 ? "cold at the start" : `cold${stayed}`;
}
