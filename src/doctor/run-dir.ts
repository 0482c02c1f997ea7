/** Check: the folder that ATHANOR_RUN_DIR names can be made and used, by the rules of the client (`_rundir.py`). */
import { dirname, join } from "node:path";
import { findMount } from "../storage/mounts.ts";
import type { Mount } from "../storage/mounts.ts";
import { DISTRIBUTED } from "./facts.ts";
import type { Facts } from "./facts.ts";
import { checked, finding } from "./finding.ts";
import type { Checked } from "./finding.ts";

/** The kernel's limit of a socket's path, without the ending NUL. */
const LONGEST = 107;
/** Further types that the client refuses: sockets and locks are of one node. */
const NETWORK = /^(9p|afs|cifs|glusterfs|pvfs2|smb3|smbfs|wekafs|fuse\.(glusterfs|juicefs|s3fs|sshfs))$/;
/** Views of the kernel: neither folders nor sockets can be made in them, whatever their modes say. */
const KERNEL = /^(proc|sysfs|cgroup2?|debugfs|tracefs|securityfs|configfs|devpts|pstore|bpf|efivarfs)$/;
const ELSEWHERE = "name another folder of this user alone on /dev/shm or a local disk, or `unset ATHANOR_RUN_DIR`";
const CAUSES: Record<string, string> = {
  ENOENT: "the folder above it is not there",
  ENOTDIR: "a part of the path is no folder",
  EACCES: "this user may not write there",
  EROFS: "its file system is read-only",
};

export function checkRunDir(facts: Facts): Checked | undefined {
  if (facts.runDir === undefined) return undefined;
  const { path, found: answer } = facts.runDir;
  const found = checked("run directory");
  const mount = findMount("real" in answer ? answer.real : path, facts.mounts);
  const state = "real" in answer && answer.own !== undefined ? "" : ", not there yet";
  found.seen.push(`ATHANOR_RUN_DIR: ${path}, ${mount?.type ?? "of no known kind"}${state}`);
  const trouble = troubleOf(facts, mount);
  if (trouble !== undefined) {
    const what = `no agent can listen in ATHANOR_RUN_DIR, and loaders fail with ATH_RUN_DIR: ${trouble.what}`;
    found.findings.push(finding("run-dir-unusable", what, trouble.seen, trouble.fix ?? ELSEWHERE));
  } else if (mount !== undefined && (DISTRIBUTED.has(mount.kind) || NETWORK.test(mount.type))) {
    const what = `ATHANOR_RUN_DIR lies on ${mount.type}: sockets are of one node`;
    found.findings.push(finding("run-dir-network", what, `${path} is on ${mount.source}`, ELSEWHERE));
  }
  return found;
}

interface Trouble {
  what: string;
  seen: string;
  fix?: string;
}

function troubleOf({ runDir, user }: Facts, mount: Mount | undefined): Trouble | undefined {
  const { path, found } = runDir!;
  if ("silent" in found)
    return { what: "its file system does not answer", seen: `lstat ${path} did not return in time` };
  if (mount !== undefined && KERNEL.test(mount.type))
    return {
      what: "neither folders nor sockets can be made there",
      seen: `${path} is on ${mount.point} (${mount.type})`,
    };
  if ("code" in found) {
    const fix = found.code === "ENOENT" ? `\`mkdir -p -m 700 ${dirname(path)}\`, or ${ELSEWHERE}` : ELSEWHERE;
    return { what: CAUSES[found.code] ?? "it cannot be looked at", seen: `${path}: ${found.code}`, fix };
  }
  const { own, denied, real } = found;
  if (own !== undefined && (!own.folder || own.uid !== user.uid || (own.mode & 0o077) !== 0)) {
    const kind = own.folder ? "a folder" : "no folder (links count as none)";
    const seen = `${path}: ${kind}, owner ${own.uid}, mode ${(own.mode & 0o7777).toString(8).padStart(4, "0")}`;
    const fix = own.folder && own.uid === user.uid ? `\`chmod 700 ${path}\`, or ${ELSEWHERE}` : ELSEWHERE;
    return { what: `it must be a folder of user ${user.uid} with mode 0700`, seen, fix };
  }
  if (denied !== undefined)
    return { what: CAUSES[denied] ?? "nothing can be made there", seen: `access ${real}: ${denied}` };
  const bytes = Buffer.byteLength(join(path, "agent.sock"));
  if (bytes <= LONGEST) return undefined;
  const what = `the path of its socket has ${bytes} bytes, the kernel takes ${LONGEST}`;
  return { what, seen: join(path, "agent.sock"), fix: "name a shorter path, such as /tmp/ath-$USER" };
}
