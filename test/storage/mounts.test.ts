// Which file system a path lies on.
import assert from "node:assert/strict";
import { test } from "node:test";
import { mountOf, parseMountinfo, readMounts } from "../../src/storage/mounts.ts";
import { recorded } from "../lustre/fixtures.ts";

test("a client's mount is told from the stores of a server on the same node", () => {
  const mounts = parseMountinfo(`21 1 8:1 / / rw - ext4 /dev/vda rw\n${recorded("proc-self-mountinfo-lustre.txt")}`);
  assert.equal(mountOf("/mnt/lustre/d/a", mounts).kind, "lustre");
  assert.equal(mountOf("/mnt/lustre", mounts).source, "10.0.2.15@tcp:/lustre");
  assert.ok(mountOf("/mnt/lustre", mounts).options.includes("flock"));
  assert.equal(mountOf("/mnt/ost0", mounts).kind, "lustre-target");
  assert.equal(mountOf("/mnt/lustre2", mounts).kind, "local");
});

test("kinds of mounts", () => {
  const kinds = [
    ["lustre 10.0.8.11@o2ib,10.1.8.11@o2ib1:10.0.8.12@o2ib:/trainfs/team-a", "lustre"],
    ["lustre fs-01.fsx.us-east-1.amazonaws.com@tcp:/abcdefgh", "lustre"],
    ["fuse.mfs mfs#10.77.0.1:9421", "moosefs"],
    ["fuse mfs#10.77.0.1:9421", "moosefs"],
    ["ceph 10.0.9.1:6789,10.0.9.2:6789:/", "cephfs"],
    ["fuse.ceph-fuse ceph-fuse", "cephfs"],
    ["nfs4 filer:/export", "nfs"],
    ["gpfs fs1", "gpfs"],
    ["beegfs beegfs_nodev", "beegfs"],
    ["xfs /dev/nvme0n1", "local"],
    ["overlay overlay", "local"],
    ["tmpfs shm", "memory"],
    ["fuse.juicefs JuiceFS:x", "other"],
  ];
  for (const [system, kind] of kinds)
    assert.equal(parseMountinfo(`44 25 0:44 / /d rw,noatime shared:3 - ${system} rw`)[0]?.kind, kind, system);
});

test("a later mount hides an earlier one; blanks in names; lines that are none", () => {
  const mounts = parseMountinfo(
    [
      "1 0 8:1 / / rw - ext4 /dev/vda rw",
      "2 1 0:9 / /my\\040data rw - nfs4 a:/b rw",
      "3 2 0:9 / /my\\040data rw - tmpfs t rw",
      "?",
    ].join("\n"),
  );
  assert.equal(mounts.length, 3);
  assert.equal(mountOf("/my data/x", mounts).kind, "memory");
});

test("this machine's own", () => {
  assert.notEqual(mountOf("/proc", readMounts()).point, "/");
});
