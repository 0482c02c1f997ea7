/** Check: quotas of the user, the group and the folder's project on Lustre. */
import { formatCount, formatSize } from "../base/units.ts";
import { parseQuota } from "../lustre/quota.ts";
import type { Quota } from "../lustre/quota.ts";
import type { Facts } from "./facts.ts";
import { lustreMounts } from "./facts.ts";
import { checked, finding } from "./finding.ts";
import type { Checked, Finding } from "./finding.ts";

const NEAR = 0.9;
const OWNERS: Record<string, string> = { u: "user", g: "group", p: "project" };

export function checkQuota(facts: Facts): Checked | undefined {
  if (lustreMounts(facts).length === 0) return undefined;
  const found = checked("quota");
  for (const [line, { stdout, stderr, missing, timedOut }] of facts.tools) {
    const [, kind, id, place] = /^lfs quota -([ugp]) (\d+) (.*)$/.exec(line) ?? [];
    if (kind === undefined || missing) continue;
    const who = `${OWNERS[kind]} ${id}`;
    const quota = parseQuota(stdout);
    if (quota === undefined) {
      const said = stderr.trim().split("\n")[0] || "`lfs quota` printed nothing that is known";
      found.unknown.push(`quota of ${who} at ${place}: ${timedOut ? "`lfs quota` did not answer in time" : said}`);
      continue;
    }
    const limits = [bytesText(quota.bytes), filesText(quota.files)].filter((text) => text !== "");
    found.seen.push(`${place}, ${who}: ${limits.length > 0 ? limits.join(", ") : "no limits"}`);
    found.findings.push(...judged(quota, who, place!, line));
  }
  if (found.seen.length === 0 && found.unknown.length === 0) found.unknown.push("quota: `lfs` is not installed here");
  return found;
}

function judged({ bytes, files }: Quota, who: string, place: string, line: string): Finding[] {
  return [
    { kind: bytes, text: bytesText(bytes) },
    { kind: files, text: filesText(files) },
  ].flatMap(({ kind: { used, soft, hard, over }, text }) => {
    if ((hard > 0 && used >= hard) || (over && hard === 0)) {
      const fix = "delete something or ask for more; checkpoints fail until then";
      return [
        finding(
          "quota-over",
          `the quota of ${who} at ${place} is used up: writes fail with EDQUOT`,
          `${line}: ${text}`,
          fix,
        ),
      ];
    }
    if ((hard > 0 && used >= NEAR * hard) || over || (soft > 0 && used >= soft)) {
      const fix = "make room before the next checkpoints, or ask for more; above the soft limit a time of grace runs";
      return [finding("quota-near", `the quota of ${who} at ${place} is nearly used up`, `${line}: ${text}`, fix)];
    }
    return [];
  });
}

const limitOf = ({ soft, hard }: { soft: number; hard: number }): number => (hard > 0 ? hard : soft);

function bytesText(bytes: Quota["bytes"]): string {
  return limitOf(bytes) > 0 ? `${formatSize(bytes.used)} of ${formatSize(limitOf(bytes))}` : "";
}

function filesText(files: Quota["files"]): string {
  return limitOf(files) > 0 ? `${formatCount(files.used)} of ${formatCount(limitOf(files))} files` : "";
}
