/**
 * Meters of `athanor bench bill`: what a contender costs the file system, by what the mount lets be counted.
 *
 * Contract: on Lustre whose client's counters can be read in full: requests over the network, bytes in them, operations of metadata
 * servers, of the whole node. Elsewhere calls of the contender's processes on its data, by strace; without strace what /proc tells of the
 * processes. What a meter cannot tell is undefined. Marks are taken while the contender is idle.
 *
 * @example
 * const meter = await meterFor("/mnt/lustre/d");
 * const before = await meter.mark(contender);
 * meter.between(before, await meter.mark(contender)).reads;
 */
import { readFile } from "node:fs/promises";
import { runTool } from "../base/run-tool.ts";
import { readCounters } from "../lustre/read-counters.ts";
import type { Snapshot } from "../lustre/read-counters.ts";
import { spentBetween, totalOf } from "../lustre/spent.ts";
import { fileSystemOf } from "../lustre/targets.ts";
import { findMount, readMounts } from "../storage/mounts.ts";
import { metadataOf, minus, parseTrace, straceWords } from "./bill-trace.ts";
import type { TracedCalls, TracedPlaces } from "./bill-trace.ts";
import { BenchRank } from "./errors.ts";
import { usage } from "./proc.ts";
import type { Usage } from "./proc.ts";

export type Source = "client counters" | "system calls" | "/proc";

export interface Cost {
  /** Operations of metadata servers; by calls: opens, closes and stats by name of the data's files. */
  metadata: number | undefined;
  /** Of the metadata servers, by their names on Lustre. */
  operations: Record<string, number> | undefined;
  /** By calls: the same of the index and of folders. Counters do not tell them apart: they are in `metadata`. */
  otherMetadata: number | undefined;
  /** Read requests; by calls: read calls on the data's files. /proc: of all that the processes read, sockets too. */
  reads: number;
  bytes: number;
  /** By calls: reads of the index. */
  indexReads: number | undefined;
  indexBytes: number | undefined;
  /** Requests of one page of 4 KiB; undefined where `rpc_stats` cannot be read. */
  onePage: number | undefined;
  /** Page faults that had to read, and bytes from the disk: what a mapped file costs. Not on Lustre. */
  faults: number | undefined;
  diskBytes: number | undefined;
  /** Counters that were cleared, or came or went, meanwhile: the rest is too small or too large. */
  unsure: string[];
}

/** A contender under way. */
export interface Metered {
  places: TracedPlaces;
  /** Its processes, the agent too. */
  pids: readonly number[];
  /** Where strace writes. */
  trace: string;
}

export interface Mark {
  snapshot?: Snapshot;
  traced?: TracedCalls;
  usages?: (Usage | undefined)[];
}

export interface Meter {
  source: Source;
  /** Why it is not a better one. */
  notes: string[];
  /** What goes before the command of a contender. */
  wrapper(trace: string): string[];
  mark(contender: Metered): Promise<Mark>;
  between(before: Mark, after: Mark): Cost;
}

/** `path`: absolute, without symbolic links. */
export async function meterFor(path: string): Promise<Meter> {
  const mount = findMount(path, readMounts());
  const notes: string[] = [];
  if (mount?.kind === "lustre") {
    const system = fileSystemOf(mount.source);
    const snapshot = await readCounters(system);
    if (snapshot?.missing.length === 0) return new CounterMeter(system);
    const why =
      snapshot === undefined
        ? "cannot be read here (root may: sudo, or a node where lctl works)"
        : `are told of some servers only (${snapshot.missing.length} missing): they would be too small`;
    notes.push(`this is Lustre, but the client's counters of ${system} ${why}`);
  } else notes.push(`${mount?.type ?? "this file system"} has no counters of requests that Athanor knows`);
  // Pods often may not trace.
  const tried = await runTool("strace", ["-f", "--seccomp-bpf", "-o", "/dev/null", "true"]);
  if (tried.status === 0) return new CallMeter("system calls", notes);
  notes.push(tried.missing ? "strace is not installed" : `strace cannot trace here: ${tried.stderr.trim()}`);
  return new CallMeter("/proc", notes);
}

class CounterMeter implements Meter {
  readonly source = "client counters";
  readonly notes: string[] = [];
  private readonly system: string;

  constructor(system: string) {
    this.system = system;
  }

  wrapper(): string[] {
    return [];
  }

  async mark(): Promise<Mark> {
    const snapshot = await readCounters(this.system);
    if (snapshot?.missing.length !== 0) {
      const remedy = "run it again; `lctl get_param osc.*.stats` must tell of all OSTs";
      throw new BenchRank(`the client's counters of ${this.system} could be read, and cannot any more`, {}, remedy);
    }
    return { snapshot };
  }

  between(before: Mark, after: Mark): Cost {
    const spent = spentBetween(before.snapshot!, after.snapshot!);
    const { requests, bytes } = totalOf(spent.reads);
    return {
      ...UNKNOWN,
      metadata: spent.metadata,
      operations: Object.fromEntries(spent.operations),
      reads: requests,
      bytes,
      onePage: spent.readPages && (spent.readPages.get(1) ?? 0),
      unsure: [...spent.reset, ...spent.unknown],
    };
  }
}

class CallMeter implements Meter {
  readonly source: Source;
  readonly notes: string[];

  constructor(source: "system calls" | "/proc", notes: string[]) {
    this.source = source;
    this.notes = notes;
  }

  wrapper(trace: string): string[] {
    return this.source === "/proc" ? [] : straceWords(trace);
  }

  async mark({ places, pids, trace }: Metered): Promise<Mark> {
    const usages = pids.map((pid) => usage(pid));
    if (this.source === "/proc") return { usages };
    return { usages, traced: parseTrace(await readFile(trace, "latin1"), places) };
  }

  between(before: Mark, after: Mark): Cost {
    const used = (key: keyof Usage): number => grown(before.usages ?? [], after.usages ?? [], key);
    const disk = { faults: used("faults"), diskBytes: used("diskBytes") };
    if (before.traced === undefined || after.traced === undefined) {
      return { ...UNKNOWN, ...disk, reads: used("readCalls"), bytes: used("readBytes") };
    }
    const data = minus(after.traced.data, before.traced.data);
    const index = minus(after.traced.index, before.traced.index);
    const folders = minus(after.traced.folders, before.traced.folders);
    return {
      ...UNKNOWN,
      ...disk,
      metadata: metadataOf(data),
      otherMetadata: metadataOf(index) + metadataOf(folders),
      reads: data.reads,
      bytes: data.bytes,
      indexReads: index.reads,
      indexBytes: index.bytes,
    };
  }
}

const UNKNOWN: Omit<Cost, "reads" | "bytes"> = {
  metadata: undefined,
  operations: undefined,
  otherMetadata: undefined,
  indexReads: undefined,
  indexBytes: undefined,
  onePage: undefined,
  faults: undefined,
  diskBytes: undefined,
  unsure: [],
};

/** Those that were not there before count from zero, those that are gone nothing. */
function grown(
  before: readonly (Usage | undefined)[],
  after: readonly (Usage | undefined)[],
  key: keyof Usage,
): number {
  return after.reduce((total, one, i) => total + (one === undefined ? 0 : one[key] - (before[i]?.[key] ?? 0)), 0);
}
