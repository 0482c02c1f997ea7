/**
 * Machine: the facts without which a number of a benchmark means nothing. Read before the first pass, so that the
 * load average is that of the neighbours.
 */
import { readFileSync } from "node:fs";
import { availableParallelism, cpus, loadavg, release, totalmem } from "node:os";
import { formatSize } from "../base/units.ts";
import { findMount, parseMountinfo } from "../storage/mounts.ts";

export interface MachineFacts {
  cpu: string;
  cores: number;
  memoryBytes: number;
  kernel: string;
  /** 1-minute load average before the run. */
  loadBefore: number;
  node: string;
  python: string;
  numpy: string;
  torch: string | null;
}

export interface FileSystem {
  type: string;
  mount: string;
  device: string;
}

export function machineFacts(python: { python: string; numpy: string; torch: string | null }): MachineFacts {
  return {
    cpu: cpus()[0]?.model.trim() ?? "unknown",
    cores: availableParallelism(),
    memoryBytes: totalmem(),
    kernel: release(),
    loadBefore: loadavg()[0]!,
    node: process.versions.node,
    python: python.python,
    numpy: python.numpy,
    torch: python.torch,
  };
}

/** The mount that holds the absolute path `path`. */
export function fileSystemOf(path: string, mountinfo = readFileSync("/proc/self/mountinfo", "utf8")): FileSystem {
  const found = findMount(path, parseMountinfo(mountinfo));
  if (found === undefined) return { type: "unknown", mount: "", device: "unknown" };
  return { type: found.type, mount: found.point, device: found.source };
}

export function machineLines(m: MachineFacts): string[] {
  const torch = m.torch === null ? "no torch" : `torch ${m.torch}`;
  return [
    `machine: ${m.cpu}, ${m.cores} cores, ${formatSize(m.memoryBytes)}, Linux ${m.kernel}, load ${m.loadBefore.toFixed(2)} before the run`,
    `software: Node ${m.node}, Python ${m.python}, ${torch}, numpy ${m.numpy}`,
  ];
}
