/** The report of `athanor bench peers` as text for a terminal, and as Markdown for docs/benchmarks.md. */
import { formatCount } from "../base/units.ts";
import { coldSamplesPerSecond, limitCells } from "./limits.ts";
import { machineLines } from "./machine.ts";
import { type Bar, bars, growth } from "./peer-bars.ts";
import type { Section } from "./peer-parts.ts";
import { isTrial, type PeersReport } from "./peers.ts";
import type { PeerPass } from "./peer-runs.ts";
import type { StartUp } from "./peer-start.ts";
import { against } from "./report.ts";
import { median, spread } from "./statistics.ts";
import { figure, markdownTable, range, table } from "./table.ts";

const FLOOR = "memmap_batch";
const MIB = 2 ** 20;

/** A heading, the rows under it, and a sentence below them. */
interface Part {
  title: string;
  cells: string[][];
  foot?: string;
}

export function peersText(report: PeersReport): string {
  return [
    ...headLines(report),
    ...parts(report).flatMap(({ title, cells, foot }) => [
      "",
      title,
      table(cells),
      ...(foot === undefined ? [] : [foot]),
    ]),
    "",
    ...footLines(report),
  ].join("\n");
}

/** Between the markers of docs/benchmarks.md. `command`: what was typed. */
export function peersMarkdown(report: PeersReport, command: string): string {
  const list = (lines: readonly string[]) => lines.map((line) => `* ${line}`).join("\n");
  return [
    `\`${command}\`, ${report.minutes.toFixed(0)} minutes. ${headLines(report).join(". ")}.`,
    ...parts(report).map(({ title, cells, foot }) =>
      [`### ${title}`, markdownTable(cells), ...(foot === undefined ? [] : [foot])].join("\n\n"),
    ),
    list(footLines(report)),
  ].join("\n\n");
}

function headLines({ data, machine, options }: PeersReport): string[] {
  return [
    `${formatCount(data.samples)} samples x ${options.width}; ${options.passes} interleaved passes of ${options.seconds} s on ` +
      `${options.ranks[0]} rank(s), ${options.otherPasses} of everything else; medians, ratios formed inside a pass`,
    `file system ${data.fileSystem.type}`,
    ...machineLines(machine),
  ];
}

function parts(report: PeersReport): Part[] {
  const found: Part[] = [];
  const held = isTrial(report.options) ? [] : bars(report);
  if (held.length > 0) found.push({ title: "Bars", cells: barCells(held) });
  for (const section of report.sections.filter((each) => each.part === "warm")) found.push(warmPart(section));
  for (const section of report.sections.filter((each) => each.part === "cold")) found.push(coldPart(section, report));
  const grown = growth(report);
  if (grown.length > 0) {
    const [few, many] = grown[0]!.ranks;
    found.push({
      title: `${many} ranks against ${few} at one rate of all ranks together`,
      cells: [
        ["loader", "samples/s", "CPU of all", "CPU of the agent", "memory over torch"],
        ...grown.map((each) => [
          each.name,
          each.rate.map(figure).join(" and "),
          `x ${figure(each.allCpu)}`,
          each.agentCpu === undefined ? "-" : `x ${figure(each.agentCpu)}`,
          each.memory === undefined ? "-" : `x ${figure(each.memory)}`,
        ]),
      ],
      foot: "Rate: as asked, or half of what the loader can give. CPU: a sample.",
    });
  }
  if (report.start !== undefined) found.push(startPart(report.start));
  if (report.opens.length > 0) found.push(opensPart(report));
  if (report.limits.length > 0) found.push({ title: "Limits of the machine", cells: limitCells(report.limits) });
  return found;
}

function barCells(held: readonly Bar[]): string[][] {
  return [
    ["Athanor (window)", "value (min..max)", "bar", "", "by CPU"],
    ...held.map((bar) => [
      bar.what,
      bar.spread === undefined ? figure(bar.value) : range(bar.spread),
      `${bar.kind === "least" ? "≥" : "≤"} ${bar.bar}`,
      bar.met ? "met" : `missed: ${(bar.value / bar.bar).toPrecision(3)} of it`,
      bar.cpuRatio === undefined ? "-" : `x ${figure(bar.cpuRatio)}`,
    ]),
  ];
}

