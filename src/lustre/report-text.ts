/** The report of `athanor layout` for eyes and as JSON. */
import { formatDuration, formatNumber, formatSize } from "../base/units.ts";
import { MOUNT_NAMES, mountAdvice } from "../storage/mount-advice.ts";
import type { Mount } from "../storage/mounts.ts";
import { describeLayout } from "./advice.ts";
import type { Advice } from "./advice.ts";
import { END_OF_FILE, isReleased, spreadOf } from "./layout.ts";
import type { Component, Layout } from "./layout.ts";
import { secondsOf } from "./probe.ts";
import type { Probe } from "./probe.ts";
import type { LustreReport, OtherReport } from "./report.ts";
import type { Target } from "./targets.ts";

/** Plain objects: extents beyond 2^53 as decimal strings, the end of the file as null. */
export function reportJson(report: LustreReport | OtherReport): object {
  if (report.kind === "other") {
    const { path, mount, layout } = report;
    return { path, mount, layout: layout ?? null, fits: mountAdvice(mount) };
  }
  const { path, mount, client, targets, survey, balance, findings, notes, advice, moves, movesInAll, folders } = report;
  const { probe } = report;
  const files = survey.files.map(({ path: name, layout, size, fault }) => ({
    path: name,
    size: size ?? null,
    layout: layoutJson(layout),
    released: layout !== undefined && isReleased(layout),
    fault: fault ?? null,
  }));
  return {
    path,
    mount,
    client: client ?? null,
    targets: targets.map((target) => ({ ...target, total: target.total ?? null, available: target.available ?? null })),
    kind: survey.kind,
    listed: survey.listed,
    folder: layoutJson(survey.folder),
    above: layoutJson(survey.above),
    balance,
    findings,
    notes,
    advice: advice ?? null,
    moves,
    movesInAll,
    probe: probe ?? null,
    folders,
    files,
  };
}

function layoutJson(layout: Layout | undefined): object | null {
  if (layout === undefined) return null;
  const plain = (value: bigint): number | string =>
    value <= BigInt(Number.MAX_SAFE_INTEGER) ? Number(value) : String(value);
  const components = layout.components.map((component) => ({
    ...component,
    start: plain(component.start),
    end: component.end === END_OF_FILE ? null : plain(component.end),
  }));
  return { ...layout, components };
}

export function reportText(report: LustreReport | OtherReport): string {
  if (report.kind === "other") {
    const { path, mount, layout } = report;
    const lines = [...(layout === undefined ? [] : [`layout: ${layout}`]), ...mountAdvice(mount)];
    return [mountLine(path, mount), ...lines.map((line) => `  ${line}`)].join("\n");
  }
  const { path, mount, client, targets, survey, findings, notes, advice, moves } = report;
  const lines = [`${mountLine(path, mount)}${client === undefined ? "" : `, client ${client}`}`];
  lines.push(...(survey.kind === "file" ? fileLines(report) : folderLines(report)));
  lines.push("", `targets: ${targetsLine(targets)}`);
  for (const note of notes) lines.push(`  ${note}`);
  if (findings.length > 0) lines.push("");
  for (const { severity, what, fix } of findings)
    lines.push(`${severity}: ${what}${fix === undefined ? "" : ` (${fix})`}`);
  if (advice !== undefined) lines.push("", ...adviceLines(advice, report.folders));
  if (moves.length > 0) lines.push("", ...moveLines(report));
  if (report.probe !== undefined) lines.push("", ...probeLines(report.probe, report));
  return lines.join("\n");
}

function mountLine(path: string, mount: Mount): string {
  const name = mount.kind === "other" ? mount.type : MOUNT_NAMES[mount.kind];
  const from = mount.source === "" || mount.source === "none" || mount.source === mount.type ? "" : `, ${mount.source}`;
  return `${path}: ${name}${from} at ${mount.point}`;
}

