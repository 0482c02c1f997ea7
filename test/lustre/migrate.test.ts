// Why a file cannot be moved now, whatever the plan said; moves that are made: test/staging/moves.test.ts.
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { migrate, unmovable } from "../../src/lustre/migrate.ts";
import { mountOf, readMounts } from "../../src/storage/mounts.ts";
import { hexOf, recorded, sampled } from "./fixtures.ts";
import { WELL, plainLov, replay } from "./replay.ts";
import type { Recording, Replay } from "./replay.ts";

const SIZE = 64 << 20;
const FILES = {
  "d/well": { size: SIZE, lov: plainLov([3]) },
  "d/elsewhere": { size: SIZE, lov: plainLov([1]) },
  "d/striped": { size: SIZE, lov: plainLov([3, 1]) },
  "d/mirrored": { size: SIZE, lov: hexOf(sampled("xattr-lov-comp-flr.hex")) },
  "d/released": { size: SIZE, lov: hexOf(recorded("hsm-real-copytool.txt")) },
  "d/archived": { size: SIZE, lov: plainLov([3]) },
  "d/none": { size: SIZE },
};
const HSM = { "*": ": (0x00000000)", "/mnt/lustre/d/archived": ": (0x00000009) exists archived, archive_id:1" };

function why(scene: Replay, name: string, to = 0): Promise<string | undefined> {
  const root = join(scene.folder, "../root");
  const mount = mountOf(scene.folder, readMounts(root));
  const move = { path: name, size: SIZE, from: 3, to };
  return scene.inside(() => unmovable(join(scene.folder, "d", name), move, { mount, root }));
}

test("archived, released, mirrored, striped, laid elsewhere, not readable; an OST that is full or gone", async (t) => {
  const scene = replay(t, { files: FILES, lfs: { ...WELL, hsm_state: { each: HSM } } });
  const found: Record<string, string | undefined> = {};
  // oxlint-disable-next-line no-await-in-loop -- the environment is the process's
  for (const path of Object.keys(FILES)) found[path] = await why(scene, path.slice(2));
  assert.deepEqual(found, {
    "d/well": undefined,
    "d/elsewhere": "it lies on OST 3 no more",
    "d/striped": "it lies on OST 3 no more",
    "d/mirrored": "it is mirrored, and a migration would drop its mirrors",
    "d/released": "it is released to HSM",
    "d/archived": "HSM has an archive of it, which would be stale",
    "d/none": "its layout cannot be read now",
  });
  assert.equal(await why(scene, "well", 9), "OST 9 takes no files now (not told)");
  assert.equal(
    await why(replay(t, { files: FILES, lfs: { ...WELL, "df /mnt/lustre": { status: 1 } } }), "well"),
    "how full OST 0 is is not told",
  );
  const full = replay(t, {
    files: FILES,
    lfs: { ...WELL, "df /mnt/lustre": { stdout: recorded("enospc-lfs-df-v.txt") } },
  });
  assert.equal(await why(full, "well", 3), "OST 3 takes no files now (full)");
  const silent = replay(t, { files: FILES, lfs: { ...WELL, hsm_state: { status: 1 } } });
  assert.match((await why(silent, "well"))!, /does not tell whether an archive has it/);
});

test("a limit goes to an `lfs` that has one, in whole MiB; a refusal leaves the file, and is told", async (t) => {
  const called = async (
    lfs: Record<string, Recording>,
    bandwidth?: number,
  ): Promise<[string | undefined, string[]]> => {
    const scene = replay(t, { files: FILES, lfs: { ...WELL, migrate: { migrates: "well" }, ...lfs } });
    const root = join(scene.folder, "../root");
    const mount = mountOf(scene.folder, readMounts(root));
    const move = { path: "well", size: SIZE, from: 3, to: 0 };
    const told = await scene.inside(() =>
      migrate(join(scene.folder, "d/well"), move, ["-c", "1", "-o", "0"], { mount, root, bandwidth }),
    );
    return [told, scene.calls().filter((call) => call.startsWith("migrate --non-block"))];
  };
  const line = (limit: string): string[] => [`migrate --non-block ${limit}-c 1 -o 0 /mnt/lustre/d/well`];
  const help = { "migrate --help": { stderr: "usage: migrate [--bandwidth|-W BANDWIDTH_MB[MG]]\n" } };
  assert.deepEqual(await called(help, 5.5 * 2 ** 20), [undefined, line("--bandwidth 5M ")]);
  assert.deepEqual(await called(help, 2 ** 19), [undefined, line("")]);
  assert.deepEqual(await called({ "migrate --help": { stderr: "usage: migrate\n" } }, 2 ** 24), [undefined, line("")]);
  assert.deepEqual(await called({}), [undefined, line("")]);
  const [told] = await called({ migrate: { stderr: "lfs migrate: No space left on device (28)\n", status: 28 } });
  assert.equal(told, "`lfs migrate`: No space left on device (28)");
});
