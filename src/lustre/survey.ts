/**
 * Survey: the layouts and sizes of a file, or of a folder and the files below it; what `athanor layout` reports on and advises from.
 *
 * As little as possible is asked of the file system: one listing, one xattr a file, one size a file (`ask.ts`); of more than `limit` files
 * an even choice. A file that lies on an OST that did not answer is not asked for its size. Nothing here waits for a lost mount.
 *
 * @example
 * const survey = await surveyOf("/mnt/lustre/d", mount, { storage, root: "/" });
 */
import { basename, dirname, join, resolve } from "node:path";
import { messageOf } from "../base/errors.ts";
import { CALL_MS, runTool } from "../base/run-tool.ts";
import type { ToolResult } from "../base/run-tool.ts";
import { NotFound, systemError } from "../storage/errors.ts";
import { findMount, readMounts } from "../storage/mounts.ts";
import type { Mount } from "../storage/mounts.ts";
import type { Storage } from "../storage/types.ts";
import { askFiles, spared } from "./ask.ts";
import type { Answer, AskOptions, Question } from "./ask.ts";
import { LayoutUnreadable } from "./errors.ts";
import { parseGetstripe } from "./getstripe.ts";
import type { Layout } from "./layout.ts";
import { decodeLov } from "./lov.ts";

export interface SurveyedFile {
  /** Relative to the folder; of a single file its name. */
  path: string;
  /** Undefined: it has none of its own (never written), or `fault` says why it is not known. */
  layout: Layout | undefined;
  /** Bytes; undefined: not told, see `fault`. */
  size: number | undefined;
  fault: string | undefined;
}

export interface Survey {
  kind: "file" | "folder";
  /** Absolute, without symbolic links. */
  path: string;
  /** Files below the folder; `files` may be a choice of them. */
  listed: number;
  files: SurveyedFile[];
  /** What a new file in the folder would get; of a single file, its folder. */
  folder: Layout | undefined;
  /** The same of the folder above, and of the mount. */
  above: Layout | undefined;
  mount: Layout | undefined;
  notes: string[];
}

export interface SurveyOptions extends AskOptions {
  storage: Storage;
  /** Files that are looked at. @default 10000 */
  limit?: number;
  /** Of a file, its folder: what a file should be depends on what lies beside it. @default false */
  beside?: boolean;
  progress?: (done: number, total: number, what: string) => void;
}

const XATTR = "lustre.lov";
const LIST_MS = 120_000;
/** Without Python a process a file: only as many as a user would wait for. */
const LIMIT_BY_LFS = 200;

/** Throws ATH_NOT_FOUND, ATH_ACCESS_DENIED, ATH_LAYOUT_UNREADABLE. `path`: as `realPath` gives it. */
export async function surveyOf(path: string, mount: Mount, options: SurveyOptions): Promise<Survey> {
  const { itself, bulk } = await statOf(path, options);
  // A file that does not answer is still one whose layout can be read.
  const kind = "folder" in itself && itself.folder ? "folder" : "file";
  // A folder that does not answer passes for a file: once up, not on to the root.
  if (kind === "file" && options.beside === true)
    return await surveyOf(dirname(path), mount, { ...options, beside: false });
  const folder = kind === "folder" ? path : dirname(path);
  const names = kind === "folder" ? await listed(path, options.storage) : [basename(path)];
  const limit = Math.min(options.limit ?? 10_000, bulk ? Infinity : LIMIT_BY_LFS);
  const chosen = evenly(names, limit);
  const notes: string[] = [];
  if (!bulk) notes.push("no Python here: `lfs getstripe` was called for each file");
  const paths = chosen.map((name) => join(folder, name));
  options.progress?.(0, paths.length, "layouts");
  const layouts = bulk ? await layoutsByXattr(paths, options) : await layoutsByTool(paths, options);
  options.progress?.(paths.length, paths.length, "sizes");
  const sizes = kind === "file" ? [itself] : await sizesOf(paths, layouts, bulk, options);
  const files = chosen.map((name, i): SurveyedFile => {
    const size = sizes[i]!;
    const { layout, fault } = layouts[i]!;
    const sizeFault = "code" in size ? `size not known: ${size.message}` : undefined;
    return { path: name, layout, size: "size" in size ? size.size : undefined, fault: fault ?? sizeFault };
  });
  const outside = folder === mount.point ? undefined : dirname(folder);
  const own = await defaultOf(folder, options);
  const above = outside === undefined ? undefined : await defaultOf(outside, options);
  // Each is a process, and near the mount point two of the three are the same folder.
  const top = outside === undefined ? own : outside === mount.point ? above : await defaultOf(mount.point, options);
  return { kind, path, listed: names.length, files, folder: own, above, mount: top, notes };
}

