/**
 * Sets the striping of a folder as `advice.ts` says: for new files only, no byte is moved, and the line that undoes it is known before it is
 * done. What is set afterwards is read back; if it is not what was asked for, it is undone.
 *
 * @example
 * await applyAdvice(await layoutReport("/mnt/lustre/d", { storage, advise: true }), {});
 */
import { runTool } from "../base/run-tool.ts";
import { describeLayout } from "./advice.ts";
import type { Change } from "./advice.ts";
import type { AskOptions } from "./ask.ts";
import { LayoutNotApplied } from "./errors.ts";
import type { LustreReport } from "./report.ts";
import { defaultOf } from "./survey.ts";

/** Undefined: the folder is set that way already. Throws ATH_LAYOUT_NOT_APPLIED. */
export async function applyAdvice(
  { path, mount, advice }: LustreReport,
  options: AskOptions,
): Promise<Change | undefined> {
  const change = advice?.change;
  if (change === undefined) return undefined;
  if (change.undoOptions === undefined)
    throw new LayoutNotApplied(
      "what is set now is not known, so it could not be undone",
      { file: path },
      "check that `lfs` is on PATH",
    );
  if (path === mount.point) {
    throw new LayoutNotApplied(
      "this folder is the file system's own: its default holds for everybody's folders",
      { file: path },
      "name a folder of yours in it; the whole file system is the admin's to change",
    );
  }
  await setDefault(path, change, options);
  return change;
}

/** Sets the default of a folder, and takes it back if another one is found set then. Throws ATH_LAYOUT_NOT_APPLIED. */
export async function setDefault(
  path: string,
  { options: wanted, undoOptions, undo }: Change,
  options: AskOptions,
): Promise<void> {
  const where = { file: path };
  const set = (words: readonly string[]) =>
    runTool("lfs", ["setstripe", ...words, path], { timeoutMs: options.timeoutMs });
  const ran = await set(wanted);
  if (ran.timedOut) {
    throw new LayoutNotApplied(
      "`lfs setstripe` does not answer; it may still take effect",
      where,
      `look with \`lfs getstripe -d\` later; undo: ${undo}`,
    );
  }
  if (ran.status !== 0) {
    const cause = ran.missing ? "there is no `lfs` here" : ran.stderr.trim();
    throw new LayoutNotApplied(
      `\`lfs setstripe\` failed: ${cause.split("\n")[0]}`,
      where,
      "nothing was changed",
      cause,
    );
  }
  const after = await defaultOf(path, options);
  const found = after === undefined ? "not known" : describeLayout(after);
  if (found === wanted.join(" ")) return;
  const undone = undoOptions !== undefined && (await set(undoOptions)).status === 0;
  throw new LayoutNotApplied(
    `after \`lfs setstripe\` the folder was set to: ${found}, expected ${wanted.join(" ")}`,
    where,
    undone ? "it was undone" : `undo it: ${undo}`,
  );
}
