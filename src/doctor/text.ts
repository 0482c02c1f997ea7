/** A diagnosis for eyes, as JSON, and its settings as a file for the site's configuration management. */
import { formatNumber } from "../base/units.ts";
import type { Diagnosis } from "./diagnose.ts";
import type { Finding, Setting } from "./finding.ts";
import type { Severity } from "./findings.ts";

export function diagnosisJson({ areas, findings, settings, unknown, wrong }: Diagnosis): object {
  return {
    wrong,
    findings,
    settings: settings.map((setting) => ({ ...setting, now: setting.now ?? null })),
    looked: areas.map(({ area, seen }) => ({ area, seen })),
    unknown,
  };
}

export function diagnosisText({ areas, findings, settings, unknown }: Diagnosis): string {
  const lines: string[] = [];
  for (const { area, seen } of areas) {
    if (seen.length === 0) continue;
    lines.push(area, ...seen.map((line) => `  ${line}`));
  }
  if (unknown.length > 0) lines.push("", "could not be told", ...unknown.map((line) => `  ${line}`));
  if (findings.length > 0) lines.push("");
  for (const finding of findings) lines.push(...findingLines(finding));
  lines.push("", summary(findings));
  if (settings.length > 0)
    lines.push(`${formatNumber(settings.length, "line")} for the site's configuration: athanor doctor --site-config`);
  return lines.join("\n");
}

function findingLines({ id, severity, what, evidence, fix, source }: Finding): string[] {
  return [`${severity}: ${what} [${id}]`, `  seen: ${evidence}`, `  do: ${fix}`, `  after: ${source}`];
}

function summary(findings: readonly Finding[]): string {
  const count = (severity: Severity): number => findings.filter((one) => one.severity === severity).length;
  if (findings.length === 0) return "nothing is wrong with what was looked at";
  return (["problem", "warning", "hint"] as const)
    .map((severity) => formatNumber(count(severity), severity))
    .join(", ");
}

const SHELL = "root shell";

/**
 * Lines with reason, source and risk, as comments of a shell. What belongs into files of modprobe stands in comments, too: run as it is, the text
 * only does what holds until the next boot.
 */
export function siteConfig({ settings }: Diagnosis): string {
  const lines = [
    "# Settings of the Lustre client that `athanor doctor` would try here. Nothing of it was set.",
    "# They hold for the whole node and all its jobs: the site decides, a measurement has the last word.",
  ];
  if (settings.length === 0) return [...lines, "# There is nothing to change."].join("\n");
  for (const where of new Set(settings.map((setting) => setting.where))) {
    const kind = where === SHELL ? "as root, until the next boot" : where;
    lines.push("", `# ---- ${kind} ----`);
    for (const setting of settings.filter((one) => one.where === where)) lines.push(...settingLines(setting));
  }
  return lines.join("\n");
}

function settingLines({ where, line, now, why, source, risk, undo }: Setting): string[] {
  const was = now === undefined ? [] : [`# now: ${now}`];
  return [
    "",
    ...was,
    `# why: ${why}`,
    `# after: ${source}`,
    `# risk: ${risk}`,
    `# undo: ${undo}`,
    where === SHELL ? line : `# ${line}`,
  ];
}
