/**
 * Table: rows of text in columns, the first one left-aligned, the others right-aligned; and the report as text.
 *
 * @example
 * table([["loader", "samples/s"], ["memmap", "69 344"]]);
 */
import { formatCount, formatDuration, formatSize } from "../base/units.ts";
import type { RankComparison } from "./compare-ranks.ts";
import { EXPLAINED } from "./contenders.ts";
import { machineLines } from "./machine.ts";
import type { Report, Row, Table } from "./report.ts";
import type { Spread } from "./statistics.ts";

export function table(rows: readonly (readonly string[])[]): string {
  const columns = Math.max(0, ...rows.map((row) => row.length));
  const width = Array.from({ length: columns }, (_, i) => Math.max(...rows.map((row) => row[i]?.length ?? 0)));
  return rows
    .map((row) =>
      row
        .map((cell, i) => (i === 0 ? cell.padEnd(width[i]!) : cell.padStart(width[i]!)))
        .join("  ")
        .trimEnd(),
    )
    .join("\n");
}

/** The same as Markdown; `|` in a cell is kept from ending it. */
export function markdownTable([head = [], ...rows]: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]) => `| ${cells.map((cell) => cell.replaceAll("|", "\\|")).join(" | ")} |`;
  return [line(head), `|${head.map((_, i) => (i === 0 ? "---|" : "---:|")).join("")}`, ...rows.map(line)].join("\n");
}

/** As many digits as mean something: 2 or 3, and none behind the point from 100 on. */
export function figure(value: number): string {
  if (!Number.isFinite(value)) return "-";
  const size = Math.abs(value);
  if (size > 0 && size < 0.1) return value.toPrecision(2);
  return size >= 1000 ? formatCount(Math.round(value)) : value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2);
}

export function range(spread: Spread | undefined, digits = figure): string {
  return spread === undefined ? "-" : `${digits(spread.median)} (${digits(spread.min)}..${digits(spread.max)})`;
}

const HEAD = [
  "loader",
  "read MB/s",
  "disk MB/s",
  "samples/s (min..max)",
  "x memmap (min..max)",
  "x naive",
  "AU %",
  "epoch min",
  "first batch s",
  "same, agent runs",
  "CPU s/M trainer",
  "CPU s/M all",
  "agent PSS",
];

export function tableCells(rows: readonly Row[]): string[][] {
  return [HEAD, ...rows.map(cells)];
}

function cells(row: Row): string[] {
  return [
    row.name + (row.scaledFrom === undefined ? "" : " (scaled)"),
    figure(row.readMBps),
    figure(row.diskMBps),
    range(row.samplesPerSecond),
    range(row.toMemmap),
    row.toNaive === undefined ? "-" : figure(row.toNaive.median),
    row.au === undefined ? "-" : row.au.median.toFixed(1),
    `${figure(row.epochMinutes)} ${row.epochMeasured ? "m" : "x"}`,
    figure(row.firstSeconds.median),
    row.firstRunningSeconds === undefined ? "-" : figure(row.firstRunningSeconds.median),
    figure(row.trainerCpuPerM),
    figure(row.allCpuPerM),
    row.agentPssBytes === undefined ? "-" : formatSize(row.agentPssBytes),
  ];
}

export function tableTitle(each: Table, ranks: number): string {
  const { batch, stepMs, seconds } = each.setting;
  const where =
    each.found === undefined
      ? `step ${stepMs === 0 ? "0" : stepMs.toFixed(2)} ms`
      : `step ${stepMs.toFixed(2)} ms, where ${each.found.contender} reached AU ${each.found.au.toFixed(1)} % (asked: ${each.found.wanted})`;
  return `batch ${batch} x ${ranks} rank${ranks === 1 ? "" : "s"}, ${where}, ${seconds} s a pass`;
}

export function storyLines(each: Table): string[] {
  const { bound, ratio, stepMs, naiveEpochMinutes, athanorEpochMinutes } = each.story;
  const lines = [`A loader at AU 65 % can be beaten by at most 1 / 0.65 = ${bound.toFixed(2)} x.`];
  if (stepMs !== undefined && naiveEpochMinutes !== undefined && athanorEpochMinutes !== undefined) {
    lines.push(
      `Naive takes ${ratio.toFixed(2)} x (120 : 35) of Athanor's epoch at a step of ${figure(stepMs)} ms: ` +
        `${figure(naiveEpochMinutes)} min against ${figure(athanorEpochMinutes)} min (computed from the rates without a step).`,
    );
  }
  return lines;
}

export function reportText(report: Report): string {
  const { data } = report;
  const shown = new Set(report.tables.flatMap((each) => each.rows.map((row) => row.name.split(" ")[0]!)));
  const lines = [
    `data: ${data.source}: ${formatCount(data.samples)} samples x ${data.width}, ${formatSize(data.bytes)} in ${data.shards} shards`,
    `file system: ${data.fileSystem.type} at ${data.fileSystem.mount} (${data.fileSystem.device})`,
    `cache: ${report.cache}`,
    ...machineLines(report.machine),
    `client: ${report.client}, ${report.passes} interleaved passes, medians; ratios are formed inside a pass`,
    ...report.notes,
  ];
  for (const each of report.tables) {
    lines.push("", tableTitle(each, report.ranks), table(tableCells(each.rows)), ...storyLines(each));
    const slowest = each.rows.reduce((a, b) => (a.longestStallSeconds >= b.longestStallSeconds ? a : b));
    lines.push(`Longest wait for one batch: ${formatDuration(slowest.longestStallSeconds)} (${slowest.name}).`);
  }
  lines.push("", "epoch min: m measured over at least one whole epoch a pass, x extrapolated from the rate.");
  for (const [name, text] of Object.entries(EXPLAINED)) if (shown.has(name)) lines.push(`${name}: ${text}`);
  return lines.join("\n");
}

export function comparisonText(c: RankComparison): string {
  const rows = c.worlds.map(({ ranks, row }) => [
    String(ranks),
    range(row.samplesPerSecond),
    row.au === undefined ? "-" : row.au.median.toFixed(1),
    row.agentPssBytes === undefined ? "-" : formatSize(row.agentPssBytes),
    row.agentCpuPerM === undefined ? "-" : figure(row.agentCpuPerM),
    figure(row.trainerCpuPerM),
    figure(row.allCpuPerM),
  ]);
  const [few, many] = [c.worlds[0]!.ranks, c.worlds.at(-1)!.ranks];
  return [
    `athanor ${c.mode}, ${c.client} clients, batch ${c.batch} a rank, step ${c.stepMs} ms; cache ${c.cache}`,
    ...machineLines(c.machine),
    table([
      ["ranks", "samples/s (min..max)", "AU %", "agent PSS", "CPU s/M agent", "CPU s/M ranks", "CPU s/M all"],
      ...rows,
    ]),
    `${many} ranks against ${few}: agent memory ${range(c.agentMemory)} x, agent CPU a sample ${range(c.agentCpu)} x, all CPU a sample ${range(c.allCpu)} x`,
  ].join("\n");
}
