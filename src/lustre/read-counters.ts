/**
 * Reads the client's counters of one Lustre file system: by `lctl get_param`, else from the files that it reads.
 *
 * Contract: nothing is asked of a server. A tool that does not answer costs `timeoutMs`, and nothing waits for it then. The exit status
 * means nothing: told to a user, `lctl` ends with 2 and leaves some out. Whether all of the file system's devices are there is known from
 * their names in /sys, which any user may list: counters of which some are missing would be too small without a word.
 *
 * @example
 * const snapshot = await readCounters("trainfs");
 * if (snapshot?.missing.length === 0) readsOf(snapshot.devices[0]!);
 */
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { runTool } from "../base/run-tool.ts";
import { hostRoot } from "../storage/mounts.ts";
import { parseCounters, targetOf } from "./counters.ts";
import type { Device, DeviceKind } from "./counters.ts";

export interface Snapshot {
  /** Seconds since 1970. */
  at: number;
  devices: Device[];
  /** Devices of this file system that told nothing, as their clients call them. */
  missing: string[];
}

export interface ReadCountersOptions {
  /** Where /proc and /sys are looked for. @default $ATHANOR_HOST_ROOT, else `/` */
  root?: string;
  /** Milliseconds, for each of two tools. @default 5000 */
  timeoutMs?: number;
}

const KINDS: readonly DeviceKind[] = ["osc", "mdc", "llite"];
const PARAMETERS = ["llite.*.stats", "osc.*.stats", "osc.*.rpc_stats", "mdc.*.stats"];
/** Older clients have all in /proc, newer ones in debugfs (root's) and in /sys. */
const FOLDERS = ["proc/fs/lustre", "sys/fs/lustre", "sys/kernel/debug/lustre"];

/** `system`: its name (`trainfs`). Undefined: there are none here, or they may not be read. */
export async function readCounters(system: string, options: ReadCountersOptions = {}): Promise<Snapshot | undefined> {
  const { root = hostRoot(), timeoutMs = 5000 } = options;
  const asked = await runTool("lctl", ["get_param", ...PARAMETERS], { timeoutMs });
  const told = snapshotOf(asked.stdout, system, root);
  if (told?.missing.length === 0) return told;
  const files = filesBelow(root);
  if (files.length === 0) return told;
  // A driver in trouble keeps a reader of its files waiting: that is another process. -Z: a zero byte behind the name.
  const read = await runTool("grep", ["-sHZ", "", ...files], { timeoutMs });
  const found = snapshotOf(asParameters(read.stdout), system, root);
  return found !== undefined && found.missing.length < (told?.missing.length ?? Infinity) ? found : told;
}

function snapshotOf(text: string, system: string, root: string): Snapshot | undefined {
  const isOurs = (target: string): boolean => target === system || target.startsWith(`${system}-`);
  const devices = parseCounters(text).filter(({ target }) => isOurs(target));
  // Without an OST's counters there is nothing to go by.
  if (!devices.some(({ kind, counted }) => kind === "osc" && counted)) return undefined;
  const told = new Set(devices.flatMap(({ kind, name, counted }) => (counted ? `${kind}.${name}` : [])));
  const missing = expected(root, isOurs).filter((device) => !told.has(device));
  return { at: Date.now() / 1000, devices, missing };
}

/** `osc.NAME` and `mdc.NAME` of all devices that there must be. */
function expected(root: string, isOurs: (target: string) => boolean): string[] {
  return (["osc", "mdc"] as const).flatMap((kind) => {
    const names = new Set(FOLDERS.flatMap((folder) => list(join(root, folder, kind))));
    return [...names].filter((name) => isOurs(targetOf(kind, name) ?? "")).map((name) => `${kind}.${name}`);
  });
}

function filesBelow(root: string): string[] {
  return KINDS.flatMap((kind) =>
    FOLDERS.flatMap((folder) =>
      list(join(root, folder, kind)).flatMap((name) => {
        const device = join(root, folder, kind, name);
        return list(device)
          .filter((file) => file === "stats" || file === "rpc_stats")
          .map((file) => join(device, file));
      }),
    ),
  );
}

/** What `grep -HZ` prints of files, as `lctl get_param` does. */
function asParameters(text: string): string {
  let last: string | undefined;
  const lines = text.split("\n").flatMap((line) => {
    const end = line.indexOf("\0");
    if (end < 0) return [];
    const [path, rest] = [line.slice(0, end), line.slice(end + 1)];
    const head = path === last ? [] : [`${path.split("/").slice(-3).join(".")}=`];
    last = path;
    return [...head, rest];
  });
  return lines.join("\n");
}

function list(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch {
    return []; // not there, or root's
  }
}
