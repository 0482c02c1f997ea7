/**
 * Plan of a copy: which files of a folder go into a new one, what of it is done already, how the new folder should be striped, and whether
 * there is room. Changes nothing.
 *
 * All plain files below the folder are copied, links as what they lead to, and its index (`.athanor`); other hidden names are not.
 *
 * @example
 * const plan = await planCopy("/mnt/lustre/web", "/mnt/lustre/web-c4", { files, storage });
 */
import { basename, dirname, join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { formatNumber, formatSize } from "../base/units.ts";
import { useOf } from "../lustre/advice.ts";
import type { Change, Use } from "../lustre/advice.ts";
import type { AskOptions } from "../lustre/ask.ts";
import { copyLayout } from "../lustre/copy-layout.ts";
import { isReleased } from "../lustre/layout.ts";
import { layoutsByXattr, realPath } from "../lustre/survey.ts";
import { NotFound } from "../storage/errors.ts";
import { hostRoot, mountOf, readMounts } from "../storage/mounts.ts";
import type { Mount } from "../storage/mounts.ts";
import type { Storage } from "../storage/types.ts";
import { CopyNoRoom, CopyReleased, CopySourceChanged, CopyTarget } from "./errors.ts";
import type { Version } from "./file-thread.ts";
import { RESTORE } from "./files.ts";
import type { Files } from "./files.ts";
import { Journal } from "./journal.ts";

export interface CopyOptions extends AskOptions {
  files: Files;
  storage: Storage;
  /** @default what the files look like */
  use?: Use | undefined;
  /** Where /proc is looked for. @default $ATHANOR_HOST_ROOT, else `/` */
  root?: string;
}

/** Relative to the folder. */
export interface CopyFile extends Version {
  path: string;
}

/** A line of the journal: a file that lies whole under its name. `mtimeNs`: of both; `own`: of the copy, where it is another one. */
export interface CopyLine {
  path: string;
  size: number;
  mtimeNs: string;
  own?: string;
  crc32c: number;
}

export interface CopyPlan {
  /** Absolute, without symbolic links. */
  from: string;
  to: string;
  mount: Mount;
  /** The source lies on Lustre, where a file may be released. */
  fromLustre: boolean;
  journal: Journal<CopyLine>;
  /** What is to be copied still. */
  left: CopyFile[];
  bytes: number;
  /** What an earlier run has done. */
  done: { files: number; bytes: number };
  /** The index comes along. */
  index: boolean;
  change: Change | undefined;
  why: readonly string[];
  notes: string[];
}

export const JOURNAL = ".athanor-copy.jsonl";
const INDEX = ".athanor";
const NAMED = 3;

/** Throws ATH_COPY_TARGET, ATH_COPY_RELEASED, ATH_COPY_SOURCE_CHANGED, ATH_COPY_NO_ROOM, and what storage throws. */
export async function planCopy(source: string, target: string, options: CopyOptions): Promise<CopyPlan> {
  const { files, storage, root = hostRoot() } = options;
  const from = await realPath(source, options.timeoutMs);
  const asked = resolve(target);
  const seen = await files.call({ op: "look", path: asked });
  // A link is where it leads to: that may lie in the source, or on another file system.
  const to =
    seen === undefined
      ? join(await realPath(dirname(asked), options.timeoutMs), basename(asked))
      : await realPath(asked, options.timeoutMs);
  const found = await files.call({ op: "look", path: from });
  if (found?.folder !== true)
    throw new CopyTarget("is no folder", { file: from }, "name the folder that holds the shards");
  if (`${to}/`.startsWith(`${from}/`) || `${from}/`.startsWith(`${to}/`))
    throw new CopyTarget("one of the two folders lies in the other", { file: to }, "name a folder beside the data");
  if (seen?.folder === false)
    throw new CopyTarget("is a file, expected a new folder", { file: to }, "name a new folder");
  const journal = await Journal.read<CopyLine>(files, join(to, JOURNAL), "copy");
  const made = seen !== undefined;
  if (made) await checkTarget(files, to, from, journal);
  const all = await listed(from, storage);
  const there = await present(options, to, journal);
  if (made) refuseStrays(from, to, all, await storage.names(to));
  const left = open(from, all, journal, there);
  const mounts = readMounts(root);
  const [fromMount, mount] = [mountOf(from, mounts), mountOf(to, mounts)];
  if (fromMount.kind === "lustre") await refuseReleased(from, left, options);
  const bytes = left.reduce((sum, { size }) => sum + size, 0);
  // What root copies stays its owners': asked for is that of the folder.
  const owner = process.geteuid?.() === 0 ? found : undefined;
  const need = { bytes, files: left.length };
  const use = options.use ?? useOf(from, all);
  const data = all.filter(({ path }) => !path.startsWith(`${INDEX}/`));
  const layout =
    mount.kind === "lustre"
      ? await copyLayout({ to, there: made, mount, use, files: data, owner, left: need }, { ...options, root })
      : { change: undefined, why: [], short: [], notes: [] };
  const short = [...layout.short, ...(await lacking(files, made ? to : dirname(to), need))];
  if (short.length > 0)
    throw new CopyNoRoom(
      `no room for ${formatNumber(need.files, "file")} of ${formatSize(bytes)}: ${short.join("; ")}`,
      { file: to },
      "free space, ask for more, or name a folder on another file system",
    );
  return {
    from,
    to,
    mount,
    fromLustre: fromMount.kind === "lustre",
    journal,
    left,
    bytes,
    done: {
      files: all.length - left.length,
      bytes: all.reduce((sum, { size }) => sum + size, 0) - bytes,
    },
    index: all.length > data.length,
    change: layout.change,
    why: layout.why,
    notes: layout.notes,
  };
}

async function checkTarget(files: Files, to: string, from: string, { head }: Journal<CopyLine>): Promise<void> {
  if (head?.from === from) return;
  const names = await files.call({ op: "names", path: to });
  // A run that ended before the first line was whole.
  if (head === undefined && names.every((name) => name === JOURNAL)) return;
  throw new CopyTarget(
    head === undefined ? "is there already, and no copy that was begun here" : `holds a copy of ${head.from}`,
    { file: to },
    "name a new folder",
  );
}

async function listed(from: string, storage: Storage): Promise<CopyFile[]> {
  const data = await storage.list(from);
  if (data.length === 0) throw new NotFound("no files in this folder", { file: from }, "check the path");
  const index = await storage.list(join(from, INDEX)).catch((error: unknown) => {
    if (error instanceof NotFound) return [];
    throw error;
  });
  return [...data, ...index.map(({ path, version }) => ({ path: `${INDEX}/${path}`, version }))].map(
    ({ path, version: { size, mtimeNs } }) => ({ path, size, mtimeNs }),
  );
}

/** Of the files of the journal, those that lie there as it says. */
async function present({ files, polite }: CopyOptions, to: string, { lines }: Journal<CopyLine>): Promise<Set<string>> {
  const there = new Set<string>();
  for (const { path, size, mtimeNs, own = mtimeNs } of lines) {
    // oxlint-disable-next-line no-await-in-loop -- its turn among what this job asks of the metadata server
    await sleep(polite?.waitMs("stats") ?? 0);
    polite?.take("stats");
    // oxlint-disable-next-line no-await-in-loop -- one thread
    const found = await files.call({ op: "look", path: join(to, path) });
    if (found?.size === size && String(found.mtimeNs) === own) there.add(path);
  }
  return there;
}

/** A file that was copied, and that the source has no more, would stay in the copy: a shard too many. */
function refuseStrays(from: string, to: string, all: readonly CopyFile[], names: readonly string[]): void {
  const here = new Set(all.map(({ path }) => path));
  const strays = names.filter((path) => !here.has(path));
  if (strays.length === 0) return;
  const more = strays.length > 1 ? ` (${formatNumber(strays.length, "file")} in all)` : "";
  throw new CopySourceChanged(
    `was copied before, and is gone since${more}`,
    { file: join(from, strays[0]!) },
    `begin again with a new folder, or remove ${join(to, strays[0]!)} as well`,
  );
}

/** What is not done. A file that was copied and is another one by now would make a set of two ages. */
function open(
  from: string,
  all: readonly CopyFile[],
  { lines }: Journal<CopyLine>,
  there: ReadonlySet<string>,
): CopyFile[] {
  const done = new Map(lines.map((line) => [line.path, line]));
  return all.filter((file) => {
    const line = done.get(file.path);
    if (line === undefined || !there.has(file.path)) return true;
    if (line.size === file.size && line.mtimeNs === String(file.mtimeNs)) return false;
    // An index is brought up to date now and then; the last one counts.
    if (file.path.startsWith(`${INDEX}/`)) return true;
    throw new CopySourceChanged(
      `was copied before, and has changed since: found ${file.size} bytes of ${file.mtimeNs} ns, copied ${line.size} of ${line.mtimeNs}`,
      { file: join(from, file.path) },
      "begin again with a new folder",
    );
  });
}

async function refuseReleased(from: string, left: readonly CopyFile[], options: AskOptions): Promise<void> {
  const paths = left.map(({ path }) => join(from, path));
  const found = await layoutsByXattr(paths, options);
  // One of which no layout is told is itself looked at before its first byte is read.
  const released = left.filter((_, i) => {
    const layout = found[i]?.layout;
    return layout !== undefined && isReleased(layout);
  });
  if (released.length === 0) return;
  const names = released.slice(0, NAMED).map(({ path }) => path);
  const more = released.length > NAMED ? ` and ${released.length - NAMED} more` : "";
  throw new CopyReleased(
    `${formatNumber(released.length, "file")} released to HSM: ${names.join(", ")}${more}`,
    { file: from },
    RESTORE,
  );
}

async function lacking(files: Files, folder: string, need: { bytes: number; files: number }): Promise<string[]> {
  const free = await files.call({ op: "space", path: folder });
  if (free.bytes < need.bytes) return [`${formatSize(free.bytes)} free`];
  return free.files < need.files ? [`${formatNumber(free.files, "inode")} free`] : [];
}
