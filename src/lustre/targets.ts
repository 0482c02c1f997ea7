/**
 * Targets: the OSTs of a file system, how full they are and what state they are in, from `lfs osts`, `lfs df` and, where these leave a
 * question, `lfs check osts`. All of them work for any user.
 *
 * `lfs osts` calls a lost OST ACTIVE, and `lfs df` waits for it for ever; the exit status of `lfs check osts` is 0 with one lost. So the time
 * is bounded and the text is read, never only the status. An inactive OST (set so by an admin) is missing in `lfs df`.
 *
 * @example
 * const { targets } = await readTargets({ point: "/mnt/lustre", source: "10.0.8.11@o2ib:/trainfs" }, "/");
 * targets.find(({ state }) => state === "full");
 */
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { CALL_MS, runTool } from "../base/run-tool.ts";
import type { ToolResult } from "../base/run-tool.ts";

/** From 90 % on `full`, from 85 % on `filling`: the next files do not go there, and writes to old ones fail soon. */
export type TargetState = "ok" | "filling" | "full" | "inactive" | "silent" | "degraded" | "read-only" | "unknown";

export interface Target {
  index: number;
  /** `trainfs-OST0002` */
  name: string;
  state: TargetState;
  /** Bytes; undefined where it does not answer or no tool tells. */
  total: number | undefined;
  available: number | undefined;
}

export interface Targets {
  targets: Target[];
  /** Why some of it is not known. */
  notes: string[];
}

interface Space {
  total: number;
  used: number;
  available: number;
  flags: string;
}

const FILLING = 0.85;
const FULL = 0.9;

/** `root`: where /sys is looked for. `timeoutMs`: for each tool. */
export async function readTargets(
  { point, source }: { point: string; source: string },
  root: string,
  timeoutMs = CALL_MS,
): Promise<Targets> {
  const limit = { timeoutMs };
  const osts = await runTool("lfs", ["osts", point], limit);
  if (osts.missing) {
    const targets = targetsOfSys(source, root);
    const known = targets.length > 0 ? "their fill is not known" : "the OSTs are not known";
    return { targets, notes: [`\`lfs\` is not installed here: ${known}`] };
  }
  const df = await runTool("lfs", ["df", point], limit);
  const known = parseOsts(osts.stdout);
  const notes = [];
  if (osts.timedOut) notes.push("`lfs osts` does not answer: is the metadata server there?");
  else if (known.size === 0) notes.push(`\`lfs osts\` names no OST: ${told(osts)}`);
  const space = parseDf(df.stdout);
  const asked = df.timedOut || [...known.keys()].some((index) => !space.has(index) && known.get(index)!.active);
  const check = asked ? await runTool("lfs", ["check", "osts"], limit) : undefined;
  const faults = check === undefined ? new Map<string, number>() : parseCheck(check.stderr);
  const targets = [...known].map(([index, { name, active }]): Target => {
    const here = space.get(index);
    const state = stateOf(active, here, faults.get(name));
    return { index, name, state, total: here?.total, available: here?.available };
  });
  if (df.timedOut)
    notes.push(`\`lfs df\` did not end within ${timeoutMs / 1000} s: it waits for a target that does not answer`);
  else if (space.size === 0) notes.push(`\`lfs df\` names no OST: ${told(df)}`);
  return { targets: known.size > 0 ? targets : targetsOfSys(source, root), notes };
}

/** The first line that a tool printed. */
function told({ status, stdout, stderr }: ToolResult): string {
  const [line = ""] = `${stderr}\n${stdout}`.split("\n").flatMap((text) => text.trim() || []);
  return line === "" ? `it ended with ${status} and printed nothing` : JSON.stringify(line.slice(0, 200));
}

function stateOf(active: boolean, space: Space | undefined, fault: number | undefined): TargetState {
  // ESHUTDOWN: switched off by an admin on this client.
  if (!active || fault === 108) return "inactive";
  if (fault !== undefined) return "silent";
  if (space === undefined) return "unknown";
  const share = space.used / Math.max(1, space.used + space.available);
  if (/[SI]/.test(space.flags) || share >= FULL) return "full";
  if (/[RN]/.test(space.flags)) return "read-only";
  if (space.flags.includes("D")) return "degraded";
  return share >= FILLING ? "filling" : "ok";
}

/** Bytes that it can take and still be less than 85 % full; without limit where nothing is known of its fill. */
export function roomOf({ total, available }: Target): number {
  if (total === undefined || available === undefined) return Infinity;
  return Math.max(0, available - (1 - FILLING) * total);
}

/** `lfs osts`: `3: trainfs-OST0003_UUID INACTIVE`. Of a client with several file systems, only with their path asked for. */
export function parseOsts(text: string): Map<number, { name: string; active: boolean }> {
  const lines = text.matchAll(/^(\d+): (\S+?)(?:_UUID)? (\S+)\s*$/gm);
  return new Map(
    [...lines].map(([, index, name, state]) => [Number(index), { name: name!, active: state === "ACTIVE" }]),
  );
}

