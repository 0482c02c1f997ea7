/**
 * What a check gives: what it saw, what is wrong with it, and settings that a site may want.
 *
 * @example
 * finding("shm-small", "/dev/shm has 64MiB", "statfs /dev/shm", "give the pod an emptyDir with medium: Memory");
 */
import type { Facts } from "./facts.ts";
import { FINDINGS } from "./findings.ts";
import type { FindingId, Severity } from "./findings.ts";

export interface Finding {
  id: FindingId;
  severity: Severity;
  what: string;
  /** What was read, and where. */
  evidence: string;
  fix: string;
  source: string;
}

/** One line for the site's configuration management. Never run by us. */
export interface Setting {
  /** `root shell` (holds until the next boot), the file it belongs into, or how it is to be done. */
  where: string;
  line: string;
  /** What is set now; undefined: not known. */
  now: string | undefined;
  why: string;
  source: string;
  risk: string;
  undo: string;
}

export interface Checked {
  area: string;
  /** What was looked at and found, a line each. */
  seen: string[];
  findings: Finding[];
  settings: Setting[];
  /** What could not be told, and why. */
  unknown: string[];
}

/** Pure: the same facts give the same result. Undefined: there is nothing of the kind on this node. */
export type Check = (facts: Facts) => Checked | undefined;

export const checked = (area: string): Checked => ({ area, seen: [], findings: [], settings: [], unknown: [] });

/** Puts findings among those of a check. */
export function adderOf(found: Checked): (...args: Parameters<typeof finding>) => void {
  return (...args) => void found.findings.push(finding(...args));
}

export function finding(id: FindingId, what: string, evidence: string, fix: string): Finding {
  const [severity, source] = FINDINGS[id];
  return { id, severity, what, evidence, fix, source };
}
