/** Check: the loader gives up before the collective watchdog kills the job, so that the culprit is named. */
import { formatDuration } from "../base/units.ts";
import type { Facts } from "./facts.ts";
import { checked, finding } from "./finding.ts";
import type { Checked } from "./finding.ts";

/** Of a group with NCCL in torch, and of DeepSpeed without DEEPSPEED_TIMEOUT. */
const DEFAULT = 600;

export function checkWatchdog(facts: Facts): Checked {
  const found = checked("collective watchdog");
  const text = facts.env["DEEPSPEED_TIMEOUT"];
  const set = text === undefined ? undefined : secondsOf(text);
  if (text !== undefined && set === undefined) {
    const what =
      "DEEPSPEED_TIMEOUT is no whole number of minutes above 0: DeepSpeed fails at its import, or waits for no peer";
    const fix =
      "`export DEEPSPEED_TIMEOUT=30` (minutes, digits only), or `unset DEEPSPEED_TIMEOUT` for the default of 10";
    found.findings.push(finding("watchdog-unreadable", what, `DEEPSPEED_TIMEOUT=${JSON.stringify(text)}`, fix));
  }
  const watchdog = set ?? DEFAULT;
  const from = set === undefined ? "the default of torch's NCCL groups" : "DEEPSPEED_TIMEOUT";
  found.seen.push(
    `${formatDuration(watchdog)} (${from}), the loader's timeout ${formatDuration(facts.loaderTimeout)}; a timeout given to init_process_group cannot be seen from here`,
  );
  if (facts.loaderTimeout < watchdog) return found;
  const what = "a rank that waits for data is killed by the watchdog of its peers before Athanor names the culprit";
  const fix = `\`timeout=${Math.floor(watchdog * 0.9)}\` for the loader, or a longer timeout of the process group (DEEPSPEED_TIMEOUT in minutes)`;
  const evidence = `watchdog ${formatDuration(watchdog)} (${from}), loader ${formatDuration(facts.loaderTimeout)}`;
  found.findings.push(finding("watchdog-short", what, evidence, fix));
  return found;
}

/** What Python's `int` takes, as DeepSpeed reads it. Undefined: it fails there, or gives no time. */
function secondsOf(minutes: string): number | undefined {
  if (!/^\s*\+?\d+(_\d+)*\s*$/.test(minutes)) return undefined;
  const seconds = Number(minutes.replaceAll("_", "")) * 60;
  return seconds > 0 && Number.isSafeInteger(seconds) ? seconds : undefined;
}
