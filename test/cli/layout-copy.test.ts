// `athanor layout apply --copy-to` where the copy goes to a Lustre: its striping, what is refused; the copy itself: test/staging/.
import assert from "node:assert/strict";
import { readFileSync, statSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { hexOf, recorded } from "../lustre/fixtures.ts";
import { WELL, plainLov, replay } from "../lustre/replay.ts";
import type { Recording, ReplayFile } from "../lustre/replay.ts";

/** Of two shards: each is wished for on four OSTs. */
const FILES: Record<string, ReplayFile> = {
  "d/a.tar": { size: 10_000, lov: plainLov([0]) },
  "d/b.tar": { size: 20_000, lov: plainLov([1]) },
};
const SET = "setstripe -c 4 -S 4M /mnt/lustre/new";
const quotas = (bytes = 0): Record<string, Recording> =>
  Object.fromEntries(
    [
      ["u", process.getuid!()],
      ["g", process.getgid!()],
    ].map(([kind, id]) => [
      `quota -${kind} ${id} /mnt/lustre`,
      {
        stdout:
          `Disk quotas for x (${kind}id ${id}):\n      Filesystem  kbytes  bquota  blimit  bgrace   files  iquota  ilimit  igrace\n` +
          `     /mnt/lustre    1000       0 ${bytes / 1024}       -      10       0       0       -\n`,
      },
    ]),
  );

function fill(folder: string): void {
  for (const [name, { size }] of Object.entries(FILES)) writeFileSync(join(folder, name), Buffer.alloc(size, 7));
}

test("the new folder is striped before the first file, and what it would have inherited is told", (t) => {
  const next = { "getstripe -d -y /mnt/lustre/new": { stdout: recorded("getstripe-d-y-dir-c4.txt") } };
  const scene = replay(t, { files: FILES, lfs: { ...WELL, ...quotas(), [SET]: { next } } });
  fill(scene.folder);
  const line = ["apply", "d", "--copy-to", "new"];
  const would = scene.run(...line);
  assert.equal(
    would.stdout,
    "would copy 2 files, 29.3KiB: /mnt/lustre/d to /mnt/lustre/new\n" +
      "  striped by: lfs setstripe -c 4 -S 4M /mnt/lustre/new\n" +
      "    2 files on 4 OSTs: 4 OSTs a file bring more of them to work\n" +
      "    instead of: -c 1 -S 4M\n" +
      "nothing was changed: --apply does it\n",
  );
  assert.ok(scene.calls().every((call) => !call.startsWith("setstripe")));
  const done = scene.run(...line, "--apply");
  assert.equal(done.code, 0, done.stderr);
  assert.match(done.stdout, /striped so: lfs setstripe -c 4 -S 4M \/mnt\/lustre\/new\n/);
  assert.equal(scene.calls().filter((call) => call === SET).length, 1);
  assert.deepEqual(readFileSync(join(scene.folder, "new/b.tar")), readFileSync(join(scene.folder, "d/b.tar")));
});

test("refused before anything is made: released files, no room on the OSTs, no quota", (t) => {
  const refused = (files: Record<string, ReplayFile>, lfs: Record<string, Recording>): Record<string, string> => {
    const scene = replay(t, { files, lfs: { ...WELL, ...quotas(), ...lfs } });
    fill(scene.folder);
    const ran = scene.run("apply", "d", "--copy-to", "new", "--apply", "--json");
    assert.throws(() => readFileSync(join(scene.folder, "new")), /ENOENT/);
    return (JSON.parse(ran.stderr) as { error: Record<string, string> }).error;
  };
  const released = { size: 20_000, lov: hexOf(recorded("hsm-real-copytool.txt")) };
  const archived = refused({ ...FILES, "d/b.tar": released }, {});
  assert.equal(archived["code"], "ATH_COPY_RELEASED");
  assert.match(archived["message"]!, /1 file released to HSM: b\.tar/);
  assert.match(archived["remedy"]!, /hsm_restore/);
  const full = recorded("lfs-df.txt").replace(/^(lustre-OST\S+ +)(\d+) +\d+ +\d+ +\d+%/gm, "$1$2 $2 0 100%");
  const crowded = refused(FILES, { "df /mnt/lustre": { stdout: full } });
  assert.deepEqual([crowded["code"], /more than 85 % full/.test(crowded["message"]!)], ["ATH_COPY_NO_ROOM", true]);
  const poor = refused(FILES, quotas(1_024_000 + 1024));
  assert.equal(poor["code"], "ATH_COPY_NO_ROOM");
  assert.match(poor["message"]!, /quota of user \d+: 1KiB left, 29\.3KiB needed/);
});

test("a file of holes is copied from a Lustre that says it is not released", (t) => {
  const next = { "getstripe -d -y /mnt/lustre/new": { stdout: recorded("getstripe-d-y-dir-c4.txt") } };
  const files = { ...FILES, "d/b.tar": { size: 1 << 20, lov: plainLov([1]) } };
  const scene = replay(t, { files, lfs: { ...WELL, ...quotas(), [SET]: { next } } });
  writeFileSync(join(scene.folder, "d/a.tar"), Buffer.alloc(10_000, 7));
  truncateSync(join(scene.folder, "d/b.tar"), 1 << 20);
  const done = scene.run("apply", "d", "--copy-to", "new", "--apply");
  assert.equal(done.code, 0, done.stderr);
  assert.equal(statSync(join(scene.folder, "new/b.tar")).size, 1 << 20);
});
