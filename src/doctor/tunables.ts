/**
 * Check: read-ahead, RPC and cache tunables of the client against advice. Values are places to begin, a measurement decides; they hold for
 * the whole node, so nothing is ever set: each gives a line for the site's configuration management.
 */
import { formatSize } from "../base/units.ts";
import { EC2, VENDOR_FILE } from "../lustre/slow-links.ts";
import { clientVersionOf, fileSystemOf } from "../lustre/targets.ts";
import { typeOf } from "../lustre/nids.ts";
import type { Facts } from "./facts.ts";
import { cpuList, filesLike, lustreMounts, numberIn } from "./facts.ts";
import { checked, finding } from "./finding.ts";
import type { Check, Checked } from "./finding.ts";
import { FINDINGS } from "./findings.ts";
import { networksTo } from "./lnet.ts";
import { before, releaseOf } from "./release.ts";
import { TUNABLES } from "./tunable-list.ts";
import type { Tunable } from "./tunable-list.ts";

const MIB = 2 ** 20;

export const checkTunables: Check = (facts) => {
  const mounts = lustreMounts(facts);
  if (mounts.length === 0) return undefined;
  const found = checked("tunables of the Lustre client");
  const names = [...new Set(mounts.map(({ source }) => fileSystemOf(source)))];
  for (const name of names) {
    const { source } = mounts.find((mount) => fileSystemOf(mount.source) === name)!;
    const { nets } = networksTo(source, facts);
    const known = TUNABLES.map((tunable) => look(found, tunable, name, nets, facts)).flatMap((line) => line ?? []);
    found.seen.push(known.length > 0 ? `${name}: ${known.join(", ")}` : `${name}: none can be read`);
  }
  clientCache(found, facts);
  modules(found, facts);
  return found;
};

/** `osc.max_rpcs_in_flight 8`, or undefined where it cannot be read. */
function look(
  found: Checked,
  tunable: Tunable,
  name: string,
  nets: readonly string[],
  facts: Facts,
): string | undefined {
  const { id, file, wrong, since, value, what, why, risk } = tunable;
  // A server on the same node has connections of its own (`-osc-MDT0000`).
  const files = filesLike(facts, `sys/fs/lustre/${file.replace("FS", name)}`).filter(
    ({ path }) => !/-osc-MDT/.test(path),
  );
  const values = files.flatMap(({ path, text }) => {
    const number = numberIn(text);
    return number === undefined ? [] : [{ path, number }];
  });
  if (values.length === 0) return undefined;
  const all = [...new Set(values.map(({ number }) => number))].sort((a, b) => a - b);
  const version = clientVersionOf(facts.files.get("sys/fs/lustre/version"));
  const early = since !== undefined && version !== undefined && before(releaseOf(version), since);
  const bad = early ? [] : values.filter(({ number }) => wrong(number, nets));
  if (bad.length > 0) {
    const { path, number } = bad[0]!;
    const many = values.length > 1 ? `, ${bad.length} of ${values.length} alike or worse` : "";
    const parameter = tunable.name.replace("FS", name);
    const fix = value === undefined ? risk : `\`lctl set_param ${parameter}=${value}\` is worth a try: ${why}`;
    found.findings.push(finding(id, what, `/${path} is ${number}${many}`, fix));
    if (value !== undefined)
      found.settings.push({
        where: "root shell",
        line: `lctl set_param ${parameter}=${value}`,
        now: all.join(", "),
        why,
        source: FINDINGS[id][1],
        risk,
        undo: `lctl set_param ${parameter}=${all[0]}`,
      });
  }
  return `${tunable.name.replace(/\.[^.]*\./, ".")} ${all.join(" to ")}`;
}

/** Root only. */
function clientCache(found: Checked, facts: Facts): void {
  for (const { path, text } of filesLike(facts, "sys/kernel/debug/lustre/llite/*/max_cached_mb")) {
    const most = numberIn(/^max_cached_mb: (\d+)/m.exec(text)?.[1]);
    if (most === undefined) continue;
    found.seen.push(`client cache: ${formatSize(most * MIB)} at most`);
    if (most >= 1024) continue;
    const fix =
      "leave it to Lustre (half of the memory) where data is read more than once; Athanor's reads of 8 MiB do not need it";
    found.findings.push(
      finding("tunable-client-cache", "the client may cache next to nothing", `/${path}: max_cached_mb ${most}`, fix),
    );
  }
}

/** Options of modules hold when they are loaded. */
function modules(found: Checked, facts: Facts): void {
  const credits = numberIn(facts.files.get("sys/module/ko2iblnd/parameters/peer_credits"));
  const nets = lustreMounts(facts).flatMap(({ source }) => networksTo(source, facts).nets);
  const o2ib = nets.some((net) => typeOf(net) === "o2ib");
  if (o2ib && credits !== undefined && credits < 32) {
    const why = "few messages at a time to each server over InfiniBand";
    const line = "options ko2iblnd peer_credits=32 peer_credits_hiw=16 concurrent_sends=64";
    const risk = "clients and servers should have the same, or the smaller one holds; read when the module is loaded";
    const evidence = `/sys/module/ko2iblnd/parameters/peer_credits is ${credits}`;
    found.findings.push(
      finding("tunable-peer-credits", why, evidence, `\`${line}\` in /etc/modprobe.d, on servers too`),
    );
    found.settings.push({
      where: "/etc/modprobe.d/ko2iblnd.conf",
      line,
      now: `peer_credits=${credits}`,
      why,
      source: FINDINGS["tunable-peer-credits"][1],
      risk,
      undo: "take the line out",
    });
  }
  const threads = numberIn(facts.files.get("sys/module/ptlrpc/parameters/ptlrpcd_per_cpt_max"));
  const cpus = cpuList(facts.files.get("sys/devices/system/cpu/online")).length;
  const ec2 = facts.files.get(VENDOR_FILE)?.trim() === EC2;
  if (ec2 && cpus > 64 && threads !== undefined && threads < 32) {
    const why = `${cpus} CPUs, and few threads that send and receive`;
    const line = "options ptlrpc ptlrpcd_per_cpt_max=32";
    const evidence = `/sys/module/ptlrpc/parameters/ptlrpcd_per_cpt_max is ${threads}`;
    found.findings.push(finding("tunable-ptlrpcd", why, evidence, `\`${line}\` in /etc/modprobe.d`));
    found.settings.push({
      where: "/etc/modprobe.d/ptlrpc.conf",
      line,
      now: String(threads),
      why,
      source: FINDINGS["tunable-ptlrpcd"][1],
      risk: "more kernel threads; read when the module is loaded",
      undo: "take the line out",
    });
  }
}
