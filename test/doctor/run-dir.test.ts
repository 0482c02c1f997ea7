// The run directory: doctor refuses what the client refuses, and makes nothing.
import assert from "node:assert/strict";
import { chmodSync, existsSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { checkRunDir } from "../../src/doctor/run-dir.ts";
import { readFacts } from "../../src/doctor/read-facts.ts";
import { parseMountinfo, readMounts } from "../../src/storage/mounts.ts";
import { factsOf } from "./scene.ts";

const USER = { uid: process.getuid!(), gid: process.getgid!() };

async function judged(path: string): Promise<string | undefined> {
  const { runDir } = await readFacts("/", [], 10_000, path);
  const { findings } = checkRunDir({ ...factsOf({}), mounts: readMounts("/"), runDir, user: USER })!;
  assert.ok(findings.length < 2);
  return findings[0] && `${findings[0].id}: ${findings[0].what} | ${findings[0].evidence} | ${findings[0].fix}`;
}

test("ATHANOR_RUN_DIR that cannot be made: doctor said nothing, and the loader failed", async (t) => {
  const base = mkdtempSync(join(tmpdir(), "athanor-doctor-"));
  t.after(() => rmSync(base, { recursive: true }));
  const open = join(base, "open");
  mkdirSync(open);
  chmodSync(open, 0o755);
  mkdirSync(join(base, "own"), 0o700);
  symlinkSync(join(base, "own"), join(base, "link"));
  writeFileSync(join(base, "file"), "");
  const cases: [string, RegExp][] = [
    [
      "/proc/nope",
      /^run-dir-unusable: .*neither folders nor sockets can be made there \| \/proc\/nope is on \/proc \(proc\) \| name another/,
    ],
    ["/nope/x", /the folder above it is not there \| \/nope\/x: ENOENT \| `mkdir -p -m 700 \/nope`/],
    [join(base, "file/x"), /a part of the path is no folder \| .*: ENOTDIR/],
    [join(base, "file"), /must be a folder of user \d+ with mode 0700 \| .*: no folder/],
    [join(base, "link"), /must be a folder of user \d+ with mode 0700 \| .*: no folder/],
    [open, /must be a folder .* \| .*: a folder, owner \d+, mode 0755 \| `chmod 700 /],
    [join(base, "x".repeat(100)), /has \d+ bytes, the kernel takes 107 \|.*\| name a shorter path/],
  ];
  for (const [path, shape] of cases) {
    const found = (await judged(path)) ?? "nothing";
    assert.match(found, shape, path);
    assert.match(
      found,
      /^run-dir-unusable: no agent can listen in ATHANOR_RUN_DIR, and loaders fail with ATH_RUN_DIR: /,
    );
  }
  for (const name of ["own", "new"]) assert.equal(await judged(join(base, name)), undefined, name);
  assert.ok(!existsSync(join(base, "new")));
});

test("a folder that this user may not write to, one of another user, one that does not answer, one on a network", () => {
  const facts = factsOf({});
  type Found = NonNullable<typeof facts.runDir>["found"];
  const mounts = parseMountinfo(
    "21 1 8:1 / / rw - ext4 /dev/vda rw\n44 21 0:44 / /mnt/smb rw - cifs //server/share rw\n",
  );
  const found = (answer: Found): string[] =>
    checkRunDir({ ...facts, mounts, runDir: { path: "/run/x", found: answer } })!.findings.map(
      ({ id, what, evidence }) => `${id} ${what} ${evidence}`,
    );
  assert.match(
    found({ own: undefined, real: "/run", denied: "EACCES" })[0]!,
    /may not write there access \/run: EACCES/,
  );
  assert.match(found({ own: undefined, real: "/run", denied: "EROFS" })[0]!, /read-only/);
  assert.match(
    found({ own: { folder: true, uid: 7, mode: 0o40700 }, real: "/run/x" })[0]!,
    /user 1000 .* owner 7, mode 0700/,
  );
  assert.match(found({ silent: true })[0]!, /^run-dir-unusable .*does not answer/);
  assert.match(found({ own: undefined, real: "/mnt/smb" })[0]!, /^run-dir-network ATHANOR_RUN_DIR lies on cifs/);
  assert.deepEqual(found({ own: undefined, real: "/run" }), []);
  assert.equal(checkRunDir(facts), undefined);
});
