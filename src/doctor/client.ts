/** Check: what the Lustre client of this version has, and what is known to be wrong with it. */
import { clientVersionOf, fileSystemOf } from "../lustre/targets.ts";
import type { Facts } from "./facts.ts";
import { filesLike, lustreMounts } from "./facts.ts";
import { adderOf, checked, finding } from "./finding.ts";
import type { Checked } from "./finding.ts";
import { IMPORTS, importsOf } from "./imports.ts";
import { before, releaseOf } from "./release.ts";

export function checkClient(facts: Facts): Checked | undefined {
  if (lustreMounts(facts).length === 0) return undefined;
  const found = checked("Lustre client");
  const kernel = facts.files.get("proc/sys/kernel/osrelease");
  const health = facts.files.get("sys/fs/lustre/health_check");
  if (health !== undefined && !/^healthy\b/.test(health)) {
    const fix =
      "the kernel modules have met a fault that they cannot get out of: the kernel log tells which; the node wants a restart";
    const first = health.split("\n")[0]!;
    found.findings.push(
      finding("client-unhealthy", "Lustre on this node is not healthy", `/sys/fs/lustre/health_check: ${first}`, fix),
    );
  }
  const text = clientVersionOf(facts.files.get("sys/fs/lustre/version"));
  if (text === undefined) {
    found.unknown.push(
      "version of the client: /sys/fs/lustre/version is not there (in a pod, ATHANOR_HOST_ROOT names the host's root)",
    );
    return found;
  }
  const release = releaseOf(text);
  const hybrid = filesLike(facts, "sys/fs/lustre/llite/*/hybrid_io").some(({ text: on }) => on === "1");
  found.seen.push(`${text}, kernel ${kernel ?? "not known"}, hybrid I/O ${hybrid ? "on" : "off or not there"}`);
  const servers = serverVersions(facts);
  if (servers.length > 0) found.seen.push(`servers: ${servers.join(", ")}`);
  const evidence = `/sys/fs/lustre/version is ${text}`;
  const add = adderOf(found);
  if (before(release, [2, 15, 0])) {
    const what = `the client is of an old line, ${text}`;
    add(
      "client-old",
      what,
      evidence,
      "2.15 is the oldest line that still gets fixes: ask the admin; stripes are 1 MiB by default before 2.16",
    );
  }
  if (before(release, [2, 17, 0])) {
    const what = "large reads go through the client's cache and set off its read-ahead past what is wanted";
    const fix =
      "nothing has to be done: buffered reads of 4 MiB in extents of 32 MiB carried 1.34 times the wanted bytes; from 2.17 on reads of 8 MiB go direct and carry 1.00 times";
    add("client-no-hybrid-io", what, evidence, fix);
  } else if (hybrid) {
    const what = "with servers that are older than the client, hybrid I/O was reported to leave writes hanging";
    const off = "`lctl set_param llite.*.hybrid_io=0`, or a client with the fix";
    const old = servers.find((version) => before(releaseOf(version), [2, 17, 0]));
    if (old !== undefined) {
      add("client-hybrid-io-old-server", `${what}; the servers are ${old}`, `${evidence}, target_version ${old}`, off);
    } else if (servers.length === 0) {
      const fix = `ask the admin for the version of the servers; if older than 2.17, ${off}`;
      add("client-hybrid-io-server", what, `${evidence}, hybrid_io is 1`, fix);
    }
  }
  if (hybrid && release[0] === 2 && release[1] === 17 && release[2] === 0) {
    const what = "write() of 4 MiB and more from memory that was never touched can fail with EFAULT";
    const fix =
      "fill buffers before they are written (torch.save does); a later 2.17, or `lctl set_param llite.*.hybrid_io=0`";
    add("client-hybrid-write-fault", what, `${evidence}, hybrid_io is 1`, fix);
  }
  // Fixed in lines that came after 2.15.6 and 2.16.0; vendors carry the fix in builds of older numbers, too.
  const hit = before(release, [2, 15, 7]) || (release[1] === 16 && before(release, [2, 16, 1]));
  const el95 = /^5\.14\.0-(\d+).*\.el9/.exec(kernel ?? "");
  if (hit && el95 !== null && Number(el95[1]) >= 503) {
    const what = "clients of this age were reported to crash the kernel (ll_ddelete) on Enterprise Linux 9.5 and later";
    add(
      "client-kernel-panic",
      what,
      `${evidence}, kernel ${kernel}`,
      "ask whoever built the client whether it has the fix of LU-18085",
    );
  }
  return found;
}

/** Root only; each once, the oldest first. */
function serverVersions(facts: Facts): string[] {
  const printed = facts.tools.get(IMPORTS)?.stdout;
  const names = lustreMounts(facts).flatMap(({ source }) => importsOf(printed, fileSystemOf(source)));
  const versions = [...new Set(names.flatMap(({ version }) => version ?? []))];
  return versions.sort((a, b) => (before(releaseOf(a), releaseOf(b)) ? -1 : 1));
}
