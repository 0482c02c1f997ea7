// `athanor layout` as a user types it, over recorded outputs; the reports themselves: test/lustre/report.test.ts.
import assert from "node:assert/strict";
import { test } from "node:test";
import { hexOf, recorded } from "../lustre/fixtures.ts";
import { ROUND, WELL, replay, shards } from "../lustre/replay.ts";
import { athanor } from "./athanor.ts";

const MIB = 2 ** 20;

test("a relative path and one through a symbolic link tell the same", (t) => {
  const scene = replay(t, { files: shards(ROUND), lfs: WELL });
  assert.equal(scene.run("show", "d").stdout, scene.run("show", `${scene.folder}/d/../d`).stdout);
});

test("neither: the environment is at fault, not the data", (t) => {
  const scene = replay(t, { files: shards(ROUND), python: false });
  const ran = scene.run("show", `${scene.folder}/d`, "--json");
  assert.equal(ran.code, 3);
  assert.match(ran.stderr, /ATH_LAYOUT_UNREADABLE.*ATHANOR_PYTHON/);
});

test("a path that is not there, and flags that are none", (t) => {
  const scene = replay(t, { lfs: WELL });
  const missing = scene.run("show", `${scene.folder}/none`, "--json");
  assert.deepEqual([missing.code, /ATH_NOT_FOUND/.test(missing.stderr)], [3, true]);
  for (const flags of [
    ["--limit", "0"],
    ["--for", "speed"],
    ["--timeout", "soon"],
  ])
    assert.equal(athanor("layout", "advise", "/", ...flags).code, 2, flags.join(" "));
});
test("exit codes: 0 when all is well, 1 when there is something to do; show only shows", (t) => {
  const well = replay(t, { files: shards(ROUND), lfs: WELL });
  assert.equal(well.run("advise", `${well.folder}/d`).code, 0);
  const uneven = replay(t, { files: shards([[3], [3], [3], [3]]), lfs: WELL });
  assert.equal(uneven.run("advise", `${uneven.folder}/d`).code, 1);
  assert.equal(uneven.run("show", `${uneven.folder}/d`).code, 0);
});

test("--json: components, targets and lines for programs", (t) => {
  const files = { "f/pfl": { size: 128 * MIB, lov: hexOf(recorded("getfattr-pfl.txt")) } };
  const scene = replay(t, { files, lfs: WELL });
  const ran = scene.run("show", `${scene.folder}/f/pfl`, "--json");
  const report = JSON.parse(ran.stdout) as {
    targets: { state: string }[];
    files: { size: number; released: boolean; layout: { components: { end: number | null; osts: number[] }[] } }[];
  };
  assert.deepEqual([report.files[0]?.size, report.files[0]?.released], [128 * MIB, false]);
  assert.deepEqual(
    report.files[0]?.layout.components.map(({ end, osts }) => [end, osts]),
    [
      [64 * MIB, [1]],
      [1024 * MIB, [1, 0, 2, 3]],
      [null, []],
    ],
  );
  assert.deepEqual(
    report.targets.map(({ state }) => state),
    ["ok", "ok", "ok", "ok"],
  );
});

test("an OST that is lost keeps the command from nothing, its end included", (t) => {
  const lfs = {
    ...WELL,
    "df /mnt/lustre": { stdout: recorded("failout-lfs-df.txt"), hang: true },
    "check osts": { stdout: recorded("failout-lfs-check.txt"), stderr: recorded("failout-lfs-check.stderr.txt") },
  };
  const files = shards(ROUND);
  for (const [i, file] of Object.values(files).entries()) file.hangs = ROUND[i]![0] === 2;
  const scene = replay(t, { files, lfs });
  const shown = scene.run("show", `${scene.folder}/d`, "--timeout", "2s");
  assert.deepEqual([shown.code, shown.stderr], [0, ""]);
  assert.match(shown.stdout, /OST 2 \(lustre-OST0002\) does not answer.*4 files here/);
});
