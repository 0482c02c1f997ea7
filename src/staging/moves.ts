/**
 * Moves: lays files of a folder on other OSTs as `layout advise` says, one at a time, by `lfs migrate --non-block`.
 *
 * Contract: before each file: nobody on this node reads it, no archive has it, target and quotas have room for a second copy; after it: it lies
 * where it should, and size, mtime and (`verify`) CRC32C of all bytes are as before. What stays is told with the reason. A line before and
 * one behind each move go into a journal in the folder: a run that was killed in the middle of one looks first whether that file is whole.
 *
 * @example
 * const { moved, stayed } = await moveFiles("/mnt/lustre/d", { files, storage, verify: true });
 */
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { openBy, sourcesInUse } from "../agent/uses.ts";
import { CALL_MS } from "../base/run-tool.ts";
import { Usage } from "../base/usage.ts";
import { LayoutUnreadable } from "../lustre/errors.ts";
import { migrate, ostOf, unmovable } from "../lustre/migrate.ts";
import type { LustreReport, MoveAdvice, OtherReport, ReportOptions } from "../lustre/report.ts";
import { ASK_OSTS, layoutReport } from "../lustre/report.ts";
import { realPath } from "../lustre/survey.ts";
import { hostRoot } from "../storage/mounts.ts";
import { CopyDiffers, CopySourceChanged } from "./errors.ts";
import type { Files } from "./files.ts";
import { Journal } from "./journal.ts";

export interface MoveRun extends Omit<ReportOptions, "advise" | "stay" | "moves" | "progress"> {
  files: Files;
  /** Read each file before and after. */
  verify: boolean;
  /** Bytes a second, of `lfs migrate` and of what is read. @default no limit */
  bandwidth?: number | undefined;
  progress?: (done: number, total: number, what: string) => void;
}

export interface MoveResult {
  path: string;
  moved: MoveAdvice[];
  stayed: { path: string; why: string }[];
  notes: string[];
  journal: string;
}

interface Facts {
  size: number;
  mtimeNs: string;
  /** Null: not read. */
  crc32c: number | null;
}

/** `begin`: what the file was; `moved`, `stayed`: how it went. */
type MoveLine =
  | ({ state: "begin"; path: string; from: number; to: number; undo: string } & Facts)
  | { state: "moved" | "stayed"; path: string };

export const MOVES_JOURNAL = ".athanor-moves.jsonl";
/** Failures of `lfs migrate` in a row, after which the others would fail, too. */
const FAILURES = 3;
/** Each survey asks for the layouts and sizes of all files. */
const MOVES_A_SURVEY = 400;

/** Not a Lustre: its report. Throws ATH_COPY_DIFFERS, ATH_COPY_SOURCE_CHANGED, ATH_LAYOUT_NOT_MOVED, ATH_LAYOUT_UNREADABLE, ATH_USAGE. */
export async function moveFiles(path: string, options: MoveRun): Promise<MoveResult | OtherReport> {
  const { files, storage, timeoutMs, polite, use, limit, root = hostRoot() } = options;
  const stay = new Set<string>();
  let result: MoveResult | undefined;
  let journal: Journal<MoveLine> | undefined;
  let failures = 0;
  let [done, total] = [0, 0];
  const ask = {
    storage,
    root,
    advise: true,
    stay,
    moves: MOVES_A_SURVEY,
    ...defined({ timeoutMs, polite, use, limit }),
  };
  for (;;) {
    // oxlint-disable-next-line no-await-in-loop -- what is left to do depends on what was done
    const report = await layoutReport(path, ask);
    if (report.kind === "other") return report;
    const folder = report.path;
    if (result === undefined) {
      // oxlint-disable-next-line no-await-in-loop -- the first time only
      await refuseMoves(path, report, timeoutMs);
      const file = join(folder, MOVES_JOURNAL);
      result = { path: folder, moved: [], stayed: [], notes: [], journal: file };
      // oxlint-disable-next-line no-await-in-loop -- the first time only
      journal = await Journal.read<MoveLine>(files, file, "moves");
      // oxlint-disable-next-line no-await-in-loop -- the first time only
      result.notes.push(...(await afterKill(folder, journal, options)));
      total = report.movesInAll.bytes;
    }
    if (report.moves.length === 0) return result;
    for (const move of report.moves) {
      options.progress?.(done, Math.max(total, done), move.path);
      // oxlint-disable-next-line no-await-in-loop -- one file at a time
      const why = await moveOne(report, move, journal!, options, result.notes);
      if (why === undefined) result.moved.push(move);
      else result.stayed.push({ path: move.path, why });
      failures = why?.startsWith("`lfs migrate`") === true ? failures + 1 : 0;
      if (failures === FAILURES) {
        result.notes.push(`ended behind ${FAILURES} failures of \`lfs migrate\` in a row`);
        return result;
      }
      stay.add(move.path);
      done += move.size;
    }
  }
}

/** Throws where there is no set to lay evenly: of a file, or over OSTs that nobody tells. */
export async function refuseMoves(asked: string, report: LustreReport, timeoutMs?: number): Promise<void> {
  const file = await realPath(asked, timeoutMs);
  if (file !== report.path)
    throw new Usage("--migrate lays a whole folder evenly, and this is a file", { file }, `name ${report.path}`);
  if (report.targets.length === 0)
    throw new LayoutUnreadable(`the OSTs are not known: ${report.notes.join("; ")}`, { file }, ASK_OSTS);
}

