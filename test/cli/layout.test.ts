// `athanor layout` as a user types it, over recorded outputs; the reports themselves: test/lustre/report.test.ts.
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { hexOf, recorded } from "../lustre/fixtures.ts";
import { ROUND, WELL, lostOst, plainLov, replay, shards } from "../lustre/replay.ts";
import type { Recording, Replay } from "../lustre/replay.ts";
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
  assert.equal(athanor("layout", "show", "/no-such-file-here", "--json").error().code, "ATH_NOT_FOUND");
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
  const scene = replay(t, lostOst());
  const shown = scene.run("show", `${scene.folder}/d`, "--timeout", "2s");
  assert.deepEqual([shown.code, shown.stderr], [0, ""]);
  assert.match(shown.stdout, /OST 2 \(lustre-OST0002\) does not answer.*4 files here/);
});

const NEW = "-c 4 -S 4M";
/** Two large shards: four OSTs each are wished for. */
const FEW = { "d/a.tar": { size: 64 * MIB, lov: plainLov([0]) }, "d/b.tar": { size: 64 * MIB, lov: plainLov([1]) } };

test("apply: says what it would do, does it when told, reads it back, and prints the undo", (t) => {
  const next = { "getstripe -d -y /mnt/lustre/d": { stdout: recorded("getstripe-d-y-dir-c4.txt") } };
  const scene = replay(t, { files: FEW, lfs: { ...WELL, [`setstripe ${NEW} /mnt/lustre/d`]: { next } } });
  const would = scene.run("apply", `${scene.folder}/d`);
  assert.equal(would.code, 0, would.stderr);
  assert.equal(
    would.stdout,
    `would run: lfs setstripe ${NEW} /mnt/lustre/d\nundo: lfs setstripe -d /mnt/lustre/d\nnothing was changed: --apply does it\n`,
  );
  assert.ok(scene.calls().every((call) => !call.startsWith("setstripe")));
  const done = scene.run("apply", `${scene.folder}/d`, "--apply");
  assert.equal(done.code, 0, done.stderr);
  assert.match(
    done.stdout,
    /^done: lfs setstripe -c 4 -S 4M \/mnt\/lustre\/d\nundo: lfs setstripe -d \/mnt\/lustre\/d\n/,
  );
  assert.deepEqual(
    scene.calls().filter((call) => call.startsWith("setstripe")),
    [`setstripe ${NEW} /mnt/lustre/d`],
  );
  assert.match(scene.run("apply", `${scene.folder}/d`, "--apply").stdout, /set that way already/);
});

test("apply: a refusal of lfs, another result than asked for, no answer, the whole file system", (t) => {
  const failed = (lfs: Record<string, Recording>, path = "d"): { message: string; remedy: string; scene: Replay } => {
    const scene = replay(t, { files: FEW, lfs: { ...WELL, ...lfs } });
    const ran = scene.run(
      "apply",
      join(scene.folder, path),
      "--for",
      "checkpoints",
      "--apply",
      "--json",
      "--timeout",
      "2s",
    );
    assert.equal(ran.code, 3, ran.stdout);
    const { error } = JSON.parse(ran.stderr) as { error: { code: string; message: string; remedy: string } };
    assert.equal(error.code, "ATH_LAYOUT_NOT_APPLIED");
    return { ...error, scene };
  };
  const denied = failed({
    setstripe: { status: 1, stderr: "lfs setstripe: setstripe error for '/mnt/lustre/d': Operation not permitted\n" },
  });
  assert.match(denied.message, /Operation not permitted/);
  assert.equal(denied.remedy, "nothing was changed");
  const other = failed({ setstripe: {} });
  assert.match(other.message, /was set to: -c 1 -S 4M, expected -E 1G/);
  assert.equal(other.remedy, "it was undone");
  assert.equal(other.scene.calls().at(-1), "setstripe -d /mnt/lustre/d");
  assert.match(failed({ setstripe: { hang: true } }).message, /does not answer; it may still take effect/);
  assert.match(failed({}, ".").message, /everybody's folders/);
});
