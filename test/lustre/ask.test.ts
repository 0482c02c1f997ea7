// Asking about files in bulk, with real xattrs, and with calls that do not return.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { askFiles } from "../../src/lustre/ask.ts";
import { NO_CAPS, Polite } from "../../src/storage/polite.ts";
import type { Answer } from "../../src/lustre/ask.ts";

const folder = mkdtempSync(join(tmpdir(), "athanor-ask-"));
after(() => rmSync(folder, { recursive: true }));

const PYTHON = process.env["ATHANOR_PYTHON"] ?? "python3";

/** A Python that never returns from a call on a file named `hang`. */
function hangingPython(): string {
  const path = join(folder, "python-that-hangs");
  const patch =
    "import os, time\nreal = os.stat\nos.stat = lambda p, *a, **k: time.sleep(600) if 'hang' in str(p) else real(p, *a, **k)\n";
  writeFileSync(path, `#!/bin/sh\nexec "${PYTHON}" "$1" "$2" "$3" "${patch.replace(/\n/g, "\n")}\n$4" "$5"\n`);
  chmodSync(path, 0o755);
  return path;
}

const codes = (answers: Answer[] | undefined): unknown[] =>
  (answers ?? []).map((answer) =>
    "code" in answer ? answer.code : "size" in answer ? answer.size : [...answer.value],
  );

function message(answers: Answer[] | undefined, at: number): string {
  const answer = answers?.[at];
  return answer !== undefined && "message" in answer ? answer.message : "";
}

test("xattrs, sizes and faults, in order, whatever the names are", async (t) => {
  const name = join(folder, 'a "b"\n\\ ü');
  writeFileSync(name, "12345");
  const set = spawnSync(PYTHON, [
    "-c",
    "import os,sys; os.setxattr(sys.argv[1], 'user.lov', bytes([0, 255, 10]))",
    name,
  ]);
  if (set.status !== 0) return t.skip("no user xattrs here");
  const answers = await askFiles([
    { path: name, xattr: "user.lov" },
    { path: name },
    { path: folder, xattr: "user.lov" },
    { path: join(folder, "none"), xattr: "user.lov" },
    { path: "a\0b" },
    { path: folder },
  ]);
  assert.deepEqual(codes(answers).slice(0, 5), [[0, 255, 10], 5, "ENODATA", "ENOENT", "EINVAL"]);
  assert.ok(answers?.[5] !== undefined && "folder" in answers[5] && answers[5].folder);
});

test("many files", async () => {
  const answers = await askFiles(
    Array.from({ length: 5000 }, () => ({ path: folder })),
    { polite: new Polite(NO_CAPS) },
  );
  assert.equal(answers?.length, 5000);
  assert.ok(answers?.every((answer) => "size" in answer));
});

test("a call that does not return costs its time and its file; the others are asked", async () => {
  writeFileSync(join(folder, "good"), "1");
  const paths = ["good", "hang1", "good", "hang2", "good"].map((name) => ({ path: join(folder, name) }));
  const answers = await askFiles(paths, { python: hangingPython(), timeoutMs: 1500 });
  assert.deepEqual(codes(answers), [1, "ETIMEDOUT", 1, "ETIMEDOUT", 1]);
  assert.match(message(answers, 1), /no answer for 1.5 s/);
});

test("after three no more are asked, and those that are spared not either", async () => {
  const python = hangingPython();
  const paths = ["hang1", "hang2", "hang3", "good", "hang4"].map((name) => ({ path: join(folder, name) }));
  const answers = await askFiles(paths, { python, timeoutMs: 300 });
  assert.deepEqual(codes(answers).slice(0, 3), ["ETIMEDOUT", "ETIMEDOUT", "ETIMEDOUT"]);
  assert.match(message(answers, 3), /not asked: 3 files before it/);
  const spared = await askFiles(paths, {
    python,
    timeoutMs: 1500,
    spare: ({ path }) => (path.includes("hang") ? "same OST" : undefined),
  });
  assert.deepEqual(codes(spared), ["ETIMEDOUT", "ETIMEDOUT", "ETIMEDOUT", 1, "ETIMEDOUT"]);
  assert.match(message(spared, 4), /not asked: same OST/);
});

test("no Python, or one that does not run: undefined", async () => {
  assert.equal(await askFiles([{ path: folder }], { python: join(folder, "no-python") }), undefined);
  assert.equal(await askFiles([{ path: folder }], { python: "false" }), undefined);
});