/** Why it stays; undefined: it was moved. */
async function moveOne(
  report: LustreReport,
  move: MoveAdvice,
  journal: Journal<MoveLine>,
  options: MoveRun,
  notes: string[],
): Promise<string | undefined> {
  const { files, timeoutMs, polite, bandwidth, root = hostRoot() } = options;
  const path = join(report.path, move.path);
  // Who has it open knows it by another name.
  const real = await realPath(path, timeoutMs).catch(() => undefined);
  if (real === undefined) return "it cannot be looked at now";
  if (real !== path) return "it is a link, or behind one: name the folder that it lies in";
  const owner = await files.call({ op: "look", path });
  if (owner === undefined) return "it is gone";
  const asked = { mount: report.mount, root, owner, bandwidth, ...defined({ timeoutMs, polite }) };
  const used = (await usedBy(path, notes, timeoutMs)) ?? (await unmovable(path, move, asked));
  if (used !== undefined) return used;
  const before = await factsOf(path, options);
  if (before.size !== move.size) return "it changes now";
  const { path: name, from, to, undo } = move;
  await journal.begin({ athanor: "moves", version: 1, from: report.path });
  await journal.add({ state: "begin", path: name, from, to, undo, ...before });
  const began = performance.now();
  const why = await migrate(path, move, move.words, asked);
  const after = await factsOf(path, options);
  compare(path, before, after, notes);
  await journal.add({ state: why === undefined ? "moved" : "stayed", path: name });
  // So that the mean holds where `lfs migrate` has no limit of its own.
  if (bandwidth !== undefined) await sleep((1000 * move.size) / bandwidth - (performance.now() - began));
  return why;
}

/** Who reads it on this node. */
async function usedBy(path: string, notes: string[], timeoutMs = CALL_MS): Promise<string | undefined> {
  const { sources, silent } = await sourcesInUse(timeoutMs);
  for (const folder of silent) {
    const note = `the agent in ${folder} does not say what it reads (stopped, or of an older version): files that it has open stay, no others of its data`;
    if (!notes.includes(note)) notes.push(note);
  }
  for (const { source, pid } of sources) {
    // All of the folder that a glob begins in.
    const wild = source.search(/[*?[{]/);
    const place = wild < 0 ? source : source.slice(0, source.lastIndexOf("/", wild) + 1);
    // oxlint-disable-next-line no-await-in-loop -- few
    const real = await realPath(place, timeoutMs).catch(() => place);
    const pair = real.replace(/\.[^./]*$/, "");
    if (path === real || path.startsWith(`${real}/`) || (pair !== real && path.startsWith(`${pair}.`)))
      return `a session of the agent with pid ${pid} reads ${source}`;
  }
  const by = openBy(path);
  return by === undefined ? undefined : `${by} has it open`;
}

async function factsOf(path: string, { files, verify, bandwidth }: MoveRun): Promise<Facts> {
  const found = await files.call({ op: "look", path });
  if (found === undefined) throw new CopySourceChanged("is gone", { file: path }, "end what removes files there");
  const { size, mtimeNs } = found;
  if (!verify) return { size, mtimeNs: String(mtimeNs), crc32c: null };
  const sum = await files.call({ op: "sum", path, ...defined({ bandwidth }) });
  return { size: sum.size, mtimeNs: String(mtimeNs), crc32c: sum.crc32c };
}

function compare(path: string, before: Facts, after: Facts, notes: string[]): void {
  const text = ({ size, mtimeNs, crc32c }: Facts): string =>
    `${size} bytes of ${mtimeNs} ns${crc32c === null ? "" : `, CRC32C ${crc32c.toString(16).padStart(8, "0")}`}`;
  const what = `found ${text(after)}, before the move ${text(before)}`;
  const summed = before.crc32c !== null && after.crc32c !== null;
  const same = after.size === before.size && (!summed || after.crc32c === before.crc32c);
  if (same && after.mtimeNs === before.mtimeNs) return;
  // Somebody wrote: then other bytes say nothing of the move.
  if (after.mtimeNs !== before.mtimeNs && !(same && summed))
    throw new CopySourceChanged(`changed while it was moved: ${what}`, { file: path }, "end what writes there");
  if (!same)
    throw new CopyDiffers(
      `holds other bytes than before the move: ${what}`,
      { file: path },
      "nothing was moved after it; compare it with its source, and tell the admin",
    );
  notes.push(`${path}: the same bytes with another mtime: \`athanor index --adopt\` before it is read`);
}

/** What became of a file whose move a kill met in the middle. */
async function afterKill(folder: string, journal: Journal<MoveLine>, options: MoveRun): Promise<string[]> {
  const open = journal.lines.at(-1);
  if (open?.state !== "begin") return [];
  const { path: name, to, undo, size, mtimeNs, crc32c } = open;
  const path = join(folder, name);
  const notes: string[] = [];
  const verify = crc32c !== null;
  let how = verify ? "every byte is as before" : "size and mtime are as before";
  try {
    compare(path, { size, mtimeNs, crc32c }, await factsOf(path, { ...options, verify }), notes);
  } catch (error) {
    // Somebody has removed or written it since: nothing is known of the move, and nothing keeps the others.
    if (!(error instanceof CopySourceChanged)) throw error;
    how = `it ${error.what}`;
  }
  // `lfs migrate` may have ended by itself before, or behind, whoever called it.
  const moved = (await ostOf(path, options)) === to;
  const where = moved ? `; it was moved, undo: ${undo}` : "";
  await journal.add({ state: moved ? "moved" : "stayed", path: name });
  return [`${name} was being moved when the last run ended: ${how}${where}`, ...notes];
}

/** Without the keys that are undefined. */
function defined<Values extends object>(values: Values): { [Key in keyof Values]?: NonNullable<Values[Key]> } {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined)) as never;
}
