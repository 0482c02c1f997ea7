/** Check: the mount answers, and its options are those that data want. */
import { formatSize } from "../base/units.ts";
import { fileSystemOf } from "../lustre/targets.ts";
import { MOUNT_NAMES, mountAdvice } from "../storage/mount-advice.ts";
import type { Mount } from "../storage/mounts.ts";
import type { Facts } from "./facts.ts";
import { filesLike, numberIn } from "./facts.ts";
import { checked, finding } from "./finding.ts";
import type { Checked, Finding } from "./finding.ts";

export function checkMounts(facts: Facts): Checked {
  const found = checked("mounts");
  if (facts.watched.length === 0)
    found.seen.push(
      "no Lustre, MooseFS, CephFS, NFS, GPFS or BeeGFS is mounted here; name the folder of the data to look at its mount",
    );
  for (const mount of facts.watched) {
    const space = facts.spaces.get(mount.point);
    const size =
      space !== undefined && "total" in space
        ? `, ${formatSize(space.available)} of ${formatSize(space.total)} free`
        : "";
    found.seen.push(`${mount.point}: ${nameOf(mount)}, ${mount.source}, ${mount.options.join(",")}${size}`);
    if (mount.kind !== "lustre") found.seen.push(...mountAdvice(mount).map((line) => `  ${line}`));
    found.findings.push(...answers(mount, facts), ...options(mount));
    if (mount.kind === "lustre") found.findings.push(...lustreOptions(mount, facts));
  }
  return found;
}

const nameOf = ({ kind, type }: Mount): string => (kind === "other" ? type : MOUNT_NAMES[kind]);

function answers({ point }: Mount, { spaces }: Facts): Finding[] {
  const space = spaces.get(point);
  if (space === undefined || "total" in space) return [];
  if ("silent" in space) {
    const fix =
      "ask the admin whether the metadata server is up; nothing here helps. Processes that touched it cannot be killed until it is back";
    return [finding("mount-silent", `${point} does not answer`, "statfs did not return in time", fix)];
  }
  const fix = "look at the kernel log of the node; a mount that was evicted comes back by itself";
  return [finding("mount-refused", `${point} answers with ${space.code}`, `statfs: ${space.code}`, fix)];
}

function options({ point, options: set }: Mount): Finding[] {
  if (!set.includes("ro")) return [];
  const fix = "fine for data; `athanor index --index-dir FOLDER` puts the index elsewhere";
  return [finding("mount-read-only", `${point} is mounted read-only`, "mount option ro", fix)];
}

function lustreOptions({ point, source, options: set }: Mount, facts: Facts): Finding[] {
  const found: Finding[] = [];
  if (set.includes("localflock")) {
    const fix = "mount with flock where programs on several nodes lock the same files; Athanor does not";
    found.push(
      finding("mount-local-flock", `file locks at ${point} hold on this node only`, "mount option localflock", fix),
    );
  } else if (!set.includes("flock")) {
    const fix =
      "mount with flock; Athanor takes no locks here, but HDF5 writers, `filelock` of HF datasets and SQLite fail with ENOSYS";
    found.push(finding("mount-no-flock", `there are no file locks at ${point}`, "mount options without flock", fix));
  }
  const network = set.find((option) => option.startsWith("network="));
  if (network !== undefined) {
    const fix = "leave it out where LNet discovers its peers by itself: it keeps to one network and so to one rail";
    found.push(finding("mount-network-option", `${point} is bound to one network`, `mount option ${network}`, fix));
  }
  const llite = `sys/fs/lustre/llite/${fileSystemOf(source)}-*`;
  for (const { path, text } of filesLike(facts, `${llite}/lazystatfs`)) {
    if (text !== "0") continue;
    const fix = "mount with lazystatfs, or `lctl set_param llite.*.lazystatfs=1`";
    const what = `statfs at ${point} waits for OSTs that do not answer: df, and programs that look for free space, hang with one lost OST`;
    found.push(finding("mount-no-lazystatfs", what, `/${path} is 0`, fix));
  }
  const ahead = filesLike(facts, "sys/class/bdi/lustre-*/read_ahead_kb").filter(
    ({ text }) => (numberIn(text) ?? 0) > 0,
  );
  if (ahead.length > 0) {
    const { path, text } = ahead[0]!;
    const fix = `set it to 0, as Lustre does itself: a udev rule of some images sets it for every device (\`echo 0 > /${path}\` as root)`;
    const what = "the kernel reads ahead on the Lustre mount, beside the read-ahead of Lustre itself";
    found.push(finding("mount-bdi-read-ahead", what, `/${path} is ${text}`, fix));
  }
  return found;
}
