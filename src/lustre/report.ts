/**
 * The report of `athanor layout`: how a file or the files of a folder lie on the OSTs, what is wrong with that, and (`advise`) what to change.
 * Changes nothing.
 *
 * @example
 * const report = await layoutReport("/mnt/lustre/d", { storage, advise: true });
 */
import { dirname, join } from "node:path";
import { runTool } from "../base/run-tool.ts";
import { formatNumber } from "../base/units.ts";
import { hostRoot, mountOf, readMounts } from "../storage/mounts.ts";
import type { Mount } from "../storage/mounts.ts";
import { advise, poolOf, useOf } from "./advice.ts";
import type { Advice, FileFacts, Use } from "./advice.ts";
import { askFiles } from "./ask.ts";
import { balanceOf, isWorthIt, movesOf } from "./balance.ts";
import type { Balance, Move } from "./balance.ts";
import { isReleased, staleMirrors } from "./layout.ts";
import { probeOsts } from "./probe.ts";
import type { Probe } from "./probe.ts";
import { optionsOf, quoted } from "./setstripe.ts";
import { hasSlowLinks } from "./slow-links.ts";
import { realPath, statOf, surveyOf } from "./survey.ts";
import type { Survey, SurveyOptions } from "./survey.ts";
import { clientVersion, readTargets, roomOf, usableTargets } from "./targets.ts";
import type { Target } from "./targets.ts";

export interface ReportOptions extends Omit<SurveyOptions, "beside"> {
  advise: boolean;
  /** @default what the files look like */
  use?: Use | undefined;
  /** Measure what several OSTs give, by a short read. @default false */
  probe?: boolean;
  /** Files that are not to be moved, relative to the folder. */
  stay?: ReadonlySet<string>;
  /** Moves that are named. @default 50 */
  moves?: number;
  /** Where /proc and /sys are looked for. @default $ATHANOR_HOST_ROOT, else `/` */
  root?: string;
}

export interface Finding {
  /** `problem`: data cannot be read, or writing it fails; `slow`: it costs time. */
  severity: "problem" | "slow";
  what: string;
  /** What to do about it. */
  fix: string | undefined;
}

export interface MoveAdvice extends Move {
  /** What `lfs migrate` is told of the layout. */
  words: readonly string[];
  command: string;
  undo: string;
}

export interface LustreReport {
  kind: "lustre";
  path: string;
  mount: Mount;
  client: string | undefined;
  targets: Target[];
  survey: Survey;
  balance: Balance;
  findings: Finding[];
  notes: string[];
  advice: Advice | undefined;
  /** Files to lay elsewhere so that the set lies evenly, the first ones; files that HSM has an archive of are left out. */
  moves: MoveAdvice[];
  /** How many there are in all, and their bytes. */
  movesInAll: { files: number; bytes: number };
  /** What was measured, or why it was not; undefined: not asked for. */
  probe: Probe | string | undefined;
  /** Folders below that hold files: each has a default of its own. */
  folders: number;
}

export interface OtherReport {
  kind: "other";
  path: string;
  mount: Mount;
  /** What the file system itself says of the path, in its own words; only CephFS does. */
  layout: string | undefined;
}