function fileLines({ survey }: LustreReport): string[] {
  const { layout, size, fault } = survey.files[0]!;
  const lines = [size === undefined ? "size not known" : formatSize(size)];
  if (fault !== undefined) lines.push(fault);
  if (layout === undefined)
    return fault === undefined ? [...lines, "no layout of its own yet: nothing has been written"] : lines;
  if (layout.foreign !== undefined) lines.push(`a foreign layout of type ${layout.foreign.type}`);
  const reached = size === undefined ? undefined : layout.components.filter(({ start }) => start < BigInt(size)).length;
  for (const [i, component] of layout.components.entries()) lines.push(`  ${componentText(component, layout, i)}`);
  if (layout.composite && layout.mirrors === 1 && reached !== undefined)
    lines.push(`  the file reaches ${reached} of ${layout.components.length} components`);
  if (size !== undefined && size > 0) {
    const { osts, mdt } = spreadOf(layout, 0n, BigInt(size));
    const parts = [...osts].map(([ost, bytes]) => `OST ${ost} ${formatSize(Number(bytes))}`);
    if (mdt > 0n) parts.unshift(`metadata server ${formatSize(Number(mdt))}`);
    if (parts.length > 0) lines.push(`  bytes: ${parts.slice(0, 40).join(", ")}${parts.length > 40 ? ", …" : ""}`);
  }
  return lines;
}

function componentText(component: Component, layout: Layout, i: number): string {
  const { start, end, pattern, stripeCount, stripeSize, extensionSize, pool, osts, mirror, flags } = component;
  const range = layout.composite
    ? `${formatSize(Number(start))} to ${end === END_OF_FILE ? "the end" : formatSize(Number(end))}: `
    : "";
  const words = layout.mirrors > 1 ? [`mirror ${mirror}`] : layout.composite ? [`component ${i + 1}`] : [];
  const where = osts.length === 0 ? "not written" : `OST ${osts.slice(0, 64).join(" ")}${osts.length > 64 ? " …" : ""}`;
  const what = pattern.includes("mdt")
    ? "on the metadata server"
    : extensionSize === undefined
      ? `${stripeCount === -1 ? "over all OSTs" : formatNumber(stripeCount, "stripe")} of ${formatSize(stripeSize)}, ${where}`
      : `in reserve, taken in steps of ${formatSize(extensionSize)}`;
  const states = [
    ...pattern.filter((name) => name === "overstriped" || name === "released"),
    ...flags.filter((flag) => flag === "stale"),
  ];
  const more = [...(pool === undefined ? [] : [`pool ${pool}`]), ...states];
  return `${[...words, range + what].join(" · ")}${more.length > 0 ? ` (${more.join(", ")})` : ""}`;
}

function folderLines({ survey, balance }: LustreReport): string[] {
  const { files, listed, folder } = survey;
  const bytes = files.reduce((sum, { size }) => sum + (size ?? 0), 0);
  const looked = files.length < listed ? `, ${formatNumber(files.length, "file")} of them looked at` : "";
  const lines = [`${formatNumber(listed, "file")}${looked}, ${formatSize(bytes)}`];
  lines.push(`new files here: ${folder === undefined ? "not known" : describeLayout(folder)}`);
  const shapes = new Map<string, { files: number; bytes: number }>();
  for (const { layout, size } of files) {
    if (layout === undefined) continue;
    const shape = describeLayout(layout);
    const row = shapes.get(shape) ?? { files: 0, bytes: 0 };
    shapes.set(shape, { files: row.files + 1, bytes: row.bytes + (size ?? 0) });
  }
  const sorted = [...shapes].sort((a, b) => b[1].files - a[1].files);
  for (const [shape, row] of sorted.slice(0, SHAPES))
    lines.push(`  ${formatNumber(row.files, "file")}, ${formatSize(row.bytes)}: ${shape}`);
  if (sorted.length > SHAPES) lines.push(`  and ${formatNumber(sorted.length - SHAPES, "other layout")}`);
  if (files.length > 0) lines.push("", ...balanceLines(balance));
  return lines;
}

const SHAPES = 8;
const BAR = 24;
/** A page; beyond it only the ends of the list are of interest. */
const OSTS_SHOWN = 40;

function balanceLines({ osts, mdt, none, parallel, possible }: LustreReport["balance"]): string[] {
  const most = Math.max(1, ...osts.map(({ bytes }) => bytes));
  const shown = osts.length <= OSTS_SHOWN ? osts : [...osts].sort((a, b) => b.bytes - a.bytes).slice(0, OSTS_SHOWN);
  const lines = shown.map(({ index, bytes, files }) => {
    const bar = "#".repeat(Math.round((BAR * bytes) / most)).padEnd(BAR);
    return `  OST ${String(index).padStart(4)}  ${bar}  ${formatSize(bytes).padStart(8)} in ${formatNumber(files, "file")}`;
  });
  if (shown.length < osts.length) lines.push(`  and ${osts.length - shown.length} OSTs that hold less`);
  if (mdt > 0) lines.push(`  on metadata servers ${formatSize(mdt)}`);
  if (none > 0) lines.push(`  on no OST ${formatSize(none)} (released, or never written)`);
  const better = possible > 1.05 * parallel ? `; ${possible.toFixed(1)} if it lay evenly` : "";
  if (parallel > 0) lines.push(`while all of it is read ${parallel.toFixed(1)} OSTs work at a time${better}`);
  return lines;
}

