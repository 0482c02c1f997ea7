/**
 * Bars of `athanor bench peers`: what Athanor is held to against its peers, computed from a report. `athanor window` binds: it
 * decodes all the time. Ratios are medians of ratios formed inside a pass; where a bar is a ratio of samples/s, the ratio
 * of CPU seconds stands beside it, because on a busy machine that one holds.
 */
import { coldSamplesPerSecond } from "./limits.ts";
import type { Section } from "./peer-parts.ts";
import type { PeersReport } from "./peers.ts";
import type { PeerPass } from "./peer-runs.ts";
import { against } from "./report.ts";
import { median, passRatios, ratios, type Spread } from "./statistics.ts";

export interface Bar {
  what: string;
  bar: number;
  /** `least`: the value must reach the bar; `most`: it must not pass it. */
  kind: "least" | "most";
  value: number;
  spread?: Spread;
  met: boolean;
  /** The same question by CPU seconds, all processes: the peer's a sample over ours. */
  cpuRatio?: number;
}

const OURS = "athanor window";

/** At batch size, against contender, at least so many times its samples/s. */
const SPEED: [batch: number, peer: string, factor: number][] = [
  [32, "memmap_batch", 0.8],
  [256, "memmap_batch", 1],
  [32, "tfdata", 4.5],
  [256, "tfdata", 3],
  ...[32, 256].flatMap((batch): [number, string, number][] => [
    [batch, "litdata", 4],
    ...["mosaic", "mosaic:2", "grain", "webdataset", "webdataset:2"].map((peer): [number, string, number] => [
      batch,
      peer,
      20,
    ]),
  ]),
];
const TRAINER_CPU: [batch: number, bar: number][] = [
  [32, 0.9],
  [256, 0.5],
];

/** The bars that the report has measurements for. */
export function bars(report: PeersReport): Bar[] {
  const first = report.options.ranks[0]!;
  const warm = (batch: number) =>
    report.sections.find((each) => each.part === "warm" && each.ranks === first && each.batch === batch);
  const found: (Bar | undefined)[] = [];
  for (const [batch, peer, factor] of SPEED) found.push(speed(warm(batch), batch, peer, factor));
  found.push(
    most(
      "CPU s/M of all processes, batch 256",
      passes(warm(256), OURS)?.map((pass) => pass.allCpuPerM),
      5,
    ),
  );
  for (const [batch, bar] of TRAINER_CPU) {
    const values = passes(warm(batch), OURS)?.map((pass) => pass.trainerCpuPerM);
    found.push(most(`CPU s/M of the trainer, batch ${batch}`, values, bar));
  }
  const opened = report.sections.flatMap((each) =>
    each.part === "warm" && each.ranks === first ? (passes(each, OURS) ?? []) : [],
  );
  const running = opened.map((pass) => pass.firstRunningSeconds).filter((value) => value !== undefined);
  found.push(most("first batch, seconds, agent runs", running, 0.3));
  found.push(
    most(
      "first batch, seconds, agent started",
      opened.map((pass) => pass.firstSeconds),
      0.8,
    ),
  );
  found.push(...manyRanks(report), coldBar(report), ...startBars(report));
  return found.filter((bar) => bar !== undefined);
}

function speed(section: Section | undefined, batch: number, peer: string, factor: number): Bar | undefined {
  const [ours, theirs] = [passes(section, OURS), passes(section, peer)];
  if (ours === undefined || theirs === undefined) return undefined;
  const rate = against(ours, theirs);
  const cpu = passRatios(theirs, ours, (pass) => pass.allCpuPerM);
  if (rate === undefined) return undefined;
  const bar = least(`samples/s against ${peer}, batch ${batch}`, rate, factor);
  return { ...bar, ...(cpu === undefined ? {} : { cpuRatio: cpu.median }) };
}

function least(what: string, spread: Spread, bar: number): Bar {
  return { what, bar, kind: "least", value: spread.median, spread, met: spread.median >= bar };
}