/** Throws what `surveyOf` throws. */
export async function layoutReport(asked: string, options: ReportOptions): Promise<LustreReport | OtherReport> {
  const root = options.root ?? hostRoot();
  const real = await realPath(asked, options.timeoutMs);
  const mount = mountOf(real, readMounts(root));
  if (mount.kind !== "lustre") {
    await statOf(real, options);
    return {
      kind: "other",
      path: real,
      mount,
      layout: mount.kind === "cephfs" ? await cephLayout(real, options) : undefined,
    };
  }
  const survey = await surveyOf(real, mount, { ...options, beside: options.advise });
  const { path } = survey;
  const { targets, notes } = await readTargets(mount, root, options.timeoutMs);
  const files = facts(survey);
  const pool = poolOf(survey.folder) ?? poolOf(survey.above);
  const { working, placeable } = await usableTargets(pool, mount, targets, options.timeoutMs);
  const balance = balanceOf(
    files,
    working.map(({ index }) => index),
  );
  const report: LustreReport = {
    kind: "lustre",
    path,
    mount,
    client: clientVersion(root),
    targets,
    survey,
    balance,
    findings: findingsOf(survey, files, targets, balance),
    notes: [...survey.notes, ...notes],
    advice: undefined,
    moves: [],
    movesInAll: { files: 0, bytes: 0 },
    probe: undefined,
    folders: new Set(survey.files.map((file) => dirname(file.path)).filter((name) => name !== ".")).size,
  };
  if (!options.advise) return report;
  // A count of OSTs taken from where the files happen to lie would advise from what is to be changed.
  if (targets.length === 0) {
    report.findings.push({ severity: "problem", what: "the OSTs are not known: no advice", fix: ASK_OSTS });
    return report;
  }
  report.advice = advise({
    folder: survey.kind === "folder" ? path : dirname(path),
    use: options.use ?? useOf(path, files),
    files,
    count: survey.listed,
    osts: Math.max(1, working.length),
    current: survey.folder,
    above: survey.above,
    mount: survey.mount,
    slowLinks: hasSlowLinks(mount, root),
  });
  const room = new Map(placeable.map((ost) => [ost.index, roomOf(ost)]));
  Object.assign(report, await movable(path, files, balance, room, options));
  const osts = working.map(({ index }) => index);
  if (options.probe === true) report.probe = await probeOsts(path, files, osts, options.python);
  return report;
}

/** A file has one of its own; a folder only if one was set there. */
async function cephLayout(path: string, options: ReportOptions): Promise<string | undefined> {
  const names = ["ceph.file.layout", "ceph.dir.layout"];
  const answers = await askFiles(
    names.map((xattr) => ({ path, xattr })),
    options,
  );
  const value = answers?.flatMap((answer) => ("value" in answer ? [answer.value] : []))[0];
  return value === undefined ? undefined : Buffer.from(value).toString("utf8");
}

const MOVES = 50;
/** Where nothing names the OSTs. */
export const ASK_OSTS = "run it where `lfs osts` and `lfs df` answer";
/** Files of which one call of `lfs hsm_state` is asked at most. */
const HSM_CALL = 400;
const EXAMPLES = 3;

function facts({ files }: Survey): FileFacts[] {
  return files.flatMap(({ path, size, layout }) =>
    layout === undefined || size === undefined ? [] : [{ path, size, layout }],
  );
}

