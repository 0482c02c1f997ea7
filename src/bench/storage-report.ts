/** The report of `bench storage`: samples of all passes → medians, percentiles, shares of the limits. Pure. */
import type { MachineFacts } from "./machine.ts";
import type { Network } from "./storage-network.ts";
import type { ColdWay, Sample } from "./storage-passes.ts";
import type { Measure, Pattern } from "./storage-plan.ts";
import { spread } from "./statistics.ts";
import type { Spread } from "./statistics.ts";

export interface Row {
  pattern: Pattern;
  op: "read" | "write";
  processes: number;
  /** Bytes a second, of all processes together. */
  rate: Spread;
  /** Files a second, and milliseconds of one from before open to behind close; of small files. */
  files: { perSecond: Spread; p50: number; p90: number; p99: number; max: number } | undefined;
  /** In every pass. Of writes: false. */
  cold: boolean;
  /** The largest share of the files that was cached before a read; undefined: not asked. */
  kept: number | undefined;
  /** Medians: processor time over that of all cores; time in fsync; bytes from block devices over bytes read; seconds of a pass. */
  cpu: number;
  sync: number;
  disk: number;
  seconds: number;
  /**
   * Shares of what the network of this node gives, and the targets singly; undefined for what memory of this node may have served or taken:
   * cached reads, further readers of one file, writes that wait for no fsync.
   */
  ofNetwork: number | undefined;
  ofTargets: number | undefined;
  /** Of `Best`. */
  ofBest: number | undefined;
}

/** One process on the files of one target. */
export interface TargetRow {
  name: string;
  read: Spread | undefined;
  /** Undefined: nothing was written. */
  write: Spread | undefined;
  cold: boolean;
  /** How many times faster the median of the others reads; undefined where there are fewer than two others. */
  slower: number | undefined;
}

export interface StorageReport {
  machine: MachineFacts;
  path: string;
  mount: { kind: string; type: string; point: string; source: string };
  /** False: files that were there were read, and nothing was written. */
  written: boolean;
  bytes: number;
  passes: number;
  levels: number[];
  way: ColdWay;
  network: Network;
  /** Of the file system; 0: not known. `measured`: those with a row. */
  targetsInAll: number;
  rows: Row[];
  targets: TargetRow[];
  /** The most that this node's processes got together, bytes a second; undefined where no read was cold. */
  best: { read: number | undefined; write: number | undefined };
  /** Targets of one file of the kind: of the checkpoint, and of the one that all read; undefined: not known. */
  widths: { checkpoints: number | undefined; shared: number | undefined };
  /** What limits each pattern, as far as it was seen. */
  limits: { about: Pattern | "targets"; text: string }[];
  notes: string[];
}

export interface Taken {
  measure: Measure;
  samples: Sample[];
}

export interface Limits {
  network: number | undefined;
  /** The targets measured are all that there are. */
  all: boolean;
}

export function targetRowsOf(taken: readonly Taken[]): TargetRow[] {
  const names = [...new Set(taken.flatMap(({ measure }) => measure.target ?? []))];
  const of = (name: string, op: Measure["op"]): Taken | undefined =>
    taken.find(({ measure }) => measure.target === name && measure.op === op);
  const rates = (found: Taken | undefined): Spread | undefined => found && spread(found.samples.map(rateOf));
  const reads = new Map(names.map((name) => [name, rates(of(name, "read"))]));
  return names.map((name) => {
    const read = reads.get(name);
    const others = names.flatMap((other) => (other === name ? [] : (reads.get(other)?.median ?? [])));
    const slower = read === undefined || others.length < 2 ? undefined : spread(others).median / read.median;
    const cold = of(name, "read")?.samples.every((sample) => sample.cold) ?? false;
    return { name, read, write: rates(of(name, "write")), cold, slower };
  });
}

export function rowsOf(taken: readonly Taken[], targets: readonly TargetRow[], limits: Limits): Row[] {
  const whole = taken.filter(({ measure }) => measure.target === undefined);
  const sumOf = (op: Row["op"]): number => targets.reduce((sum, each) => sum + (each[op]?.median ?? 0), 0);
  const best = bestOf(taken);
  return whole.map(({ measure, samples }): Row => {
    const { pattern, op, processes } = measure;
    const rate = spread(samples.map(rateOf));
    const cold = samples.every((sample) => sample.cold);
    const through = goesThrough({ measure, samples });
    const single = sumOf(op);
    const held = samples.flatMap(({ kept }) => kept ?? []);
    return {
      pattern,
      op,
      processes,
      rate,
      files: pattern === "small-files" ? latencies(samples) : undefined,
      cold,
      kept: held.length === 0 ? undefined : Math.max(...held),
      cpu: spread(samples.map(({ cpu }) => cpu)).median,
      sync: spread(samples.map(({ sync }) => sync)).median,
      disk: spread(samples.map(({ disk }) => disk)).median,
      seconds: spread(samples.map(({ seconds }) => seconds)).median,
      ofNetwork: through && limits.network !== undefined ? rate.median / limits.network : undefined,
      // Shards lie on the targets that were measured, other files perhaps on all.
      ofTargets: through && single > 0 && (limits.all || pattern === "shards") ? rate.median / single : undefined,
      ofBest: through ? rate.median / best[op]! : undefined,
    };
  });
}

/** The storage itself was read or written. */
function goesThrough({ measure: { pattern, op, processes }, samples }: Taken): boolean {
  if (op === "write") return pattern !== "small-files";
  return samples.every(({ cold }) => cold) && (pattern !== "shared" || processes === 1);
}

export function bestOf(taken: readonly Taken[]): StorageReport["best"] {
  const most = (op: Row["op"]): number | undefined => {
    const found = taken.filter((each) => each.measure.op === op && goesThrough(each));
    return found.length === 0 ? undefined : Math.max(...found.map(({ samples }) => spread(samples.map(rateOf)).median));
  };
  return { read: most("read"), write: most("write") };
}

const rateOf = ({ bytes, seconds }: Sample): number => bytes / seconds;

/** Over the files of all passes: each was read or made once a pass. */
function latencies(samples: readonly Sample[]): Row["files"] {
  const times = samples.flatMap((sample) => sample.times).sort((a, b) => a - b);
  const at = (share: number): number => times[Math.min(times.length - 1, Math.ceil(share * times.length) - 1)]!;
  const perSecond = spread(samples.map((sample) => sample.times.length / sample.seconds));
  return { perSecond, p50: at(0.5), p90: at(0.9), p99: at(0.99), max: at(1) };
}
