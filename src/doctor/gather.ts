/**
 * Gathers the facts. As any user, and nothing is changed: files of /proc and /sys, space of file systems, and tools that print.
 *
 * Contract: every call outside is made by a process that may be left behind and has `timeoutMs`; all of them together take at most some
 * three times as long, whatever hangs. What does not answer is missing in the facts, or told as silent.
 *
 * @example
 * const facts = await gather({ path: "/mnt/lustre/web", loaderTimeout: 540 });
 */
import { join, resolve } from "node:path";
import { CALL_MS, runTool } from "../base/run-tool.ts";
import type { ToolResult } from "../base/run-tool.ts";
import { VERSION } from "../base/version.ts";
import { LayoutUnreadable } from "../lustre/errors.ts";
import { realPath, statOf } from "../lustre/survey.ts";
import { readTargets } from "../lustre/targets.ts";
import type { Targets } from "../lustre/targets.ts";
import { NotFound } from "../storage/errors.ts";
import { hostRoot, mountOf, readMounts } from "../storage/mounts.ts";
import type { Mount } from "../storage/mounts.ts";
import { DISTRIBUTED } from "./facts.ts";
import type { Facts } from "./facts.ts";
import { askPython } from "./python.ts";
import { readFacts } from "./read-facts.ts";
import { VARIABLES } from "./watched.ts";

export interface GatherOptions {
  /** A file or folder of the data: only its mount is looked at. @default all mounts of distributed file systems */
  path?: string | undefined;
  /** Seconds, the loader's `timeout`. */
  loaderTimeout: number;
  /** Milliseconds for one call. @default 10000 */
  timeoutMs?: number | undefined;
  /** Ask for the state of the targets also where another rank of the job does. @default false */
  always?: boolean | undefined;
  /** Where /proc and /sys are looked for. @default $ATHANOR_HOST_ROOT, else `/` */
  root?: string;
}

/** Of a node with many mounts: one call each. */
const MOUNTS = 16;
const SHM = "/dev/shm";

/** Throws ATH_NOT_FOUND and ATH_ACCESS_DENIED for `path`, and where /proc is not below `root`. */
export async function gather(options: GatherOptions): Promise<Facts> {
  const { loaderTimeout, timeoutMs = CALL_MS, root = hostRoot() } = options;
  const mounts = mountsOf(root);
  const real = options.path === undefined ? undefined : await pathOf(options.path, timeoutMs);
  const watched = watchedOf(real, mounts);
  const lustre = watched.filter(({ kind }) => kind === "lustre");
  const env = Object.fromEntries(VARIABLES.map((name) => [name, process.env[name]]));
  const ask = options.always === true || rankOf(env) === 0;
  // As the client reads it: an empty one is none.
  const runDir = process.env["ATHANOR_RUN_DIR"] || undefined;
  const places = [...watched.map(({ point }) => point), SHM];
  const user = { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 };
  const [read, python, tools, targets] = await Promise.all([
    readFacts(root, places, timeoutMs, runDir && resolve(runDir)),
    askPython(timeoutMs),
    runTools(toolsFor(lustre, user, real, ask), timeoutMs),
    ask ? askTargets(lustre, root, timeoutMs) : undefined,
  ]);
  return {
    ...read,
    tools,
    mounts,
    watched,
    targets,
    env,
    user,
    node: process.versions.node,
    athanor: VERSION,
    python,
    loaderTimeout,
  };
}

function mountsOf(root: string): Mount[] {
  try {
    return readMounts(root);
  } catch (error) {
    const remedy = "ATHANOR_HOST_ROOT must name the folder that holds `proc` and `sys`";
    throw new NotFound("there is no mountinfo", { file: join(root, "proc/self/mountinfo") }, remedy, error);
  }
}

/** A path that does not answer is taken as it was written: its mount is what is asked about. */
async function pathOf(path: string, timeoutMs: number): Promise<string> {
  try {
    const real = await realPath(path, timeoutMs);
    await statOf(real, { timeoutMs });
    return real;
  } catch (error) {
    if (error instanceof LayoutUnreadable) return resolve(path);
    throw error;
  }
}

/** Of the whole job: targets are the same for all nodes, so one rank asks. */
function rankOf(env: Facts["env"]): number {
  const text = env["RANK"] ?? env["SLURM_PROCID"] ?? env["OMPI_COMM_WORLD_RANK"] ?? env["PMI_RANK"];
  return /^\d+$/.test(text ?? "") ? Number(text) : 0;
}

function watchedOf(path: string | undefined, mounts: readonly Mount[]): Mount[] {
  if (path !== undefined) return [mountOf(path, mounts)];
  // One file system may be mounted in many places, as in a pod with several volumes.
  const found = mounts.filter(({ kind }) => DISTRIBUTED.has(kind));
  return [...new Map(found.map((mount) => [mount.point, mount])).values()].slice(0, MOUNTS);
}

type Call = [name: string, ...args: string[]];

function toolsFor(
  lustre: readonly Mount[],
  { uid, gid }: Facts["user"],
  path: string | undefined,
  ask: boolean,
): Call[] {
  const calls: Call[] = [["dmesg"]];
  if (lustre.length === 0) return calls;
  calls.push(["lnetctl", "net", "show", "-v"], ["lctl", "list_nids"], ["lctl", "get_param", "osc.*.stats"]);
  calls.push(["lctl", "get_param", "osc.*.import"]);
  for (const { point } of lustre) {
    if (ask) calls.push(["lfs", "df", "-i", point]);
    calls.push(["lfs", "quota", "-u", String(uid), point], ["lfs", "quota", "-g", String(gid), point]);
  }
  if (path !== undefined) calls.push(["lfs", "project", "-d", path]);
  return calls;
}

async function runTools(calls: readonly Call[], timeoutMs: number): Promise<Map<string, ToolResult>> {
  const ran = await Promise.all(
    calls.map(
      async ([name, ...args]) => [[name, ...args].join(" "), await runTool(name, args, { timeoutMs })] as const,
    ),
  );
  const results = new Map(ran);
  // The folder's project tells whose quota holds.
  for (const [line, { stdout }] of ran) {
    const project = line.startsWith("lfs project") ? /^\s*(\d+) /.exec(stdout)?.[1] : undefined;
    if (project === undefined || project === "0") continue;
    const args = ["quota", "-p", project, line.slice("lfs project -d ".length)];
    // oxlint-disable-next-line no-await-in-loop -- there is one
    results.set(`lfs ${args.join(" ")}`, await runTool("lfs", args, { timeoutMs }));
  }
  return results;
}

async function askTargets(
  lustre: readonly Mount[],
  root: string,
  timeoutMs: number,
): Promise<ReadonlyMap<string, Targets>> {
  const asked = lustre.map(async (mount) => [mount.point, await readTargets(mount, root, timeoutMs)] as const);
  return new Map(await Promise.all(asked));
}