/**
 * `lfs df`, in units of 1 KiB: bytes by OST. Letters behind the mount: S no space, I no inodes, R read-only, N no new files, D degraded, and
 * in small letters what the disks are. Lines without numbers (`OST0003 : inactive device`) are left out.
 */
export function parseDf(text: string): Map<number, Space> {
  const lines = text.matchAll(/^\S+ +(\d+) +(\d+) +(\d+) +\d+% +.*\[OST:(\d+)\](?: +(\S+))? *$/gm);
  return new Map(
    [...lines].map(([, total, used, available, index, flags]) => [
      Number(index),
      {
        total: Number(total) * 1024,
        used: Number(used) * 1024,
        available: Number(available) * 1024,
        flags: flags ?? "",
      },
    ]),
  );
}

/** `lfs check osts` on stderr: errno by name of the OST; lines of a server on the same node (`-osc-MDT0000`) are not ours. */
export function parseCheck(stderr: string): Map<string, number> {
  const lines = stderr.matchAll(/'([\w-]{1,32})-osc-(?!MDT)[^\s']+': .*\((\d+)\)\s*$/gm);
  return new Map([...lines].map(([, name, errno]) => [name!, Number(errno)]));
}

/** Those that new files can lie on: of the pool, where its members are told. `placeable`: that have room, too. */
export async function usableTargets(
  pool: string | undefined,
  { source }: { source: string },
  targets: readonly Target[],
  timeoutMs: number | undefined,
): Promise<{ working: Target[]; placeable: Target[] }> {
  const args = ["pool_list", `${fileSystemOf(source)}.${pool}`];
  const names = new Set(pool === undefined ? [] : parsePool((await runTool("lfs", args, { timeoutMs })).stdout));
  const members = targets.filter(({ name }) => names.has(name));
  const working = (members.length > 0 ? members : targets).filter(
    ({ state }) => state !== "inactive" && state !== "silent",
  );
  return { working, placeable: working.filter(({ state }) => state !== "full" && state !== "read-only") };
}

/** `lfs pool_list FS.POOL`: names of OSTs. */
export function parsePool(text: string): string[] {
  return [...text.matchAll(/^(\S+-OST[0-9a-f]{4})(?:_UUID)?\s*$/gm)].map(([, name]) => name!);
}

/** Where there is no `lfs`: /sys names the OSTs and which are switched off. */
function targetsOfSys(source: string, root: string): Target[] {
  const folder = join(root, "sys/fs/lustre/osc");
  const prefix = `${fileSystemOf(source)}-OST`;
  try {
    const names = readdirSync(folder).filter((name) => name.startsWith(prefix) && !/-osc-MDT/.test(name));
    const found = names.map((name): Target => {
      const index = Number.parseInt(name.slice(prefix.length, prefix.length + 4), 16);
      const active = readText(join(folder, name, "active"))?.trim() !== "0";
      return {
        index,
        name: `${prefix}${name.slice(prefix.length, prefix.length + 4)}`,
        state: active ? "unknown" : "inactive",
        total: undefined,
        available: undefined,
      };
    });
    return [...new Map(found.map((target) => [target.index, target])).values()].sort((a, b) => a.index - b.index);
  } catch {
    return [];
  }
}

/** What /sys tells any user of one target of a client, `trainfs-OST0003`; undefined: nothing, or nothing wrong. Asks nobody. */
export function stateInSys(target: string, root: string): string | undefined {
  const folder = join(root, "sys/fs/lustre/osc");
  try {
    const device = readdirSync(folder).find((name) => name.startsWith(`${target}-osc-`) && !/-osc-MDT/.test(name));
    const active = device === undefined ? undefined : readText(join(folder, device, "active"))?.trim();
    return active === "0" ? "switched off on this client (active=0)" : undefined;
  } catch {
    return undefined;
  }
}

/** `10.0.8.11@o2ib:/trainfs/team-a` → `trainfs`. */
export function fileSystemOf(source: string): string {
  return source.slice(source.lastIndexOf(":/") + 2).split("/")[0] ?? "";
}

/** `2.17.0`; undefined where no module tells. */
export function clientVersion(root: string): string | undefined {
  return clientVersionOf(readText(join(root, "sys/fs/lustre/version")));
}

/** In what `/sys/fs/lustre/version` holds. */
export function clientVersionOf(text: string | undefined): string | undefined {
  // Older ones: `lustre: 2.12.3_ddn39` in a file of several lines.
  return /\d+\.\d+\.\d+\S*/.exec(text ?? "")?.[0];
}

/** Undefined: it cannot be read. */
export function readText(path: string): string | undefined {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return undefined;
  }
}
