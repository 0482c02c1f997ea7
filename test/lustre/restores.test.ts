// Restores of files that stay away, are deleted, or do not answer any more: nobody waits for ever.
import assert from "node:assert/strict";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { until } from "../base/until.ts";
import { Placement } from "../../src/placement/placement.ts";
import { Restores } from "../../src/lustre/restores.ts";
import type { RestoreOptions, Told } from "../../src/lustre/restores.ts";
import { Polite, parsePolite } from "../../src/storage/polite.ts";
import { plainLov, replay } from "./replay.ts";
import type { Replay } from "./replay.ts";

const RELEASED = plainLov([0], { pattern: 0x8000_0001 });

/** Timers of restores keep no process alive: the test has to. */
async function arrived(arrival: Promise<void> | undefined): Promise<void> {
  let back = false;
  void arrival!.then(() => (back = true));
  await until(() => back);
}

/** Restores in which looks are answered by `told`, the last answer again and again. */
async function restoring(
  node: Replay,
  told: Told[],
  options: Partial<RestoreOptions>,
  work: (restores: Restores, said: string[]) => Promise<void>,
): Promise<void> {
  const said: string[] = [];
  const look = (paths: readonly string[]): Promise<Told[]> => {
    const answer = told.length > 1 ? told.shift()! : told[0]!;
    return Promise.resolve(paths.map(() => answer));
  };
  await node.inside(async () => {
    const restores = new Restores({ pollMs: 5, tell: (text) => said.push(text), look, ...options });
    try {
      await work(restores, said);
    } finally {
      restores.close();
    }
  });
}

for (const [what, told, why] of [
  ["has no layout any more", ["released", "unclear"], /has no layout to tell of any more: its readers wait no longer/],
  ["does not answer three times", ["silent"], /does not answer any more when it is asked for its layout/],
] as const) {
  test(`a restore of a file that ${what} ends, and its place is another's`, async (t) => {
    const node = replay(t, { files: {}, lfs: { hsm_restore: {} } });
    await restoring(node, [...told], { atOnce: 1 }, async (restores, said) => {
      restores.add("/mnt/lustre/d/gone", 0);
      restores.add("/mnt/lustre/d/next", 1);
      await arrived(restores.arrival("/mnt/lustre/d/gone"));
      assert.match(said.at(-1)!, why);
      assert.equal(restores.noteOf("/mnt/lustre/d/gone"), undefined);
      await arrived(restores.arrival("/mnt/lustre/d/next"));
      // A look may tell of it while its `lfs` only starts.
      await until(() => node.calls().length === 2);
      // It may be there again by the time it is expected again.
      restores.add("/mnt/lustre/d/gone", 0);
      assert.notEqual(restores.arrival("/mnt/lustre/d/gone"), undefined);
    });
  });
}

test("a file that answers now and then is waited for", async (t) => {
  const node = replay(t, { files: {}, lfs: { hsm_restore: {} } });
  const told: Told[] = ["silent", "silent", "released", "silent", "silent", "back"];
  await restoring(node, told, {}, async (restores, said) => {
    restores.add("/mnt/lustre/d/a", 0);
    await arrived(restores.arrival("/mnt/lustre/d/a"));
    assert.equal(told.length, 1);
    assert.equal(said.length, 1);
  });
});

test("a file that stays released is asked for again", async (t) => {
  const node = replay(t, { files: {}, lfs: { hsm_restore: {} } });
  await restoring(node, ["released"], { againMs: 100 }, async (restores) => {
    restores.add("/mnt/lustre/d/a", 0);
    await until(() => node.calls().length >= 3);
    assert.notEqual(restores.arrival("/mnt/lustre/d/a"), undefined);
  });
});

test("a file that is deleted under its restore keeps nobody", async (t) => {
  const node = replay(t, { files: { "d/a": { size: 1 << 20, lov: RELEASED } }, lfs: { hsm_restore: {} } });
  await node.inside(async () => {
    const placement = new Placement({ pollMs: 20 });
    try {
      const path = join(node.folder, "d/a");
      const home = placement.home(node.folder)!;
      home.expect([path]);
      await until(() => home.arrival(path) !== undefined);
      const arrival = home.arrival(path)!;
      rmSync(path);
      await arrived(arrival);
      assert.equal(home.noteOf(path), undefined);
    } finally {
      placement.close();
    }
  });
});

test("restores begin as fast as the job's cap allows, whatever the places", async (t) => {
  const node = replay(t, { files: {}, lfs: { hsm_restore: {} } });
  const polite = new Polite(parsePolite("restores=1"));
  await restoring(node, ["released"], { atOnce: 100, polite }, async (restores) => {
    const began = performance.now();
    for (let k = 0; k < 6; k++) restores.add(`/mnt/lustre/d/${k}`, k);
    await until(() => polite.stats().restores!.waiting === 1);
    await until(() => node.calls().length === 6);
    assert.ok(performance.now() - began >= 1990, "four at once, then one a second");
    // Where nothing ran for a second, one wait was for both.
    const { waiting, waited } = polite.stats().restores!;
    assert.ok(waiting === 0 && (waited === 1 || waited === 2), `${waiting} wait, ${waited} waited`);
  });
});
