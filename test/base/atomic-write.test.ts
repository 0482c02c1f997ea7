import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { writeAtomic } from "../../src/base/atomic-write.ts";

const folder = mkdtempSync(join(tmpdir(), "athanor-write-"));
after(() => rmSync(folder, { recursive: true, force: true }));

test("replaces a file whole and leaves nothing else behind", async () => {
  const path = join(folder, "file");
  await writeAtomic(path, [Buffer.from("old")]);
  const large = Buffer.alloc(3 * 1024 * 1024 + 7, "ab");
  await writeAtomic(path, [Buffer.from("new"), large]);
  assert.ok(readFileSync(path).equals(Buffer.concat([Buffer.from("new"), large])));
  assert.deepEqual(readdirSync(folder), ["file"]);
});

test("a write that fails leaves the old state and no temporary file", async () => {
  mkdirSync(join(folder, "taken", "inside"), { recursive: true });
  await assert.rejects(writeAtomic(join(folder, "taken"), [Buffer.from("x")]));
  assert.deepEqual(readdirSync(join(folder, "taken")), ["inside"]);
  assert.deepEqual(readdirSync(folder).sort(), ["file", "taken"]);
  await assert.rejects(writeAtomic(join(folder, "no", "such"), []), { code: "ENOENT" });
});
