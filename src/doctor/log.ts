/** Check: what the kernel's log says of Lustre and of processes that hang. Many nodes show it to root only. */
import { formatNumber } from "../base/units.ts";
import type { Facts } from "./facts.ts";
import { lustreMounts } from "./facts.ts";
import { adderOf, checked } from "./finding.ts";
import type { Checked } from "./finding.ts";

export function checkLog(facts: Facts): Checked | undefined {
  if (lustreMounts(facts).length === 0) return undefined;
  const found = checked("kernel log");
  const ran = facts.tools.get("dmesg");
  if (ran === undefined || ran.status !== 0) {
    const why =
      ran?.timedOut === true
        ? "did not answer in time"
        : ran?.missing === true
          ? "is not installed here"
          : "shows it to root only on this node: run it as root";
    found.unknown.push(`kernel log: \`dmesg\` ${why}`);
    return found;
  }
  const lines = ran.stdout.split("\n");
  found.seen.push(
    `${formatNumber(lines.filter((line) => /Lustre|LNet/.test(line)).length, "line")} of Lustre and LNet since the node started`,
  );
  const add = adderOf(found);
  const matches = (shape: RegExp): RegExpExecArray[] =>
    lines.map((line) => shape.exec(line)).filter((match) => match !== null);
  const evicted = counts(matches(/This client was evicted by (\S+?);/).map(([, target]) => target!));
  for (const [target, count] of evicted) {
    const fix =
      "reads fail with EIO for seconds, then go on; if it happens again and again, look at the network and the load of this node";
    add(
      "log-evicted",
      `${target} has thrown this client out ${formatNumber(count, "time")}`,
      "dmesg: This client was evicted",
      fix,
    );
  }
  // Of each target the last word counts.
  const last = new Map<string, string>();
  for (const [, target, , word] of matches(
    /Lustre: (\S+?-(?:OST|MDT)[0-9a-f]{4})(\S*?): Connection (?:to \S+ \(at \S+\) was )?(lost|restored)/,
  ))
    last.set(target!, word!);
  for (const [target, word] of last) {
    if (word !== "lost") continue;
    const fix = "ask the admin whether the server is up; what was begun there waits";
    add(
      "log-connection-lost",
      `the connection to ${target} was lost and is not back`,
      "dmesg: Connection … was lost",
      fix,
    );
  }
  const hung = counts(matches(/task (\S+?):\d+ blocked for more than \d+ seconds/).map(([, name]) => name!));
  for (const [name, count] of hung) {
    const fix =
      "find out what it waits for: /proc/PID/wchan and stack as root; `athanor doctor` names targets that do not answer";
    add(
      "log-hung-task",
      `${name} was blocked for minutes, ${formatNumber(count, "time")}`,
      "dmesg: blocked for more than",
      fix,
    );
  }
  const timeouts = matches(/LNetError: .*(Timed out|timed out)/).length;
  if (timeouts > 0) {
    const fix = "look at errors of the ports on both sides and at the switch";
    add("log-network-timeout", `LNet timed out ${formatNumber(timeouts, "time")}`, "dmesg: LNetError", fix);
  }
  return found;
}

function counts(names: readonly string[]): Map<string, number> {
  const found = new Map<string, number>();
  for (const name of names) found.set(name, (found.get(name) ?? 0) + 1);
  return found;
}