function targetsLine(targets: readonly Target[]): string {
  if (targets.length === 0) return "not known";
  const states = new Map<string, number[]>();
  for (const { state, index } of targets) states.set(state, [...(states.get(state) ?? []), index]);
  const parts = [...states].map(([state, osts]) =>
    state === "ok" || state === "unknown" ? `${osts.length} ${state}` : `${state}: OST ${osts.join(" ")}`,
  );
  return `${formatNumber(targets.length, "OST")}; ${parts.join("; ")}`;
}

function adviceLines({ use, fits, why, source, change, misfits }: Advice, folders: number): string[] {
  const lines = [`advice for ${use} (--for names another use)`];
  for (const reason of why) lines.push(`  ${reason}`);
  lines.push(`  after: ${source}; a place to begin, a measurement decides`);
  if (fits) lines.push("  the folder is set that way: nothing to change");
  if (change !== undefined) {
    lines.push("", "for new files:", `  ${change.command}`);
    lines.push(change.undo === undefined ? "  no undo: what is set now is not known" : `  undo: ${change.undo}`);
    if (change.overrides !== undefined) lines.push(`  instead of: ${change.overrides}`);
    if (folders > 0) {
      const those = folders === 1 ? "the folder" : `the ${folders} folders`;
      lines.push(
        `  holds in this folder and in those that are made in it later; ${those} below with files: ask for each`,
      );
    }
  }
  if (misfits.length > 0) {
    lines.push("", `${formatNumber(misfits.length, "file")} striped otherwise (new files only follow the line above):`);
    for (const { path, why: reason } of misfits.slice(0, SHAPES)) lines.push(`  ${path}: ${reason}`);
    if (misfits.length > SHAPES) lines.push(`  and ${misfits.length - SHAPES} more`);
  }
  return lines;
}

function moveLines({ moves, movesInAll, balance }: LustreReport): string[] {
  const { files, bytes } = movesInAll;
  const lines = [
    `to lay the set evenly: ${formatNumber(files, "file")}, ${formatSize(bytes)} (\`layout apply --migrate\` does it, with a look at who reads them and at the room)`,
  ];
  for (const { command, undo } of moves) lines.push(`  ${command}`, `    undo: ${undo}`);
  if (files > moves.length)
    lines.push(`  and ${formatNumber(files - moves.length, "file")} more: ask again behind these`);
  const gain = (balance.possible / balance.parallel).toFixed(1);
  lines.push(`  up to ${gain} × the rate while all of it is read, by arithmetic, not measured`);
  return lines;
}

function probeLines(probe: Probe | string, { balance }: LustreReport): string[] {
  if (typeof probe === "string") return [`probe: ${probe}`];
  const { one, several, bytes, seconds } = probe;
  const { osts, rate } = several;
  const total = balance.osts.reduce((sum, ost) => sum + ost.bytes, 0);
  const time = (parallel: number): string => formatDuration(secondsOf(probe, total, parallel));
  const lines = [
    `probe: ${formatSize(one)}/s from one OST, ${formatSize(rate)}/s from ${osts} at once (${(rate / one).toFixed(1)} ×)`,
    `  ${formatSize(bytes)} read in ${formatDuration(seconds)} by this node, medians of short reads; its cache was dropped before, the servers' may hold them`,
    `  so this node would read all of it once in some ${time(balance.parallel)} as it lies (${balance.parallel.toFixed(1)} OSTs at work)`,
  ];
  if (balance.possible > EVEN * balance.parallel)
    lines.push(`  and in some ${time(balance.possible)} if it lay evenly (${balance.possible.toFixed(1)} OSTs)`);
  if (balance.possible > osts) lines.push(`  more OSTs than ${osts} were not measured, and are not counted`);
  return lines;
}

/** Less is no difference. */
const EVEN = 1.05;
