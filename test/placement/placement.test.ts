// Where files lie, asked for in the background over the replayed Lustre; released ones brought back ahead.
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { until } from "../base/until.ts";
import { Placement } from "../../src/placement/placement.ts";
import type { PlacementOptions } from "../../src/placement/placement.ts";
import { requestBytes } from "../../src/lustre/request-size.ts";
import { hexOf, recorded } from "../lustre/fixtures.ts";
import { plainLov, replay } from "../lustre/replay.ts";
import type { Replay, Scene } from "../lustre/replay.ts";

const MIB = 1 << 20;
const RELEASED = plainLov([0], { pattern: 0x8000_0001 });

/** Runs `work` with a placement on the replayed node. */
async function placed(
  node: Replay,
  options: PlacementOptions,
  work: (placement: Placement, told: string[]) => Promise<void>,
): Promise<void> {
  const told: string[] = [];
  await node.inside(async () => {
    const placement = new Placement({ tell: (text) => told.push(text), ...options });
    try {
      await work(placement, told);
    } finally {
      placement.close();
    }
  });
}

const FILES: NonNullable<Scene["files"]> = {
  "d/one": { size: 64 * MIB, lov: plainLov([3]) },
  "d/four": { size: 64 * MIB, lov: plainLov([0, 1, 2, 11]) },
  "d/grows": { size: 4 * MIB, lov: hexOf(recorded("getfattr-lustre.lov-pfl.txt")) },
  "d/dom": { size: 4 * MIB, lov: hexOf(recorded("getfattr-dom.txt")) },
  "d/none": { size: MIB },
};

test("targets of byte ranges, by the layouts of all kinds, each file asked for once", async (t) => {
  const node = replay(t, { files: FILES });
  await placed(node, {}, async (placement) => {
    const at = (name: string): string => join(node.folder, "d", name);
    const home = placement.home(join(node.folder, "d"))!;
    home.expect(["one", "four", "grows"].map(at));
    home.expect(["one", "dom", "none"].map(at));
    await until(() => home.targetsOf(at("dom"), 0, 1) !== undefined);
    home.expect(Object.keys(FILES).map((name) => join(node.folder, name)));
    await sleep(100);
    assert.equal(node.askedFor().length, 5);
    assert.deepEqual(placement.targetsOf(at("one"), 0, 64 * MIB), ["lustre-OST0003"]);
    assert.deepEqual(home.targetsOf(at("four"), 0, 4 * MIB), ["lustre-OST0000"]);
    assert.deepEqual(home.targetsOf(at("four"), 12 * MIB, 8 * MIB), ["lustre-OST0000", "lustre-OST000b"]);
    assert.deepEqual(home.targetsOf(at("dom"), 0, 4096), ["lustre-MDT"]);
    assert.equal(home.targetsOf(at("none"), 0, 4096), undefined);
    assert.equal(home.targetsOf(at("never-expected"), 0, 4096), undefined);
    assert.notEqual(home.targetsOf(at("grows"), 0, 4096), undefined);
    assert.equal(home.arrival(at("one")), undefined);
  });
});

test("no file system that tells on the node: nothing is kept and nothing is asked; data elsewhere: nothing is asked", async (t) => {
  const node = replay(t, { files: FILES, system: "nfs4 10.0.0.1:/d rw" });
  await placed(node, {}, async (placement) => {
    assert.equal(placement.home(node.folder), undefined);
    await sleep(50);
    assert.deepEqual(node.askedFor(), []);
  });
  const beside = replay(t, { files: FILES });
  await placed(beside, {}, async (placement) => {
    const home = placement.home(join(node.folder, "d"))!;
    home.expect([join(node.folder, "d/one")]);
    await sleep(200);
    home.expect([join(node.folder, "d/four")]);
    await sleep(100);
    assert.equal(home.requestBytes, undefined);
    assert.deepEqual(beside.askedFor(), []);
  });
});

test("files that do not answer cost their processes, and the server is left alone for a while", async (t) => {
  const files = { ...FILES, "lost/a": { size: MIB, lov: plainLov([1]), hangs: true } };
  const node = replay(t, { files });
  await placed(node, { timeoutMs: 3000 }, async (placement) => {
    const at = (name: string): string => join(node.folder, name);
    const home = placement.home(node.folder)!;
    home.expect([at("lost/a"), at("d/one")]);
    await until(() => home.targetsOf(at("d/one"), 0, 1) !== undefined);
    assert.equal(home.targetsOf(at("lost/a"), 0, 1), undefined);
    home.expect([at("lost/a"), at("d/four")]);
    await sleep(300);
    assert.equal(node.askedFor().length, 2);
  });
});

