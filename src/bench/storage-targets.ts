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
import { askChunks } from "../placement/chunks.ts";
import type { Chunks } from "../placement/chunks.ts";
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

/** Files a call of `mfsfileinfo`. */
const MFS_BATCH = 256;

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
    const targets = await chunkServersOf(
      files.map(({ path }) => path),
      timeoutMs,
    );
    return files.map(({ path }) => ({ targets: targets.get(path), released: false }));
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

/** Of files of MooseFS. A chunk with several copies is read from any of them: such a file has no known home. */
async function chunkServersOf(paths: readonly string[], timeoutMs: number): Promise<Map<string, string[]>> {
  const found = new Map<string, string[]>();
  for (let at = 0; at < paths.length; at += MFS_BATCH) {
    // oxlint-disable-next-line no-await-in-loop -- a guest asks one after the other
    const asked = await askChunks(paths.slice(at, at + MFS_BATCH), timeoutMs);
    for (const [path, chunks] of asked?.files ?? []) {
      const servers = oneCopy(chunks);
      if (servers !== undefined) found.set(path, servers);
    }
    if (asked === undefined || asked.silent) break;
  }
  return found;
}

/** Servers of a file that has one copy of each chunk. */
export function oneCopy(chunks: Chunks): string[] | undefined {
  if (chunks.some((servers) => servers.length > 1)) return undefined;
  const servers = [...new Set(chunks.flat())].sort();
  return servers.length === 0 ? undefined : servers;
}
