// Which chunk servers hold what is read; over a real MooseFS: test/fault/test_moosefs.py.
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Placement } from "../../src/placement/placement.ts";
import { replay } from "../lustre/replay.ts";

const MIB = 1 << 20;
const system = "fuse mfs#10.77.0.1:9421 rw,allow_other";

const chunk = (number: number, ...servers: number[]): string =>
  `\tchunk ${number}: 000000000000000${number}_00000001 / (id:${number} ver:1)\n` +
  servers.map((server, i) => `\t\tcopy ${i + 1}: 10.77.0.${server}:9422 (status:VALID)\n`).join("");

const PRINTED = [
  "/mnt/lustre/d/one:\n",
  chunk(0, 11),
  "/mnt/lustre/d/large:\n",
  chunk(0, 12),
  chunk(1, 13),
  "\tchunk 2: empty\n",
  "/mnt/lustre/d/twice:\n",
  chunk(0, 11, 14),
  "/mnt/lustre/d/gone: realpath error on (/mnt/lustre/d/gone): ENOENT (No such file or directory)\n",
].join("");

test("servers of byte ranges, by chunk, all copies; each file asked for once, many a call", async (t) => {
  const names = ["one", "large", "twice", "gone"];
  const files = Object.fromEntries(names.map((name) => [`d/${name}`, { size: 1 }]));
  const node = replay(t, { files, system, lfs: { mfsfileinfo: { stdout: PRINTED, status: 1 } } });
  await node.inside(async () => {
    const placement = new Placement();
    const at = (name: string): string => join(node.folder, "d", name);
    const home = placement.home(join(node.folder, "d"))!;
    assert.equal(home.targetsOf(at("one"), 0, 1), undefined);
    home.expect(names.map(at));
    for (let k = 0; home.targetsOf(at("twice"), 0, 1) === undefined; k++) {
      assert.ok(k < 1000, "nothing was learned");
      // oxlint-disable-next-line no-await-in-loop -- waits
      await sleep(10);
    }
    home.expect(names.map(at));
    await sleep(100);
    assert.deepEqual(node.calls(), [`mfsfileinfo -- ${names.map((name) => `/mnt/lustre/d/${name}`).join(" ")}`]);
    assert.deepEqual(home.targetsOf(at("one"), 0, 64 * MIB), ["mfs-10.77.0.11:9422"]);
    assert.deepEqual(home.targetsOf(at("large"), 60 * MIB, 4 * MIB), ["mfs-10.77.0.12:9422"]);
    assert.deepEqual(home.targetsOf(at("large"), 60 * MIB, 8 * MIB), ["mfs-10.77.0.12:9422", "mfs-10.77.0.13:9422"]);
    assert.equal(home.targetsOf(at("large"), 130 * MIB, 1), undefined, "a hole lies nowhere");
    assert.deepEqual(placement.targetsOf(at("twice"), 8, 0), ["mfs-10.77.0.11:9422", "mfs-10.77.0.14:9422"]);
    assert.equal(home.targetsOf(at("gone"), 0, 1), undefined);
    assert.deepEqual([home.restoring, home.requestBytes], [false, undefined]);
    placement.close();
  });
});

test("a metadata server that does not answer: nothing is known, nothing waits, and it is left alone for a while", async (t) => {
  const node = replay(t, { files: { "d/a": { size: 1 } }, system, lfs: { mfsfileinfo: { hang: true } } });
  await node.inside(async () => {
    const placement = new Placement({ timeoutMs: 3000 });
    const path = join(node.folder, "d/a");
    const home = placement.home(node.folder)!;
    home.expect([path]);
    for (const end = Date.now() + 20_000; node.calls().length === 0;) {
      assert.ok(Date.now() < end, "nothing was asked");
      // oxlint-disable-next-line no-await-in-loop -- waits
      await sleep(10);
    }
    // Until the call is given up.
    await sleep(3500);
    home.expect([path]);
    await sleep(300);
    assert.equal(node.calls().length, 1);
    assert.equal(home.targetsOf(path, 0, 1), undefined);
    placement.close();
  });
});