test("released shards are restored ahead, so many at a time, the needed one first, and told of", async (t) => {
  const names = ["a", "b", "c", "d", "e"].map((name) => `d/${name}`);
  const files = Object.fromEntries(names.map((name) => [name, { size: 64 * MIB, lov: RELEASED }]));
  const node = replay(t, { files, lfs: { hsm_restore: {} } });
  await placed(node, { atOnce: 2, pollMs: 20 }, async (placement, told) => {
    const at = (name: string): string => join(node.folder, name);
    const home = placement.home(node.folder)!;
    const restored = (): string[] => node.calls().map((call) => call.slice(-1));
    home.expect(names.map(at));
    await until(() => node.calls().length === 2);
    await sleep(200);
    assert.deepEqual(restored().sort(), ["a", "b"]);
    assert.equal(told.length, 1);
    assert.match(
      told[0]!,
      /^5 shards are released to HSM and restored ahead of use, at most 2 at a time; the first: .*d\/a/,
    );
    assert.match(home.noteOf(at("d/a"))!, /^released to HSM, its restore was asked for .* ago$/);
    assert.match(home.noteOf(at("d/e"))!, /waits for others/);
    let back = false;
    void home.arrival(at("d/e"))!.then(() => (back = true));
    node.setLayouts({ "d/a": plainLov([2]) });
    await until(() => node.calls().length === 3);
    assert.equal(restored().at(-1), "e");
    assert.equal(home.arrival(at("d/a")), undefined);
    assert.deepEqual(home.targetsOf(at("d/a"), 0, 1), ["lustre-OST0002"]);
    assert.equal(back, false);
    node.setLayouts({ "d/e": plainLov([3]) });
    await until(() => back);
    node.setLayouts(Object.fromEntries(["b", "c", "d"].map((name) => [`d/${name}`, plainLov([0])])));
    await until(() => home.noteOf(at("d/d")) === undefined && node.calls().length === 5);
    assert.deepEqual(restored().sort(), ["a", "b", "c", "d", "e"]);
  });
});

test("a restore that is refused, or cannot be asked for, keeps nobody", async (t) => {
  const files = { "d/a": { size: MIB, lov: RELEASED } };
  const refused = { hsm_restore: { status: 1, stderr: "cannot restore: Operation not permitted\n" } };
  for (const [lfs, why] of [
    [
      refused,
      /cannot be restored ahead \(`lfs hsm_restore`: cannot restore: Operation not permitted\): its first read/,
    ],
    [undefined, /there is no `lfs` here/],
  ] as const) {
    const node = replay(t, { files, lfs });
    await placed(node, { pollMs: 20 }, async (placement, told) => {
      const path = join(node.folder, "d/a");
      const home = placement.home(node.folder)!;
      home.expect([path]);
      await until(() => told.length === 2 && home.arrival(path) === undefined);
      assert.match(told[1]!, why);
      home.expect([path]);
      await sleep(100);
      assert.equal(told.length, 2);
    });
  }
});

test("the size of a request, by RPC size and by the threshold from which reads go direct", async (t) => {
  const osc = (pages: string) => ({ "osc/lustre-OST0000-osc-ffff8881/max_pages_per_rpc": pages });
  const llite = (bytes: string) => ({ "llite/lustre-ffff8881/hybrid_io_read_threshold_bytes": bytes });
  for (const [sys, expected] of [
    [{}, 8],
    [osc("1024\n"), 8],
    [{ ...osc("4096\n"), ...llite("8388608\n") }, 16],
    [{ ...osc("16384\n") }, 16],
    [{ ...osc("256\n"), ...llite("12582912\n") }, 12],
    [llite("268435456\n"), 8],
    [osc("not a number\n"), 8],
  ] as const) {
    const node = replay(t, { files: { "d/a": { size: 1 } }, sys });
    await placed(node, {}, async (placement) => {
      const home = placement.home(node.folder)!;
      await until(() => home.requestBytes !== undefined);
      assert.equal(home.requestBytes, expected * MIB);
    });
  }
  assert.equal(requestBytes("lustre", "/no-such-root"), 8 * MIB);
});

test("a file that takes up no space is asked for before it is read, once", async (t) => {
  const files = { "d/away": { size: 64 * MIB, lov: RELEASED }, "d/hole": { size: MIB, lov: plainLov([1]) } };
  const node = replay(t, { files, lfs: { hsm_restore: {} } });
  await placed(node, { pollMs: 20 }, async (placement) => {
    const at = (name: string): string => join(node.folder, "d", name);
    assert.equal(placement.whenThere(at("away")), undefined, "nothing was opened yet");
    const home = placement.home(node.folder)!;
    home.expect([at("hole")]);
    let back = 0;
    for (let k = 0; k < 3; k++) void placement.whenThere(at("away"))!.then(() => back++);
    await Promise.all([1, 2].map(() => placement.whenThere(at("hole"))!));
    await placement.whenThere(join(node.folder, "../elsewhere"));
    await until(() => node.calls().length === 1);
    assert.equal(back, 0);
    assert.match(home.noteOf(at("away"))!, /^released to HSM, its restore was asked for/);
    node.setLayouts({ "d/away": plainLov([2]) });
    await until(() => back === 3);
    await placement.whenThere(at("away"));
    assert.equal(node.askedFor().filter((path) => path.endsWith("hole")).length, 1);
    assert.deepEqual(home.targetsOf(at("hole"), 0, 1), ["lustre-OST0001"]);
  });
});
