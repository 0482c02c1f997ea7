/**
 * `athanor bench limits`: what the machine can do at all, beside which a loader's rate is read: memory copies, cached and cold
 * reads of the files, tmpfs. Measured by python/src/athanor/bench/limits.py, in one process, all limits in turn.
 */
import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { pythonModule } from "../base/python.ts";
import { BenchRank } from "./errors.ts";
import { machineFacts, type MachineFacts, machineLines } from "./machine.ts";
import type { Python } from "./python.ts";
import { type Spread, spread } from "./statistics.ts";
import { range, table } from "./table.ts";

const run = promisify(execFile);
const DEADLINE_MS = 900_000;

export interface Limit {
  name: string;
  /** 10^9 bytes a second by the clock; undefined where the file system refuses. */
  wall: Spread | undefined;
  /** The same by CPU time of the process, which neighbours move less. */
  cpu: Spread | undefined;
  /** Cold reads: the largest share of the files that the page cache still held behind the drop. */
  cold: number | undefined;
  /** Why it was not measured. */
  unsupported: string | undefined;
}

export interface LimitsOptions {
  /** Files or folders; reads go over all of them. */
  paths: string[];
  passes: number;
  /** Folder of a tmpfs. */
  shm: string;
  /** MiB a copy and of the tmpfs file; larger than the last cache of the processor. */
  mib: number;
}

interface Found {
  limits: { name: string; wall: number[]; cpu: number[]; cold: number | null; unsupported?: string }[];
  bytes: number;
  python: string;
  numpy: string;
}

export async function benchLimits(options: LimitsOptions, python: Python): Promise<LimitsReport> {
  const before = machineFacts({ python: "", numpy: "", torch: null }); // the load is that of the neighbours
  const found = await ask(options, python);
  return { machine: { ...before, python: found.python, numpy: found.numpy }, options, limits: limitsOf(found) };
}

export async function measureLimits(options: LimitsOptions, python: Python): Promise<Limit[]> {
  return limitsOf(await ask(options, python));
}

async function ask(options: LimitsOptions, python: Python): Promise<Found> {
  let stdout: string;
  try {
    const args = [...pythonModule("athanor.bench.limits"), JSON.stringify(options)];
    ({ stdout } = await run(python.path, args, { env: python.env, timeout: DEADLINE_MS }));
  } catch (error) {
    const { stderr = "" } = error as { stderr?: string };
    throw new BenchRank("the limits could not be measured", {}, stderr.trim().slice(-2000), error);
  }
  return JSON.parse(stdout) as Found;
}

function limitsOf({ limits }: Found): Limit[] {
  return limits.map(({ name, wall, cpu, cold, unsupported }) => ({
    name,
    wall: wall.length === 0 ? undefined : spread(wall),
    cpu: cpu.length === 0 ? undefined : spread(cpu),
    cold: cold ?? undefined,
    unsupported,
  }));
}

/** Samples/s that the best plain cold read of the files would give; undefined when none was measured. */
export function coldSamplesPerSecond(limits: readonly Limit[], bytesPerSample: number): number | undefined {
  const rates = limits.filter(({ name, wall }) => name.startsWith("cold read") && wall !== undefined);
  return rates.length === 0 ? undefined : Math.max(...rates.map(({ wall }) => (wall!.median * 1e9) / bytesPerSample));
}

const HEAD = ["limit", "GB/s (min..max)", "GB/s by CPU time", "still cached"];

export function limitCells(limits: readonly Limit[]): string[][] {
  return [
    HEAD,
    ...limits.map(({ name, wall, cpu, cold, unsupported }) => [
      name,
      unsupported ?? range(wall),
      range(cpu),
      cold === undefined ? "-" : `${(100 * cold).toFixed(1)} %`,
    ]),
  ];
}

export interface LimitsReport {
  machine: MachineFacts;
  options: LimitsOptions;
  limits: Limit[];
}

export function limitsText({ machine, options, limits }: LimitsReport): string {
  return [
    `limits of this machine: ${options.passes} interleaved passes, medians; files: ${options.paths.join(", ")}`,
    ...machineLines(machine),
    table(limitCells(limits)),
    "GB: 10^9 bytes. still cached: the largest share of the files in the page cache behind the drop (mincore).",
    "A virtual disk may be cached by the host: a cold read is then no read of a device.",
  ].join("\n");
}
