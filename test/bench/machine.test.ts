import assert from "node:assert/strict";
import { test } from "node:test";
import { fileSystemOf } from "../../src/bench/machine.ts";

const MOUNTS = `22 1 8:1 / / rw - ext4 /dev/sda1 rw
40 22 0:50 / /mnt/lustre\\040fs rw,flock shared:5 - lustre 10.0.0.1@o2ib:/scratch rw
41 22 0:51 / /mnt rw - tmpfs tmpfs rw`;

test("the longest mount that holds the path wins, escapes are read", () => {
  assert.deepEqual(fileSystemOf("/mnt/lustre fs/d", MOUNTS), {
    type: "lustre",
    mount: "/mnt/lustre fs",
    device: "10.0.0.1@o2ib:/scratch",
  });
  assert.equal(fileSystemOf("/mnt/lustre", MOUNTS).type, "tmpfs");
  assert.equal(fileSystemOf("/home/x", MOUNTS).type, "ext4");
});
