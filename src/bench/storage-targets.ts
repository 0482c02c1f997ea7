/**
 * Targets of `bench storage`: on which OST a file lies, and files that are laid on one OST each, so that each can be measured by itself.
 * Nothing is set outside the bench's own folder. On MooseFS `mfsfileinfo` tells the chunk servers. Other mounts tell nothing.
 */
import { runTool } from "../base/run-tool.ts";
import { formatNumber, formatSize } from "../base/units.ts";
import { askFiles } from "../lustre/ask.ts";
import type { Answer } from "../lustre/ask.ts";
import { isReleased, spreadOf } from "../lustre/layout.ts";
import type { Layout } from "../lustre/layout.ts";
import { decodeLov } from "../lustre/lov.ts";
import { fileSystemOf, readTargets } from "../lustre/targets.ts";
import type { Target } from "../lustre/targets.ts";
import type { Mount } from "../storage/mounts.ts";

export interface Chosen {
  /** Those to be measured. */
  targets: Target[];
  /** All that the file system has; 0: not known. */
  all: number;
  notes: string[];
}

/** Where the first bytes of a file lie: names of targets; undefined: not known. */
export interface Home {
  targets: readonly string[] | undefined;
  /** HSM has it: reading would bring it back. */
  released: boolean;
}

/** States in which a target takes files, as far as it is known. */
const USABLE = new Set(["ok", "filling", "degraded", "unknown"]);

/** At most `most` OSTs, spread over all, each with room for twice `bytes`. */
export async function chooseTargets(
  mount: Mount,
  { most, bytes, root, timeoutMs }: { most: number; bytes: number; root: string; timeoutMs: number },
): Promise<Chosen> {
  if (mount.kind !== "lustre") return { targets: [], all: 0, notes: [] };
  const { targets, notes } = await readTargets(mount, root, timeoutMs);
  const roomy = ({ available }: Target): boolean => (available ?? Infinity) >= 2 * bytes;
  const usable = targets.filter((target) => USABLE.has(target.state) && roomy(target));
  const out = targets.filter((target) => !usable.includes(target));
  const why = (target: Target): string =>
    USABLE.has(target.state) ? `${formatSize(target.available ?? 0)} free` : target.state;
  if (out.length > 0) notes.push(`left out: ${out.map((target) => `${target.name} (${why(target)})`).join(", ")}`);
  const chosen = usable.filter(
    (_, i) => Math.floor((i * most) / usable.length) !== Math.floor(((i - 1) * most) / usable.length),
  );
  const taken = most >= usable.length ? usable : chosen;
  if (taken.length < usable.length)
    notes.push(`${taken.length} of ${formatNumber(usable.length, "OST")} are measured one by one; --osts takes more`);
  return { targets: taken, all: targets.length, notes };
}

/** Makes an empty file on one OST. Undefined: done; else what `lfs` said. */
export async function layOn(path: string, index: number, timeoutMs: number): Promise<string | undefined> {
  const ran = await runTool("lfs", ["setstripe", "-c", "1", "-i", String(index), path], { timeoutMs });
  if (ran.status === 0) return undefined;
  if (ran.missing) return "`lfs` is not installed here";
  return ran.timedOut ? "`lfs setstripe` does not answer" : (ran.stderr.trim().split("\n")[0] ?? "");
}

/** Of files that have been written. */
export async function homesOf(
  files: readonly { path: string; bytes: number }[],
  mount: Mount,
  timeoutMs: number,
): Promise<Home[]> {
  if (mount.kind === "lustre") {
    const questions = files.map(({ path }) => ({ path, xattr: "lustre.lov" }));
    const answers = await askFiles(questions, { timeoutMs });
    return files.map(({ path, bytes }, i) => homeOn(fileSystemOf(mount.source), layoutOf(answers?.[i], path), bytes));
  }
  if (mount.kind === "moosefs") {
    const ran = await runTool(
      "mfsfileinfo",
      files.map(({ path }) => path),
      { timeoutMs },
    );
    const found = parseFileInfo(ran.stdout);
    return files.map(({ path }) => ({ targets: found.get(path), released: false }));
  }
  return files.map(() => ({ targets: undefined, released: false }));
}

function layoutOf(answer: Answer | undefined, path: string): Layout | undefined {
  try {
    return answer !== undefined && "value" in answer ? decodeLov(answer.value, path) : undefined;
  } catch {
    return undefined; // a kind of layout not known here
  }
}

function homeOn(system: string, layout: Layout | undefined, bytes: number): Home {
  if (layout === undefined) return { targets: undefined, released: false };
  const osts = [...spreadOf(layout, 0n, BigInt(bytes)).osts.keys()];
  const names = osts.map((ost) => `${system}-OST${ost.toString(16).padStart(4, "0")}`);
  return { targets: names.length === 0 ? undefined : names, released: isReleased(layout) };
}

/**
 * What `mfsfileinfo` of MooseFS 3 prints: a path and a colon, then for each chunk its copies.
 *
 *     /mnt/mfs/a.tar:
 *         chunk 0: 0000000000000001_00000001 / (id:1 ver:1)
 *             copy 1: 10.77.0.1:9501 (status:VALID)
 *
 * A chunk with several copies is read from any of them: such a file has no known home.
 */
export function parseFileInfo(text: string): Map<string, string[]> {
  const found = new Map<string, string[]>();
  for (const part of text.split(/^(?=\S)/m)) {
    const path = /^(.*):\s*$/m.exec(part)?.[1];
    if (path === undefined) continue;
    const servers = new Set([...part.matchAll(/copy \d+: (\S+)/g)].map(([, server]) => server!));
    if (servers.size > 0 && !/copy 2: /.test(part)) found.set(path, [...servers].sort());
  }
  return found;
}
