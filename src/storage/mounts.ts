/**
 * Mounts: which file system a path lies on, from /proc/self/mountinfo. Reads only /proc, never the mount itself.
 *
 * Contract: the path must be absolute and free of symbolic links. Later mounts hide earlier ones at the same point. The folder that
 * holds `proc` can be another one than `/`: `$ATHANOR_HOST_ROOT`, for tests and for a pod that sees the host's at /host.
 *
 * @example
 * mountOf("/mnt/lustre/d", readMounts()).kind; // "lustre"
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";

/** `lustre-target`: the store of a Lustre server, which has the same type as a client's mount. */
export type MountKind =
  | "lustre"
  | "lustre-target"
  | "moosefs"
  | "cephfs"
  | "nfs"
  | "gpfs"
  | "beegfs"
  | "local"
  | "memory"
  | "other";

export interface Mount {
  point: string;
  /** The type as the kernel calls it: `lustre`, `fuse.mfs`, `ext4`, … */
  type: string;
  /** `10.0.8.11@o2ib:/trainfs`, `/dev/nvme0n1p1`, … */
  source: string;
  kind: MountKind;
  /** Of the mount and of the file system, in the order of the kernel. */
  options: readonly string[];
}

/** Where /proc and /sys are looked for. */
export function hostRoot(): string {
  return process.env["ATHANOR_HOST_ROOT"] ?? "/";
}

export function readMounts(root: string = hostRoot()): Mount[] {
  return parseMountinfo(readFileSync(join(root, "proc/self/mountinfo"), "utf8"));
}

/** Lines that are no mounts are left out: the kernel may add fields. */
export function parseMountinfo(text: string): Mount[] {
  return text.split("\n").flatMap((line) => {
    // 44 25 1273:18 / /mnt/lustre rw,noatime shared:1 - lustre 10.0.2.15@tcp:/lustre rw,flock
    const [mount, system] = line.split(" - ");
    const [, , , , point, own] = (mount ?? "").split(" ");
    const [type, source, more] = (system ?? "").split(" ");
    if (point === undefined || type === undefined || source === undefined) return [];
    const options = [...new Set(`${own ?? ""},${more ?? ""}`.split(",").filter((option) => option !== ""))];
    const plain = unescape(source);
    return [{ point: unescape(point), type, source: plain, kind: kindOf(type, plain), options }];
  });
}

/** The mount that holds `path`. Throws only if nothing is mounted at `/`. */
export function mountOf(path: string, mounts: readonly Mount[]): Mount {
  const found = findMount(path, mounts);
  if (found === undefined) throw new Error(`no mount holds ${path}`);
  return found;
}

/** As `mountOf`; undefined where nothing is mounted. */
export function findMount(path: string, mounts: readonly Mount[]): Mount | undefined {
  const inside = ({ point }: Mount): boolean => point === "/" || path === point || path.startsWith(`${point}/`);
  return mounts
    .filter(inside)
    .reduce<Mount | undefined>(
      (best, mount) => (best === undefined || mount.point.length >= best.point.length ? mount : best),
      undefined,
    );
}

const LOCAL = new Set([
  "ext2",
  "ext3",
  "ext4",
  "xfs",
  "btrfs",
  "zfs",
  "f2fs",
  "bcachefs",
  "overlay",
  "squashfs",
  "erofs",
  "9p",
  "virtiofs",
]);

function kindOf(type: string, source: string): MountKind {
  // A client names servers and file system, `NID:/name`; a server's own store is a device.
  if (type === "lustre") return source.includes(":/") ? "lustre" : "lustre-target";
  if (/^(fuse\.)?(mfs|moosefs)$/.test(type) || (type.startsWith("fuse") && source.startsWith("mfs#"))) return "moosefs";
  if (type === "ceph" || type.startsWith("fuse.ceph")) return "cephfs";
  if (type === "nfs" || type === "nfs4") return "nfs";
  if (type === "gpfs" || type === "mmfs") return "gpfs";
  if (type.startsWith("beegfs")) return "beegfs";
  if (type === "tmpfs" || type === "ramfs") return "memory";
  return LOCAL.has(type) ? "local" : "other";
}

/** The kernel writes blanks, tabs, line ends and backslashes as octal. */
function unescape(text: string): string {
  return text.replace(/\\([0-7]{3})/g, (_, octal: string) => String.fromCharCode(Number.parseInt(octal, 8)));
}
