import assert from "node:assert/strict";
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { makeFolders, removeEmpty } from "../../src/base/make-folders.ts";

const root = mkdtempSync(join(tmpdir(), "athanor-folders-"));
after(() => rmSync(root, { recursive: true, force: true }));

test("makes what is missing, names it, and takes back what is empty", async () => {
  mkdirSync(join(root, "a"));
  const made = await makeFolders(join(root, "a/b/c"));
  assert.deepEqual(made, [join(root, "a/b"), join(root, "a/b/c")]);
  assert.deepEqual(await makeFolders(join(root, "a/b/c")), []);
  writeFileSync(join(root, "a/b/kept"), "");
  await removeEmpty(made);
  assert.deepEqual([existsSync(join(root, "a/b/c")), existsSync(join(root, "a/b/kept"))], [false, true]);
});

test("two at a time both succeed", async () => {
  const both = await Promise.all([makeFolders(join(root, "x/y/z")), makeFolders(join(root, "x/y/z"))]);
  assert.equal(both.flat().length, 3);
});

test("a folder below /proc is an error, not an endless loop", { timeout: 10_000 }, async () => {
  await assert.rejects(makeFolders("/proc/athanor/blocks"), { code: "ENOENT" });
  writeFileSync(join(root, "file"), "");
  await assert.rejects(makeFolders(join(root, "file/below")), { code: "ENOTDIR" });
});
