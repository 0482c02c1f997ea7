// The Python of the training: what was tried, what happened, and where the client comes from.
import assert from "node:assert/strict";
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import type { TestContext } from "node:test";
import { askPython } from "../../src/doctor/python.ts";
import { checkVersions } from "../../src/doctor/versions.ts";
import { factsOf } from "./scene.ts";

function folder(t: TestContext): string {
  const made = mkdtempSync(join(tmpdir(), "athanor-doctor-"));
  t.after(() => rmSync(made, { recursive: true }));
  return made;
}

/** Findings as text, with the variables set. */
async function told(env: Record<string, string>, timeoutMs = 60_000): Promise<string> {
  const before = { ...process.env };
  Object.assign(process.env, env);
  try {
    const { seen, findings } = checkVersions({ ...factsOf({}), env, python: await askPython(timeoutMs) });
    return [...seen, ...findings.map(({ id, what, evidence, fix }) => `${id}: ${what} | ${evidence} | ${fix}`)].join(
      "\n",
    );
  } finally {
    for (const name of Object.keys(env)) delete process.env[name];
    Object.assign(process.env, before);
  }
}

test("an ATHANOR_PYTHON that is no Python: its value, and what happened, not only that none runs", async (t) => {
  const base = folder(t);
  const script = (name: string, text: string): string => {
    const path = join(base, name);
    writeFileSync(path, `#!/bin/sh\n${text}\n`);
    chmodSync(path, 0o755);
    return path;
  };
  const cases: [string, string][] = [
    ["/nope", "not found, or it may not be run"],
    [base, "not found, or it may not be run"],
    [script("quiet", "exit 0"), "exit code 0, no output"],
    [script("fails", "echo a; echo broken environment >&2; exit 3"), "exit code 3, it said: broken environment"],
    [script("talks", "echo 1"), "exit code 0, it said: 1"],
    [script("null", "echo null"), "exit code 0, it said: null"],
    [script("dies", "kill -9 $$"), "ended by a signal, or it printed without end"],
  ];
  for (const [command, happened] of cases) {
    const text = await told({ ATHANOR_PYTHON: command });
    assert.ok(text.includes(`python-missing: no Python runs here | ATHANOR_PYTHON=${command}: ${happened} | `), text);
  }
  const hangs = script("hangs", "exec sleep 20");
  const silent = await told({ ATHANOR_PYTHON: hangs }, 200);
  assert.match(silent, /python-silent: .* \| ATHANOR_PYTHON=.*\/hangs: no answer within 200ms \| .*name the Python/);
});

test("an empty ATHANOR_PYTHON is none: it was an internal error", async () => {
  assert.match(await told({ ATHANOR_PYTHON: "" }), /^Python 3\.\d+\.\d+ \(python3\): /m);
  assert.match(
    await told({ ATHANOR_PYTHON: "", PATH: "/nope" }),
    /\| python3 on PATH, ATHANOR_PYTHON is not set: not found/,
  );
});

test("a client on PYTHONPATH has a version: it was not installed, said doctor, and could be imported", async (t) => {
  const base = folder(t);
  mkdirSync(join(base, "athanor"));
  writeFileSync(join(base, "athanor/__init__.py"), 'raise SystemExit("imported")\n__version__ = "0.0.7"\n');
  const text = await told({ PYTHONPATH: base });
  assert.match(text, /, athanor 0\.0\.7$/m);
  assert.ok(
    text.includes(`the Python client is 0.0.7, the command 0.1.0 | __version__ in ${base}/athanor/__init__.py`),
  );
  const own = new URL("../../../python/src", import.meta.url).pathname;
  assert.doesNotMatch(await told({ PYTHONPATH: own }), /athanor not installed/);
});