function warmPart(section: Section): Part {
  const { ranks, batch, results } = section;
  const floor = results.find(({ name }) => name === FLOOR)?.passes;
  return {
    title: `Warm, ${ranks} rank${ranks === 1 ? "" : "s"}, batch ${batch}`,
    cells: [
      [
        "loader",
        "samples/s (min..max)",
        `x ${FLOOR} (min..max)`,
        "CPU s/M all",
        "CPU s/M trainer",
        "MiB over torch (mapped)",
        "first batch s",
      ],
      ...results.map(({ name, passes }) => [
        name,
        range(spread(passes.map((pass) => pass.samplesPerSecond))),
        range(against(passes, floor)),
        figure(median(passes.map((pass) => pass.allCpuPerM))),
        figure(median(passes.map((pass) => pass.trainerCpuPerM))),
        memoryCell(passes),
        firstCell(passes),
      ]),
    ],
  };
}

function coldPart(section: Section, report: PeersReport): Part {
  const reading = coldSamplesPerSecond(report.limits, report.data.bytes / report.data.samples);
  return {
    title: `Cold, ${section.ranks} rank, batch ${section.batch}`,
    cells: [
      ["loader", "samples/s (min..max)", "disk MB/s", "still cached", "first batch s"],
      ...section.results.map(({ name, passes }) => [
        name,
        range(spread(passes.map((pass) => pass.samplesPerSecond))),
        figure(median(passes.map((pass) => pass.diskMBps))),
        passes[0]?.resident === undefined
          ? "warm"
          : `${(100 * Math.max(...passes.map((pass) => pass.resident ?? 0))).toFixed(1)} %`,
        firstCell(passes),
      ]),
    ],
    foot:
      "From the loader's making (Athanor: the agent's start) to nine tenths of an epoch or the end of the span; the files' pages " +
      "were dropped before (mincore says how much stayed)." +
      (reading === undefined ? "" : ` Reading the TFRecord files cold and in sequence: ${figure(reading)} samples/s.`),
  };
}

function startPart({ indexPerCpu, indexPerSecond, load, resume }: StartUp): Part {
  return {
    title: "Start-up of athanor window",
    cells: [
      ["", "with the agent's start (min..max)", "agent runs (min..max)"],
      ...resume.map(({ at, first, running }) => [
        `resume at ${at * 100} %, s to the first batch`,
        range(first),
        range(running),
      ]),
    ],
    foot:
      `A fresh index of eight hard links of each file, in the page cache, CRCs and fingerprint included: ${range(indexPerCpu)} GB a second of CPU, ` +
      `${range(indexPerSecond)} GB a second. Load of an index of ${load.blocks} blocks, from its path to the order: ` +
      `${range(load.wall)} s, ${range(load.cpu)} s of CPU.`,
  };
}

function opensPart({ opens }: PeersReport): Part {
  const thousand = (calls: number, samples: number) => figure((calls / samples) * 1000);
  return {
    title: "Opens and stats of the data",
    cells: [
      ["loader", "opens to the first batch", "stats", "opens a thousand samples behind it", "stats"],
      ...opens.map(({ name, start, run, samples }) => [
        name,
        String(start.opens),
        String(start.stats),
        thousand(run.opens, samples),
        thousand(run.stats, samples),
      ]),
    ],
    foot: "strace on one rank and all that it starts; calls that fail count, too.",
  };
}

function footLines({ contenders, left, notes, options }: PeersReport): string[] {
  const versions = (of: Record<string, string>) =>
    Object.entries(of)
      .map(([name, version]) => ` (${name} ${version})`)
      .join("");
  return [
    ...contenders.map(
      ({ name, about, versions: of, bytes }) => `${name}: ${about}${versions(of)}; ${figure(bytes / 1e6)} MB`,
    ),
    ...notes,
    "all loaders: no worker processes unless the name says so (`:2`); with them most are slower here",
    `tokens/s: ${options.width} times samples/s`,
    "CPU s/M: user + system seconds a million samples, of the rank alone, and with its workers and the agent",
    "MiB over torch: of all processes, over ranks that load nothing; in brackets pages of files, which the kernel can take back",
    "first batch: imports done; Athanor's with the agent's start, in brackets on an agent that runs",
    ...left.map(({ name, where, why }) => `not measured: ${name} (${where}): ${why}`),
  ];
}

function memoryCell(passes: readonly PeerPass[]): string {
  const over = passes.map((pass) => pass.over).filter((value) => value !== undefined);
  if (over.length === 0) return "-";
  const mib = (values: number[]) => formatCount(Math.round(median(values) / MIB));
  return `${mib(over.map(({ bytes }) => bytes))} (${mib(over.map(({ mapped }) => mapped))})`;
}

function firstCell(passes: readonly PeerPass[]): string {
  const first = figure(median(passes.map((pass) => pass.firstSeconds)));
  const running = passes.map((pass) => pass.firstRunningSeconds).filter((value) => value !== undefined);
  return running.length === 0 ? first : `${first} (${figure(median(running))})`;
}
