/** Check: OSTs that are full, switched off, lost or slow, and metadata servers without inodes. Once a job, by one rank. */
import { formatNumber } from "../base/units.ts";
import { fileSystemOf } from "../lustre/targets.ts";
import type { Target } from "../lustre/targets.ts";
import type { Facts } from "./facts.ts";
import { lustreMounts } from "./facts.ts";
import { checked, finding } from "./finding.ts";
import type { Checked, Finding } from "./finding.ts";
import { IMPORTS, importsOf } from "./imports.ts";
import { parseReadTimes, slowTargets } from "./target-stats.ts";

export function checkTargets(facts: Facts): Checked | undefined {
  const mounts = lustreMounts(facts);
  if (mounts.length === 0) return undefined;
  const found = checked("targets");
  if (facts.targets === undefined) {
    found.unknown.push("targets: rank 0 of the job asks for them, the same for all nodes (`--targets` asks here too)");
    return found;
  }
  for (const { point, source } of mounts) {
    const { targets, notes } = facts.targets.get(point) ?? { targets: [], notes: [] };
    const counts = new Map<string, number>();
    for (const { state } of targets) counts.set(state, (counts.get(state) ?? 0) + 1);
    const states = [...counts].map(([state, count]) => `${count} ${state === "unknown" ? "of unknown state" : state}`);
    found.seen.push(
      `${point}: ${targets.length === 0 ? "OSTs not known" : formatNumber(targets.length, "OST")}${states.length > 0 ? ` (${states.join(", ")})` : ""}`,
    );
    found.unknown.push(...notes.map((note) => `${point}: ${note}`));
    found.findings.push(...targets.flatMap(stateFinding));
    found.findings.push(...inodes(facts.tools.get(`lfs df -i ${point}`)?.stdout ?? ""));
    const lost = new Set(
      targets.filter(({ state }) => state === "silent" || state === "inactive").map((ost) => ost.name),
    );
    for (const { name: ost, state } of importsOf(facts.tools.get(IMPORTS)?.stdout, fileSystemOf(source))) {
      if (state === "FULL" || state === "IDLE" || lost.has(ost)) continue;
      const fix = "look at the network to its server, and whether that is up; what is asked of it waits";
      found.findings.push(finding("target-disconnected", `the connection to ${ost} is ${state}`, "osc.*.import", fix));
    }
    const name = `${fileSystemOf(source)}-OST`;
    const times = parseReadTimes(facts.tools.get("lctl get_param osc.*.stats")?.stdout ?? "");
    const here = times.filter((one) => one.name.startsWith(name));
    if (here.length === 0) found.unknown.push(`${point}: read times of the OSTs (osc.*.stats cannot be read here)`);
    else {
      const means = here.map(({ mean }) => mean);
      found.seen.push(
        `${point}: reads took ${Math.min(...means).toFixed(1)} to ${Math.max(...means).toFixed(1)} ms, the mean of each OST since the mount`,
      );
    }
    for (const { name: ost, mean, median, requests } of slowTargets(here)) {
      const what = `${ost} is slow: a read takes ${mean.toFixed(1)} ms, on the other OSTs ${median.toFixed(1)} ms`;
      const index = Number.parseInt(ost.slice(-4), 16);
      const fix = `ask the admin to look at the server and its disks; \`lfs find PATH --ost ${index}\` names files there`;
      found.findings.push(finding("target-slow", what, `osc.*.stats, ${formatNumber(requests, "read")}`, fix));
    }
  }
  return found;
}

function stateFinding({ index, name, state }: Target): Finding[] {
  switch (state) {
    case "silent":
      return [
        finding(
          "target-silent",
          `${name} does not answer: reads of its stripes hang`,
          "lfs check osts",
          "ask the admin; processes that hang on it end when it is back, or when it is switched off on this client",
        ),
      ];
    case "inactive":
      return [
        finding(
          "target-inactive",
          `${name} is switched off here: reads of its stripes fail with EIO`,
          "lfs osts: INACTIVE",
          "ask the admin whether it comes back; `athanor layout show PATH` tells which files lie there",
        ),
      ];
    case "full":
      return [
        finding(
          "target-full",
          `${name} is full: writing a file that has a stripe there fails with ENOSPC`,
          "lfs df",
          `new files avoid it; \`lfs find PATH --ost ${index}\` names files on it: delete or move them (\`lfs migrate\`)`,
        ),
      ];
    case "filling":
      return [
        finding("target-filling", `${name} is more than 85 % full`, "lfs df", "delete or move files before it is full"),
      ];
    case "degraded":
      return [
        finding(
          "target-degraded",
          `${name} is degraded: a disk is being rebuilt`,
          "lfs df: flag D",
          "it is slower until that is done",
        ),
      ];
    case "read-only":
      return [
        finding(
          "target-read-only",
          `${name} takes no new data`,
          "lfs df: flag R or N",
          "ask the admin; new files avoid it",
        ),
      ];
    default:
      return [];
  }
}

const NEARLY = 0.95;

/** `lfs df -i`: metadata servers with few inodes left. */
function inodes(text: string): Finding[] {
  const lines = text.matchAll(/^(\S+?)(?:_UUID)? +(\d+) +(\d+) +(\d+) +\d+% +.*\[MDT:\d+\]/gm);
  return [...lines].flatMap(([, name, total, used]) => {
    if (Number(used) < NEARLY * Number(total)) return [];
    const fix = "delete small files, or pack them into shards; the admin can add a metadata server";
    return [
      finding(
        "metadata-full",
        `${name} has next to no inodes left: new files fail with ENOSPC`,
        `lfs df -i: ${used} of ${total} used`,
        fix,
      ),
    ];
  });
}
