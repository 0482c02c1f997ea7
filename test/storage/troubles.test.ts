import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { stateInSys } from "../../src/lustre/targets.ts";
import { noRoom } from "../../src/storage/no-room.ts";
import { createPosixStorage } from "../../src/storage/posix.ts";
import { Troubles } from "../../src/storage/troubles.ts";

test("a target is in trouble from its first fault until a read of it comes well", () => {
  const troubles = new Troubles((target) => (target === "x-OST0001" ? "switched off" : undefined));
  assert.deepEqual(troubles.list(), []);
  assert.equal(troubles.textOf(["x-OST0002"]), "x-OST0002");
  troubles.fault(["x-OST0001"], "ESHUTDOWN");
  const [first] = troubles.list();
  troubles.fault(["x-OST0001", "x-OST0002"], "EIO");
  const { since } = troubles.list()[0]!;
  assert.equal(since, first!.since);
  assert.match(since, /^\d{4}-\d\d-\d\dT/);
  assert.deepEqual(
    troubles.list().map(({ target, code, faults, state }) => [target, code, faults, state]),
    [
      ["x-OST0001", "EIO", 2, "switched off"],
      ["x-OST0002", "EIO", 1, undefined],
    ],
  );
  assert.match(troubles.textOf(["x-OST0001"]), /^x-OST0001 since \d\d:\d\d:\d\d, switched off$/);
  const many = Array.from({ length: 9 }, (_, ost) => `x-OST000${ost}`);
  assert.match(troubles.textOf(many), /^one of x-OST0000; x-OST0001 since .*; x-OST0002 since [^;]*; x-OST0003, …$/);
  troubles.fine(["x-OST0001"]);
  assert.deepEqual(
    troubles.list().map(({ target }) => target),
    ["x-OST0002"],
  );
});

test("a read that fails is named by its target, and tried once more where that is known", async () => {
  const asked: [number, number][] = [];
  const storage = createPosixStorage({
    backoffMs: 1,
    targetsOf: (_path, offset, length) => {
      asked.push([offset, length]);
      return ["x-OST0007"];
    },
    stateOf: () => "switched off on this client (active=0)",
  });
  // Nothing is mapped at address 0: the kernel answers EIO.
  await assert.rejects(storage.readShared("/proc/self/mem", undefined, new SharedArrayBuffer(8), 0, 0, 8), {
    code: "ATH_STORAGE_IO",
    message:
      /answered EIO 4 times \(x-OST0007 since \d\d:\d\d:\d\d, switched off on this client \(active=0\)\) \(`lfs check osts`/,
  });
  assert.ok(
    asked.some(([offset, length]) => offset === 0 && length === 1),
    "of the byte that failed",
  );
  const [trouble] = storage.stats().troubles;
  assert.deepEqual([trouble?.target, trouble?.code, trouble?.faults], ["x-OST0007", "EIO", 4]);
  await storage.close();
});

test("what /sys tells of an OST", (t) => {
  const root = mkdtempSync(join(tmpdir(), "athanor-sys-"));
  t.after(() => rmSync(root, { recursive: true }));
  for (const [device, active] of Object.entries({
    "fs-OST0001-osc-ffff8881": "0\n",
    "fs-OST0002-osc-ffff8881": "1\n",
    "fs-OST0003-osc-MDT0000": "0\n",
  })) {
    mkdirSync(join(root, "sys/fs/lustre/osc", device), { recursive: true });
    writeFileSync(join(root, "sys/fs/lustre/osc", device, "active"), active);
  }
  assert.equal(stateInSys("fs-OST0001", root), "switched off on this client (active=0)");
  for (const other of ["fs-OST0002", "fs-OST0003", "fs-OST0004", "fs-MDT"])
    assert.equal(stateInSys(other, root), undefined);
  assert.equal(stateInSys("fs-OST0001", join(root, "none")), undefined);
});

test("no room: what helps, in the words of the file system it is", (t) => {
  const root = mkdtempSync(join(tmpdir(), "athanor-room-"));
  const before = process.env["ATHANOR_HOST_ROOT"];
  t.after(() => {
    if (before === undefined) delete process.env["ATHANOR_HOST_ROOT"];
    else process.env["ATHANOR_HOST_ROOT"] = before;
    rmSync(root, { recursive: true });
  });
  mkdirSync(join(root, "proc/self"), { recursive: true });
  const mounts = "1 0 8:1 / / rw - ext4 /dev/sda rw\n2 1 0:9 / /l rw - lustre 10.0.0.1@tcp:/fs rw\n";
  writeFileSync(join(root, "proc/self/mountinfo"), mounts);
  process.env["ATHANOR_HOST_ROOT"] = root;
  // As Node gives them: it has no name for EDQUOT.
  const fault = (errno: number, code: string): Error => Object.assign(new Error(code), { errno, code });
  const full = fault(-28, "ENOSPC");
  const quota = fault(-122, "Unknown system error -122");
  assert.equal(noRoom(fault(-5, "EIO"), "/l/d"), undefined);
  assert.equal(noRoom(new Error("ours"), "/l/d"), undefined);
  assert.match(noRoom(full, "/l/d")!, /one full OST is enough, which `lfs df \/l` names and `df` does not/);
  assert.match(noRoom(quota, "/l/d")!, /quota .* used up: `lfs quota \/l`/);
  for (const error of [full, quota]) assert.doesNotMatch(noRoom(error, "/home/x")!, /lfs|OST/);
  process.env["ATHANOR_HOST_ROOT"] = join(root, "none");
  assert.match(noRoom(full, "/l/d")!, /free space/);
});
