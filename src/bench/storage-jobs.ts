/**
 * What a process of `bench storage` is asked to do and what it answers: lines of JSON, one a job. It makes every call to the mount, since it
 * may be left behind in one that never returns; whoever asks makes none.
 */
import type { SystemFault } from "../storage/errors.ts";

/** Bytes of one file. */
export interface Span {
  path: string;
  offset: number;
  length: number;
}

export type Job =
  /** Makes a folder of a unique name in `parent`, for this user only; removed when the process that was asked ends. */
  | { do: "make"; parent: string }
  | { do: "space"; path: string }
  /** Regular files below a folder; links are not followed. `most`: names that are looked at. */
  | { do: "list"; path: string; most: number }
  /** `fresh`: files that are there are removed first, outside the time. `sync`: fsync inside the time, or behind it. */
  | { do: "write"; spans: Span[]; chunk: number; fresh: boolean; sync: "within" | "behind" }
  /** `direct`: with O_DIRECT, past the page cache; offsets must be multiples of 4 KiB. */
  | { do: "read"; spans: Span[]; chunk: number; direct: boolean }
  | { do: "remove"; paths: string[] };

export interface Listed {
  path: string;
  size: number;
  /** Bytes on disk: next to none of a file that HSM has released. */
  stored: number;
}

/** What reading or writing took. Milliseconds of CLOCK_MONOTONIC, which all processes of the node share. */
export interface Moved {
  bytes: number;
  begin: number;
  end: number;
  /** Of it, in fsync. */
  syncMs: number;
  /** For each span, from before open to behind close. */
  times: number[];
  /** Processor time of the process, seconds. */
  cpu: number;
  /** Bytes that the kernel fetched from a block device for it; network mounts do not count there. */
  disk: number;
}

export type Done =
  | { folder: string }
  | { available: number; total: number }
  | { files: Listed[]; cut: boolean }
  | { moved: Moved }
  | { removed: true };

export const STEPS = ["open", "read", "write", "fsync", "close", "remove", "make", "look at"] as const;
export type Step = (typeof STEPS)[number];

/** Where a job is: told some times a second, also from a call that does not return. */
export interface At {
  path: string;
  byte: number;
  step: Step;
}

/** A line of such a process. */
export type Line = { done: Done } | { fault: SystemFault & { step: Step } } | { at: At };

/** The path that a job is about, or that of one of its spans. */
export function pathOf(job: Job, span = 0): string {
  if ("spans" in job) return job.spans[span]?.path ?? "";
  return "path" in job ? job.path : "parent" in job ? job.parent : (job.paths[0] ?? "");
}