/** Absolute and without symbolic links, found by a process of its own: a lost mount does not answer. Throws as `surveyOf`. */
export async function realPath(path: string, timeoutMs = CALL_MS): Promise<string> {
  const ran = await runTool("realpath", ["--", path], { timeoutMs });
  if (ran.status === 0) return ran.stdout.replace(/\n$/, "");
  if (ran.missing) return resolve(path);
  if (ran.timedOut) throw silent(path, timeoutMs);
  if (/Permission denied/.test(ran.stderr))
    throw systemError({ code: "EACCES", message: ran.stderr.trim(), path, byteOffset: undefined });
  throw new NotFound(
    "no such file or folder",
    { file: path },
    "check the path and that the file system is mounted",
    ran.stderr.trim(),
  );
}

/** The mount that holds `path`, which may have symbolic links; undefined: that cannot be told, and whoever reads it will say why. */
export async function mountHolding(path: string, root: string, timeoutMs?: number): Promise<Mount | undefined> {
  try {
    return findMount(await realPath(path, timeoutMs), readMounts(root));
  } catch {
    return undefined;
  }
}

/** `bulk`: there is a Python to ask many. Throws ATH_NOT_FOUND, ATH_ACCESS_DENIED; a call that hangs is an answer. */
export async function statOf(path: string, options: AskOptions): Promise<{ itself: Answer; bulk: boolean }> {
  const first = await askFiles([{ path }], options);
  const itself = first?.[0] ?? (await sizeByTool(path, options));
  if ("code" in itself && itself.hung !== true)
    throw systemError({ code: itself.code, message: itself.message, path, byteOffset: undefined });
  return { itself, bulk: first !== undefined };
}

interface Found {
  layout: Layout | undefined;
  fault: string | undefined;
}

/** In the order of `paths`; none where there is no Python. */
export async function layoutsByXattr(paths: readonly string[], options: AskOptions): Promise<Found[]> {
  const answers = await askFiles(
    paths.map((path) => ({ path, xattr: XATTR })),
    options,
  );
  return (answers ?? []).map((answer, i) => foundIn(answer, paths[i]!));
}

function foundIn(answer: Answer, path: string): Found {
  if ("code" in answer) {
    // ENODATA: the file has never been written, or the folder has no default of its own.
    if (answer.code === "ENODATA") return { layout: undefined, fault: undefined };
    return { layout: undefined, fault: `layout not known: ${answer.message}` };
  }
  if (!("value" in answer)) return { layout: undefined, fault: "layout not known" };
  return attempt(() => decodeLov(answer.value, path));
}

function attempt(read: () => Layout | undefined): Found {
  try {
    return { layout: read(), fault: undefined };
  } catch (error) {
    return { layout: undefined, fault: messageOf(error) };
  }
}

/** One file a call: the blocks of several carry no names. */
async function layoutsByTool(paths: readonly string[], options: SurveyOptions): Promise<Found[]> {
  const found: Found[] = [];
  for (const path of paths) {
    // oxlint-disable-next-line no-await-in-loop -- one at a time is the manners of a guest
    const ran = await runTool("lfs", ["getstripe", "-y", path], { timeoutMs: options.timeoutMs });
    if (ran.missing) {
      throw new LayoutUnreadable(
        "neither Python nor `lfs` is here to read a layout",
        { file: path },
        "put one of them on PATH, or name a Python with ATHANOR_PYTHON",
      );
    }
    found.push(printedLayout(ran, path));
  }
  return found;
}

