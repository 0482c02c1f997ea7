// Where a copy goes and what it makes there: links, folders that not everybody may read, what lies there and not in the source.
import assert from "node:assert/strict";
import {
  chmodSync,
  chownSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import type { TestContext } from "node:test";
import { JOURNAL } from "../../src/staging/copy-plan.ts";
import { athanor } from "../cli/athanor.ts";

function scene(t: TestContext): string {
  const base = mkdtempSync(join(tmpdir(), "athanor-copy-"));
  t.after(() => rmSync(base, { recursive: true, force: true }));
  mkdirSync(join(base, "d/a/b"), { recursive: true });
  for (const name of ["d/one", "d/a/b/two"]) writeFileSync(join(base, name), name);
  return base;
}

const copy = (from: string, to: string): ReturnType<typeof athanor> =>
  athanor("layout", "apply", from, "--copy-to", to, "--apply", "--json");
const codeOf = ({ stderr }: { stderr: string }): unknown =>
  (JSON.parse(stderr) as { error: { code: string } }).error.code;

test("folders have the modes of the source, and as root its owners: what was private stays so", (t) => {
  const base = scene(t);
  const folders = ["", "a", "a/b"];
  for (const [i, name] of folders.entries()) chmodSync(join(base, "d", name), [0o700, 0o750, 0o711][i]!);
  const isRoot = process.getuid!() === 0;
  if (isRoot) for (const name of folders) chownSync(join(base, "d", name), 1234, 4321);
  const done = copy(join(base, "d"), join(base, "e"));
  assert.equal(done.code, 0, done.stderr);
  for (const name of folders) {
    const [from, to] = [statSync(join(base, "d", name)), statSync(join(base, "e", name))];
    assert.deepEqual([to.mode, to.uid, to.gid], [from.mode, from.uid, from.gid], name);
  }
});

test("a target that is a link is where it leads to: refused inside the source, else filled there", (t) => {
  const base = scene(t);
  mkdirSync(join(base, "d/empty"));
  symlinkSync("d/empty", join(base, "e"));
  assert.equal(codeOf(copy(join(base, "d"), join(base, "e"))), "ATH_COPY_TARGET");
  assert.deepEqual(readdirSync(join(base, "d/empty")), []);
  mkdirSync(join(base, "f"));
  symlinkSync("f", join(base, "g"));
  const done = copy(join(base, "d"), join(base, "g"));
  assert.equal(done.code, 0, done.stderr);
  assert.equal((JSON.parse(done.stdout) as { to: string }).to, join(base, "f"));
});

test("a file that a killed copy had renamed, but not written down, and that is gone since, is found", (t) => {
  const base = scene(t);
  mkdirSync(join(base, "e"));
  writeFileSync(
    join(base, "e", JOURNAL),
    `${JSON.stringify({ athanor: "copy", version: 1, from: join(base, "d") })}\n`,
  );
  writeFileSync(join(base, "e/old"), "x");
  assert.equal(codeOf(copy(join(base, "d"), join(base, "e"))), "ATH_COPY_SOURCE_CHANGED");
  rmSync(join(base, "e/old"));
  assert.equal(copy(join(base, "d"), join(base, "e")).code, 0);
});
