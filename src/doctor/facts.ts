/**
 * Facts: all that the checks may know of a node. Plain data, so that a recording is as good as a node.
 *
 * @example
 * numberIn("100 Gb/sec (4X EDR)"); // 100
 */
import type { ToolResult } from "../base/run-tool.ts";
import type { Targets } from "../lustre/targets.ts";
import type { Mount, MountKind } from "../storage/mounts.ts";
import type { FolderAnswer } from "./reader.ts";

/** Bytes of a file system; `code`: the errno; `silent`: no answer in time. */
export type Space = { total: number; available: number } | { code: string } | { silent: true };

export interface PythonFacts {
  command: string;
  /** `3.11.7` */
  version: string;
  /** Versions of installed packages, by name. */
  packages: Readonly<Record<string, string>>;
  /** The file that an import of `athanor` would run. */
  client?: string | null;
}

export interface PythonTrouble {
  command: string;
  /** What happened when it was run: `exit code 0, no output`. */
  trouble: string;
  /** No answer in time. */
  silent: boolean;
}

export interface Facts {
  /** Text of files of /proc and /sys, by path without the leading slash, trimmed. */
  files: ReadonlyMap<string, string>;
  /** The limits that a job would have, among `files`. Node raises its own soft limit of open files, so those of whoever started us. */
  limitsFile: string;
  /** Files that did not answer in time. */
  silentFiles: readonly string[];
  /** What tools printed, by command line (`lnetctl net show -v`). */
  tools: ReadonlyMap<string, ToolResult>;
  /** All mounts of the node. */
  mounts: readonly Mount[];
  /** Those that are looked at. */
  watched: readonly Mount[];
  /** By path: mount points and folders of shared memory. */
  spaces: ReadonlyMap<string, Space>;
  /** By mount point, of Lustre. Undefined: not asked, as another rank does. */
  targets: ReadonlyMap<string, Targets> | undefined;
  /** $ATHANOR_RUN_DIR, absolute; undefined: not set. `silent`: no answer in time. */
  runDir: { path: string; found: FolderAnswer | { silent: true } } | undefined;
  env: Readonly<Record<string, string | undefined>>;
  user: { uid: number; gid: number };
  /** `20.20.2` */
  node: string;
  /** Of this package. */
  athanor: string;
  python: PythonFacts | PythonTrouble;
  /** Seconds that a loader waits in `next()` before it gives up. */
  loaderTimeout: number;
}

/** Kinds of file systems that other nodes mount, too. */
export const DISTRIBUTED: ReadonlySet<MountKind> = new Set(["lustre", "moosefs", "cephfs", "nfs", "gpfs", "beegfs"]);

/** The NUMA node of each NVIDIA GPU. */
export const GPU_NODES = "sys/bus/pci/drivers/nvidia/*/numa_node";

/** The number that a text begins with: `8`, `100 Gb/sec (4X EDR)`. */
export function numberIn(text: string | undefined): number | undefined {
  const found = /^-?\d+(\.\d+)?/.exec(text ?? "")?.[0];
  return found === undefined ? undefined : Number(found);
}

/** Files whose path fits, with what stands for each `*`. */
export function filesLike(facts: Facts, pattern: string): { path: string; text: string; parts: string[] }[] {
  const shape = new RegExp(`^${pattern.replace(/[.+?^${}()|[\]\\]/g, "\\$&").replaceAll("*", "([^/]+)")}$`);
  return [...facts.files].flatMap(([path, text]) => {
    const match = shape.exec(path);
    return match === null ? [] : [{ path, text, parts: match.slice(1) }];
  });
}

/** NVIDIA GPUs of the node, with the NUMA node of each. */
export function gpusOf(facts: Facts): ReturnType<typeof filesLike> {
  return filesLike(facts, GPU_NODES);
}

/** Mounts of Lustre clients among those that are looked at. */
export function lustreMounts({ watched }: Facts): readonly Mount[] {
  return watched.filter(({ kind }) => kind === "lustre");
}

/** `/proc/modules`: names of loaded kernel modules. */
export function modulesOf(facts: Facts): ReadonlySet<string> {
  const lines = (facts.files.get("proc/modules") ?? "").split("\n");
  return new Set(lines.map((line) => line.split(" ")[0]!).filter((name) => name !== ""));
}

/** `0-3,8` → 0, 1, 2, 3, 8. */
export function cpuList(text: string | undefined): number[] {
  return (text ?? "").split(",").flatMap((part) => {
    const range = /^\s*(\d+)(?:-(\d+))?\s*$/.exec(part);
    if (range === null) return [];
    const [first, last] = [Number(range[1]), Number(range[2] ?? range[1])];
    return Array.from({ length: Math.max(0, Math.min(last - first + 1, 65536)) }, (_, i) => first + i);
  });
}