function most(what: string, values: readonly number[] | undefined, bar: number): Bar | undefined {
  if (values === undefined || values.length === 0) return undefined;
  const value = median(values);
  return { what, bar, kind: "most", value, met: value <= bar };
}

/** Many ranks against few, at one rate of all of them: a contender's growth of CPU and of memory. */
export interface Growth {
  name: string;
  ranks: [number, number];
  /** Ratio of the agent's CPU a sample; undefined where there is no agent. */
  agentCpu?: number;
  allCpu: number;
  /** Ratio of memory over a process that loads nothing. */
  memory?: number;
  /** Samples/s of all ranks, as reached with few and with many. */
  rate: [number, number];
}

export function growth(report: PeersReport): Growth[] {
  const [few, many] = report.sections.filter((each) => each.part === "rate");
  if (few === undefined || many === undefined) return [];
  return few.results.flatMap(({ name, passes: a }) => {
    const b = passes(many, name);
    if (b === undefined) return [];
    const ratio = (value: (pass: PeerPass) => number | undefined) =>
      passRatios(b, a, (pass) => value(pass) ?? 0)?.median;
    const rate = (list: PeerPass[]) => median(list.map((pass) => pass.samplesPerSecond));
    const agentCpu = ratio((pass) => pass.agentCpuPerM);
    const memory = ratio((pass) => pass.over?.bytes);
    return [
      {
        name,
        ranks: [few.ranks, many.ranks],
        ...(agentCpu === undefined ? {} : { agentCpu }),
        allCpu: ratio((pass) => pass.allCpuPerM) ?? Number.NaN,
        ...(memory === undefined ? {} : { memory }),
        rate: [rate(a), rate(b)],
      },
    ];
  });
}

function manyRanks(report: PeersReport): (Bar | undefined)[] {
  const ours = growth(report).find(({ name }) => name === OURS);
  if (ours === undefined) return [];
  const [few, many] = ours.ranks;
  const title = (what: string) => `${many} ranks against ${few} at one rate: ${what}`;
  const bar = (what: string, value: number | undefined, limit: number) =>
    value === undefined ? undefined : most(title(what), [value], limit);
  return [bar("agent CPU a sample", ours.agentCpu, 1.2), bar("memory over torch", ours.memory, 1.3)];
}

function startBars({ start }: PeersReport): Bar[] {
  if (start === undefined) return [];
  const { indexPerCpu, load } = start;
  const within = (what: string, spread: Spread, bar: number): Bar => {
    return { what, bar, kind: "most", value: spread.median, spread, met: spread.median <= bar };
  };
  return [
    least("index, GB a second of CPU", indexPerCpu, 0.6),
    ...(load.blocks < 1e6 ? [] : [within("load of an index of a million blocks, seconds", load.wall, 0.3)]),
    ...start.resume.map(({ at, running }) =>
      within(`resume at ${at * 100} % of an epoch, seconds to the first batch, agent runs`, running, 0.5),
    ),
  ];
}

/** Share of the smaller of the machine's cold sequential reading and our own warm rate over the same span. */
function coldBar(report: PeersReport): Bar | undefined {
  const section = report.sections.find((each) => each.part === "cold");
  const [cold, warm] = [passes(section, OURS), passes(section, `${OURS}, warm`)];
  const reading = coldSamplesPerSecond(report.limits, report.data.bytes / report.data.samples);
  if (cold === undefined || warm === undefined || reading === undefined) return undefined;
  const own = new Map(warm.map((pass) => [pass.pass, Math.min(reading, pass.samplesPerSecond)]));
  const found = ratios(new Map(cold.map((pass) => [pass.pass, pass.samplesPerSecond])), own);
  if (found === undefined) return undefined;
  return least("cold, against the smaller of cold sequential reading and the own warm rate", found, 0.9);
}

function passes(section: Section | undefined, name: string): PeerPass[] | undefined {
  return section?.results.find((result) => result.name === name)?.passes;
}
