/**
 * One `lfs migrate --non-block`: lays a file that lies on one OST on another one, if it still is as planned and there is room.
 *
 * `--non-block` gives up when anybody, on any node, opens the file for writing meanwhile; so this is what guards against other nodes.
 *
 * Contract: a reason why the file stays is an answer; an error is thrown where nobody can tell any more how it lies.
 *
 * @example
 * const why = await unmovable(file, move, { mount, root: "/" });
 * if (why === undefined) await migrate(file, move, words, { bandwidth: 200 << 20 });
 */
import { CALL_MS, runTool } from "../base/run-tool.ts";
import { formatDuration } from "../base/units.ts";
import type { Mount } from "../storage/mounts.ts";
import type { AskOptions } from "./ask.ts";
import { onlyOst } from "./balance.ts";
import type { Move } from "./balance.ts";
import { LayoutNotMoved } from "./errors.ts";
import { isReleased } from "./layout.ts";
import type { Layout } from "./layout.ts";
import { roomByQuota } from "./quota.ts";
import type { Owner } from "./quota.ts";
import { layoutsByXattr } from "./survey.ts";
import { readTargets, roomOf } from "./targets.ts";

export interface MigrateOptions extends AskOptions {
  mount: Mount;
  root: string;
  /** Of the file, for whose quotas its second copy counts. @default this process */
  owner?: Owner;
  /** Bytes a second. @default no limit */
  bandwidth?: number | undefined;
}

/** Why the file cannot be moved now; undefined: it can. */
export async function unmovable(path: string, move: Move, options: MigrateOptions): Promise<string | undefined> {
  const { mount, root, owner, timeoutMs } = options;
  const layout = await layoutOf(path, options);
  if (layout === undefined) return "its layout cannot be read now";
  if (layout.mirrors > 1) return "it is mirrored, and a migration would drop its mirrors";
  if (isReleased(layout)) return "it is released to HSM";
  if (onlyOst(layout) !== move.from) return `it lies on OST ${move.from} no more`;
  const state = await runTool("lfs", ["hsm_state", path], { timeoutMs });
  const words = /: \(0x[0-9a-f]+\)(.*)$/m.exec(state.stdout)?.[1];
  if (words === undefined) return "`lfs hsm_state` does not tell whether an archive has it";
  if (/\b(archived|released|exists)\b/.test(words)) return "HSM has an archive of it, which would be stale";
  const { targets } = await readTargets(mount, root, timeoutMs);
  const target = targets.find(({ index }) => index === move.to);
  if (target === undefined || !["ok", "degraded", "filling", "unknown"].includes(target.state))
    return `OST ${move.to} takes no files now (${target?.state ?? "not told"})`;
  if (roomOf(target) === Infinity) return `how full OST ${move.to} is is not told`;
  if (roomOf(target) < move.size) return `OST ${move.to} would become more than 85 % full`;
  const { short } = await roomByQuota(mount.point, path, owner, { bytes: move.size, files: 1 }, timeoutMs);
  return short.length === 0 ? undefined : `no room for a second copy: ${short.join("; ")}`;
}

/** `words`: what `lfs migrate` is told of the layout. Why it stayed; undefined: it lies on the OST. Throws ATH_LAYOUT_NOT_MOVED. */
export async function migrate(
  path: string,
  move: Move,
  words: readonly string[],
  options: MigrateOptions,
): Promise<string | undefined> {
  const { bandwidth = Infinity } = options;
  const limit = Number.isFinite(bandwidth) && (await limits(options)) ? bandwidthWords(bandwidth) : [];
  const ms = PATIENCE * (options.timeoutMs ?? CALL_MS) + (2000 * move.size) / Math.min(bandwidth, SLOWEST);
  const ran = await runTool("lfs", ["migrate", "--non-block", ...limit, ...words, path], { timeoutMs: ms });
  const ost = await ostOf(path, options);
  if (ran.status === 0 && ost === move.to) return undefined;
  if (ran.timedOut)
    throw new LayoutNotMoved(
      `\`lfs migrate\` has not ended for ${formatDuration(ms / 1000)}, and was given up`,
      { file: path },
      "look with `lfs getstripe` where it lies; `lfs check osts` tells whether an OST does not answer",
    );
  if (ran.status !== 0 && ost === move.from)
    return `\`lfs migrate\`: ${
      ran.missing
        ? "is not here"
        : ran.stderr
            .trim()
            .split("\n")[0]!
            .replace(/^lfs migrate: /, "") || "failed"
    }`;
  throw new LayoutNotMoved(
    `\`lfs migrate\` ended with ${ran.status ?? "a signal"}, and the file lies on OST ${ost ?? "?"}, expected OST ${move.to}`,
    { file: path },
    "look with `lfs getstripe`; nothing else was moved after it",
    ran.stderr.trim(),
  );
}

/** The OST that all of a file lies on; undefined: several, or its layout cannot be read. */
export async function ostOf(path: string, options: AskOptions): Promise<number | undefined> {
  const layout = await layoutOf(path, options);
  return layout === undefined ? undefined : onlyOst(layout);
}

/** Undefined: it cannot be read. */
async function layoutOf(path: string, options: AskOptions): Promise<Layout | undefined> {
  return (await layoutsByXattr([path], options))[0]?.layout;
}

/** Newer ones have a limit of their own (the manual page of 2024, not that of 2021); others are kept to the mean by a pause behind each file. */
async function limits({ timeoutMs }: AskOptions): Promise<boolean> {
  const { stdout, stderr } = await runTool("lfs", ["migrate", "--help"], { timeoutMs });
  return /--bandwidth/.test(stdout + stderr);
}

/** In whole MiB a second; less than one is left to the pause. */
function bandwidthWords(bandwidth: number): string[] {
  const mib = Math.floor(bandwidth / 2 ** 20);
  return mib === 0 ? [] : ["--bandwidth", `${mib}M`];
}

/** Calls' worth of time, beside that for the bytes. */
const PATIENCE = 6;
/** One stream of a busy file system, at least. Bytes a second. */
const SLOWEST = 20 * 2 ** 20;
