/**
 * Copy of a folder, as planned by `copy-plan.ts`: file by file, each verified, and resumable.
 *
 * Contract: the source is only read. A file appears under its name when it is whole, durable and read back; its line is in the journal then.
 * A kill at any time leaves a folder with which the same call goes on. The journal goes away with the last file.
 *
 * @example
 * const { files, bytes } = await copyFolder(await planCopy(from, to, options), options);
 */
import { dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { AthanorError } from "../base/errors.ts";
import { IndexMissing } from "../dataset/errors.ts";
import { adoptIndex } from "../dataset/index-adopt.ts";
import { setDefault } from "../lustre/apply.ts";
import { isReleased } from "../lustre/layout.ts";
import { layoutsByXattr } from "../lustre/survey.ts";
import type { CopyFile, CopyOptions, CopyPlan } from "./copy-plan.ts";
import { CopyReleased } from "./errors.ts";
import type { Copied } from "./file-thread.ts";

export interface CopyRun extends CopyOptions {
  /** Bytes a second that are read of the source, and as many of the copy. @default no limit */
  bandwidth?: number | undefined;
  progress?: (done: number, total: number, what: string) => void;
}

export interface CopyResult {
  files: number;
  bytes: number;
  /** Files of which the copy was read back past the page cache. */
  direct: number;
  /** Files whose mtime the new file system did not take. */
  otherTimes: number;
  /** `fits`: as it came; `adopted`: written anew for other mtimes; else what is wrong with it. */
  index: "none" | "fits" | "adopted" | AthanorError;
}

/** Of one file: the source, the copy, and the copy once more to read it back. */
const OPENS = 3;

/** Throws ATH_COPY_SOURCE_CHANGED, ATH_COPY_DIFFERS, ATH_COPY_WRITE, ATH_COPY_RELEASED, ATH_LAYOUT_NOT_APPLIED. */
export async function copyFolder(plan: CopyPlan, options: CopyRun): Promise<CopyResult> {
  const { files, polite, progress } = options;
  const { from, to, left, journal, change } = plan;
  await files.call({ op: "folder", path: to, like: from });
  const begun = journal.head !== undefined;
  await journal.begin({ athanor: "copy", version: 1, from });
  // Before the first file: it holds for new ones.
  if (change !== undefined) await setDefault(to, change, options);
  const folders = [...new Set([".", ...[...journal.lines, ...left].map(({ path }) => dirname(path))])];
  for (const name of folders) {
    const path = join(to, name);
    // oxlint-disable-next-line no-await-in-loop -- one thread
    await files.call({ op: "folder", path, like: join(from, name) });
    // oxlint-disable-next-line no-await-in-loop -- one thread
    if (begun) await files.call({ op: "sweep", path });
  }
  const result: CopyResult = { files: 0, bytes: 0, direct: 0, otherTimes: 0, index: "none" };
  // Each byte is read twice: of the source, and of the copy.
  const total = 2 * plan.bytes;
  for (const file of left) {
    const { path, size, mtimeNs } = file;
    const before = 2 * result.bytes;
    const step = (done: number): void => progress?.(before + done, total, path);
    // oxlint-disable-next-line no-await-in-loop -- its turn among what this job asks of the metadata server
    await sleep(polite?.waitMs("opens") ?? 0);
    polite?.take("opens", OPENS);
    // oxlint-disable-next-line no-await-in-loop -- one file at a time
    const copied = await copyFile(plan, file, step, options);
    const own = copied.mtimeNs === mtimeNs ? {} : { own: String(copied.mtimeNs) };
    // oxlint-disable-next-line no-await-in-loop -- behind its file
    await journal.add({ path, size, mtimeNs: String(mtimeNs), ...own, crc32c: copied.crc32c });
    result.files++;
    result.bytes += size;
    if (copied.direct) result.direct++;
    if (copied.mtimeNs !== mtimeNs) result.otherTimes++;
  }
  // oxlint-disable-next-line no-await-in-loop -- one thread
  for (const name of folders) await files.call({ op: "sync", path: join(to, name) });
  if (plan.index) result.index = await indexOf(plan, options);
  await files.call({ op: "remove", path: journal.path });
  return result;
}

async function copyFile(
  { from, to, fromLustre }: CopyPlan,
  { path, size, mtimeNs }: CopyFile,
  step: (done: number) => void,
  options: CopyRun,
): Promise<Copied> {
  const { files, bandwidth } = options;
  const expected = { size, mtimeNs };
  const request = { op: "copy", from: join(from, path), to: join(to, path), expected, bandwidth } as const;
  try {
    return await files.call({ ...request, refuseEmpty: fromLustre }, step);
  } catch (error) {
    if (!(error instanceof CopyReleased)) throw error;
    // No space is taken up: one of holes only, if its layout says that it is not in an archive.
    const layout = (await layoutsByXattr([request.from], options))[0]?.layout;
    if (layout === undefined || isReleased(layout)) throw error;
    return await files.call(request, step);
  }
}

async function indexOf({ to }: CopyPlan, { storage }: CopyRun): Promise<CopyResult["index"]> {
  try {
    const { adopted } = await adoptIndex(to, { storage });
    return adopted === 0 ? "fits" : "adopted";
  } catch (error) {
    // What else lies in `.athanor` is of single files or globs.
    if (error instanceof IndexMissing) return "none";
    if (error instanceof AthanorError) return error;
    throw error;
  }
}
