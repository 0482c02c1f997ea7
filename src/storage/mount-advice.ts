/**
 * What fits a mount that stripes by itself or not at all: settings of the file system it is, in its own words. Pure.
 *
 * @example
 * mountAdvice(mountOf("/data", readMounts()));
 */
import type { Mount, MountKind } from "./mounts.ts";

/** As the reports call it. */
export const MOUNT_NAMES: Record<Exclude<MountKind, "other">, string> = {
  lustre: "Lustre",
  "lustre-target": "the store of a Lustre server",
  moosefs: "MooseFS",
  cephfs: "CephFS",
  nfs: "NFS",
  gpfs: "GPFS (Storage Scale)",
  beegfs: "BeeGFS",
  local: "a local file system",
  memory: "memory",
};

/** Sentences, the most useful first. Not for Lustre, which has advice of its own. */
export function mountAdvice({ kind, type, options, source }: Mount): string[] {
  switch (kind) {
    case "moosefs":
      return [
        "files are cut into chunks of 64 MiB, each with its copies on servers of MooseFS's choice: shards of 64 MiB and more spread by themselves",
        "`mfsfileinfo FILE` names the servers of each chunk; `mfsgetgoal -r FOLDER` the number of copies (two, so that a lost server stops no training)",
      ];
    case "cephfs":
      return [
        "files are cut into objects of 4 MiB over all OSDs of the pool by default: large shards spread by themselves, nothing to set",
        "`rasize=` among the mount options is the read-ahead (8 MiB by default); many readers of small files gain from a pool on flash",
      ];
    case "nfs":
      return nfsAdvice(options);
    case "gpfs":
      return [
        "blocks are spread over all disks of the pool by themselves: nothing to set for a folder; reads of a multiple of the block size (`mmlsfs FS -B`) are best",
      ];
    case "beegfs":
      return [
        "`beegfs-ctl --getentryinfo FOLDER` shows targets and chunk size of new files, `--setpattern` changes them for new files",
        "many large shards: one to four targets a file; few files, or one that all nodes read: more",
      ];
    case "lustre-target":
      return ["this is where a server keeps its objects: ask for a path below a client's mount"];
    case "memory":
      return ["the data lies in memory already: nothing to set"];
    case "local":
      return [
        source.startsWith("/dev/nvme")
          ? "a local NVMe: nothing to set; large shards and reads in file order are all it wants"
          : "nothing to set here; large shards and reads in file order are all it wants",
      ];
    default:
      return [
        `a file system of type ${type}, which Athanor knows no settings for: it is read in large pieces, in file order`,
      ];
  }
}

function nfsAdvice(options: readonly string[]): string[] {
  const value = (name: string): number =>
    Number(options.find((option) => option.startsWith(`${name}=`))?.split("=")[1]);
  const advice = [
    "one server gives all bytes: large shards, read in file order, and each byte once a node (which Athanor does)",
  ];
  if (!(value("nconnect") > 1))
    advice.push("`nconnect=8` among the mount options opens several connections to the server (Linux 5.3 and later)");
  if (value("rsize") < 1_048_576)
    advice.push(`rsize=${value("rsize")}: 1048576 makes fewer, larger requests where the server allows it`);
  return advice;
}