function printedLayout(ran: ToolResult, path: string): Found {
  if (ran.status === 0) return attempt(() => parseGetstripe(ran.stdout, path)[0]?.layout);
  const why = ran.timedOut ? "no answer" : ran.stderr.trim().split("\n")[0];
  return { layout: undefined, fault: `layout not known: ${why}` };
}

async function sizesOf(
  paths: readonly string[],
  layouts: readonly Found[],
  bulk: boolean,
  options: SurveyOptions,
): Promise<Answer[]> {
  const osts = new Map(
    paths.map((path, i) => [path, layouts[i]!.layout?.components.flatMap((part) => part.osts) ?? []]),
  );
  // A size is asked of each OST of the file: one that kept a file waiting keeps all of its files waiting.
  const spare = ({ path }: Question, hung: readonly Question[]): string | undefined => {
    const here = osts.get(path)!;
    const other = hung.find(
      (one) => osts.get(one.path)!.length > 0 && osts.get(one.path)!.every((ost) => here.includes(ost)),
    );
    return other === undefined ? undefined : `on the OSTs of ${basename(other.path)}, which did not answer`;
  };
  const answers = bulk
    ? await askFiles(
        paths.map((path) => ({ path })),
        { ...options, spare },
      )
    : undefined;
  if (answers !== undefined) return answers;
  const told: Answer[] = [];
  const hung: Question[] = [];
  for (const path of paths) {
    const why = spare({ path }, hung);
    // oxlint-disable-next-line no-await-in-loop -- one at a time is the manners of a guest
    const answer = why === undefined ? await sizeByTool(path, options) : spared(why);
    if ("code" in answer && answer.hung === true && why === undefined) hung.push({ path });
    told.push(answer);
  }
  return told;
}

async function sizeByTool(path: string, { timeoutMs }: AskOptions): Promise<Answer> {
  const ran = await runTool("stat", ["-L", "-c", "%s %F", "--", path], { timeoutMs });
  const found = /^(\d+) (.*)$/m.exec(ran.stdout);
  if (found !== null) return { size: Number(found[1]), folder: found[2] === "directory" };
  if (ran.timedOut) return { code: "ETIMEDOUT", message: "no answer", hung: true };
  const code = /Permission denied/.test(ran.stderr) ? "EACCES" : /No such file/.test(ran.stderr) ? "ENOENT" : "EIO";
  return { code, message: ran.stderr.trim() };
}

/** What `lfs getstripe -d` prints, which knows the first OST; else the xattr. Undefined: not told. */
export async function defaultOf(folder: string, options: AskOptions): Promise<Layout | undefined> {
  const ran = await runTool("lfs", ["getstripe", "-d", "-y", folder], { timeoutMs: options.timeoutMs });
  if (ran.status === 0) return printedLayout(ran, folder).layout;
  const answers = await askFiles([{ path: folder, xattr: XATTR }], options);
  return answers === undefined ? undefined : foundIn(answers[0]!, folder).layout;
}

async function listed(folder: string, storage: Storage): Promise<string[]> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(silent(folder, LIST_MS)), LIST_MS);
  });
  try {
    return await Promise.race([storage.names(folder), late]);
  } finally {
    clearTimeout(timer);
  }
}

function silent(path: string, ms: number): Error {
  return new LayoutUnreadable(
    `the file system has not answered for ${ms / 1000} s`,
    { file: path },
    "check the mount and the node's kernel log",
  );
}

function evenly(names: readonly string[], limit: number): string[] {
  if (names.length <= limit) return [...names];
  return Array.from({ length: limit }, (_, i) => names[Math.floor((i * names.length) / limit)]!);
}