function findingsOf(
  { files, listed }: Survey,
  placed: readonly FileFacts[],
  targets: readonly Target[],
  balance: Balance,
): Finding[] {
  const findings: Finding[] = [];
  const add = (severity: Finding["severity"], what: string, fix?: string): void =>
    void findings.push({ severity, what, fix });
  const named = (paths: readonly string[]): string =>
    paths.slice(0, EXAMPLES).join(", ") + (paths.length > EXAMPLES ? ` and ${paths.length - EXAMPLES} more` : "");
  const lost = new Map(
    targets.filter(({ state }) => state === "inactive" || state === "silent").map((ost) => [ost.index, ost]),
  );
  for (const { index, name, state } of lost.values()) {
    const here = files.filter(({ layout }) => layout?.components.some(({ osts }) => osts.includes(index)) === true);
    const effect =
      state === "inactive"
        ? "is switched off: reads of its stripes fail with EIO"
        : "does not answer: reads of its stripes hang";
    const what =
      here.length === 0 ? "" : `; ${formatNumber(here.length, "file")} here (${named(here.map(({ path }) => path))})`;
    add("problem", `OST ${index} (${name}) ${effect}${what}`, "ask the admin; `lfs check osts` tells when it is back");
  }
  for (const { index, name, state } of targets) {
    if (state === "full")
      add(
        "problem",
        `OST ${index} (${name}) is full: writing a file that has a stripe there fails with ENOSPC, whatever \`df\` says`,
        "new files avoid it; move or delete files on it",
      );
    if (state === "filling") add("slow", `OST ${index} (${name}) is more than 85 % full`);
    if (state === "degraded") add("slow", `OST ${index} (${name}) is degraded (a disk is being rebuilt)`);
    if (state === "read-only") add("problem", `OST ${index} (${name}) takes no new data`);
  }
  const released = files.filter(({ layout }) => layout !== undefined && isReleased(layout)).map(({ path }) => path);
  if (released.length > 0)
    add(
      "problem",
      `${formatNumber(released.length, "file")} released to HSM (${named(released)}): the first read of one waits until it is restored`,
      "restore before training: `lfs hsm_restore FILE`",
    );
  const stale = files.filter(({ layout }) => layout !== undefined && staleMirrors(layout).length > 0);
  if (stale.length > 0) {
    const { path, layout } = stale[0]!;
    const mirrors = staleMirrors(layout!).join(", ");
    add(
      "slow",
      `${formatNumber(stale.length, "file")} with a mirror that is stale (${path}: mirror ${mirrors})`,
      "`lfs mirror resync FILE`",
    );
  }
  const holding = balance.osts.filter(({ bytes }) => bytes > 0);
  if (placed.length > 1 && isWorthIt(balance)) {
    const [now, could] = [balance.parallel.toFixed(1), balance.possible.toFixed(1)];
    if (holding.length === 1)
      add(
        "slow",
        `all ${placed.length} files${placed.length < listed ? " that were looked at" : ""} lie on OST ${holding[0]!.index}`,
      );
    else add("slow", `unevenly placed: while all of it is read ${now} OSTs work at a time, ${could} could`);
  }
  const faults = files.filter(({ fault }) => fault !== undefined);
  if (faults.length > 0)
    add(
      "problem",
      `${formatNumber(faults.length, "file")} of which layout or size is not known (${faults[0]!.path}: ${faults[0]!.fault})`,
    );
  return findings;
}

/** Moves with their lines. A file that HSM has an archive of stays: a new layout would make the archive stale. */
async function movable(
  folder: string,
  files: readonly FileFacts[],
  balance: Balance,
  room: ReadonlyMap<number, number>,
  options: ReportOptions,
): Promise<Pick<LustreReport, "moves" | "movesInAll">> {
  const layouts = new Map(files.map(({ path, layout }) => [path, layout]));
  const stay = new Set(options.stay);
  let all: Move[] = [];
  const { moves: most = MOVES } = options;
  // Others in place of archived ones, more at a time the more of these there are.
  for (let many = most; ; many = Math.min(2 * many, HSM_CALL)) {
    const free = files.filter(({ path, layout }) => !stay.has(path) && layout.foreign === undefined);
    all = movesOf(free, balance, room);
    if (all.length === 0) break;
    const asked = all.slice(0, many);
    const paths = asked.map(({ path }) => join(folder, path));
    // oxlint-disable-next-line no-await-in-loop -- the next round depends on this one
    const ran = await runTool("lfs", ["hsm_state", ...paths], { timeoutMs: options.timeoutMs });
    const states = new Map(
      [...ran.stdout.matchAll(/^(.*): \(0x[0-9a-f]+\)(.*)$/gm)].map(([, path, words]) => [path, words!]),
    );
    // One of which nothing is told stays, too.
    const found = asked.filter((_, i) => /\barchived\b/.test(states.get(paths[i]) ?? "archived"));
    for (const { path } of found) stay.add(path);
    if (!asked.slice(0, most).some(({ path }) => stay.has(path)) || states.size === 0) break;
  }
  const movesInAll = { files: all.length, bytes: all.reduce((sum, { size }) => sum + size, 0) };
  const moves = all.slice(0, most).flatMap((move) => {
    if (stay.has(move.path)) return [];
    const words = (ost: number): string[] => optionsOf(layouts.get(move.path)!, ost)!;
    const line = (ost: number): string =>
      ["lfs migrate --non-block", ...words(ost), quoted(join(folder, move.path))].join(" ");
    return [{ ...move, words: words(move.to), command: line(move.to), undo: line(move.from) }];
  });
  return { moves, movesInAll };
}
