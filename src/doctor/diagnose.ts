/**
 * Diagnosis: all checks over the facts. Pure.
 *
 * @example
 * diagnose(await gather({ loaderTimeout: 540 })).findings;
 */
import { checkClient } from "./client.ts";
import { checkCpu } from "./cpu.ts";
import type { Facts } from "./facts.ts";
import type { Check, Checked, Finding, Setting } from "./finding.ts";
import type { Severity } from "./findings.ts";
import { checkGds } from "./gds.ts";
import { checkLimits } from "./limits.ts";
import { checkLog } from "./log.ts";
import { checkMemory, checkSharedMemory } from "./memory.ts";
import { checkMounts } from "./mount.ts";
import { checkNetwork } from "./network.ts";
import { checkQuota } from "./quota.ts";
import { checkRunDir } from "./run-dir.ts";
import { checkTargets } from "./targets.ts";
import { checkTunables } from "./tunables.ts";
import { checkVersions } from "./versions.ts";
import { checkWatchdog } from "./watchdog.ts";

const CHECKS: readonly Check[] = [
  checkMounts,
  checkClient,
  checkNetwork,
  checkTargets,
  checkQuota,
  checkTunables,
  checkGds,
  checkSharedMemory,
  checkRunDir,
  checkMemory,
  checkCpu,
  checkLimits,
  checkWatchdog,
  checkVersions,
  checkLog,
];

export interface Diagnosis {
  areas: Checked[];
  /** The worst first. */
  findings: Finding[];
  settings: Setting[];
  /** What could not be looked at, and why. */
  unknown: string[];
  /** A problem or a warning is among the findings. */
  wrong: boolean;
}

const EXAMPLES = 3;
const RANK: Record<Severity, number> = { problem: 0, warning: 1, hint: 2 };

export function diagnose(facts: Facts): Diagnosis {
  const areas = CHECKS.flatMap((check) => check(facts) ?? []);
  const findings = areas.flatMap((area) => area.findings).sort((a, b) => RANK[a.severity] - RANK[b.severity]);
  const unknown = areas.flatMap((area) => area.unknown);
  const silent = facts.silentFiles;
  if (silent.length > 0) {
    const more = silent.length > EXAMPLES ? ` and ${silent.length - EXAMPLES} more` : "";
    unknown.push(`files that did not answer in time: ${silent.slice(0, EXAMPLES).join(", ")}${more}`);
  }
  return {
    areas,
    findings,
    settings: distinct(areas.flatMap((area) => area.settings)),
    unknown,
    wrong: findings.some(({ severity }) => severity !== "hint"),
  };
}

/** Two findings may want the same line. */
function distinct(settings: readonly Setting[]): Setting[] {
  return [...new Map(settings.map((setting) => [`${setting.where}\0${setting.line}`, setting])).values()];
}
