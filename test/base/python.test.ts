// The current folder may be a folder of data that others write to: no Python of ours runs what lies in it.
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { pythonCode, pythonEnv, pythonModule } from "../../src/base/python.ts";
import { findPython } from "../../src/bench/python.ts";
import { gather } from "../../src/doctor/gather.ts";

const PYTHON = process.env["ATHANOR_PYTHON"] ?? "python3";
const MODULES = ["json", "runpy", "importlib", "numpy", "sitecustomize", "athanor"];

/** Enters a folder of modules that leave a file when they are run; returns its path, and that file's. */
function trap(t: TestContext): { folder: string; sprung: string } {
  const folder = mkdtempSync(join(tmpdir(), "athanor-trap-"));
  const before = process.cwd();
  const variable = process.env["PYTHONPATH"];
  t.after(() => {
    process.chdir(before);
    if (variable === undefined) delete process.env["PYTHONPATH"];
    else process.env["PYTHONPATH"] = variable;
    rmSync(folder, { recursive: true });
  });
  const sprung = join(folder, "sprung");
  for (const name of MODULES) writeFileSync(join(folder, `${name}.py`), `open(${JSON.stringify(sprung)}, "w")\n`);
  process.chdir(folder);
  return { folder, sprung };
}

test("doctor and bench ran the modules of the current folder", async (t) => {
  const { sprung } = trap(t);
  for (const path of [process.env["PYTHONPATH"], "", ":/none", "/none:", "."]) {
    if (path === undefined) delete process.env["PYTHONPATH"];
    else process.env["PYTHONPATH"] = path;
    const { python } = await gather({ path: "/proc", loaderTimeout: 540 });
    assert.ok(python !== undefined && "version" in python, `PYTHONPATH=${path}`);
    const { path: found, env } = await findPython("numpy", undefined);
    // The module itself runs: it finds fault with what it is asked.
    const { stderr } = spawnSync(found, [...pythonModule("athanor.bench.limits"), "{}"], { env, encoding: "utf8" });
    assert.match(stderr, /athanor\/bench\/limits\.py.*KeyError/s);
    assert.equal(existsSync(sprung), false, `PYTHONPATH=${path}`);
  }
});

test("code and modules get their arguments; named folders of PYTHONPATH stay", (t) => {
  const { folder, sprung } = trap(t);
  mkdirSync("lib");
  writeFileSync(
    "lib/own.py",
    "import sys\nif __name__ == '__main__': print(sys.argv[1:], sys.modules['__main__'].__spec__.name)\n",
  );
  const env = pythonEnv({ ...process.env, PYTHONPATH: `:lib:/none:./` });
  assert.equal(env["PYTHONPATH"], `${folder}/lib:/none`);
  assert.equal("PYTHONPATH" in pythonEnv({ PYTHONPATH: "." }), false);
  // A folder that is named in full is meant.
  assert.equal(pythonEnv({ PYTHONPATH: folder })["PYTHONPATH"], folder);
  const run = (args: string[]): string => execFileSync(PYTHON, args, { env, cwd: folder, encoding: "utf8" }).trim();
  assert.equal(run([...pythonModule("own"), "a b", "--c"]), "['a b', '--c'] own");
  assert.equal(run([...pythonCode("import sys, json, own; print(json.dumps(sys.argv[1:]))"), "x"]), '["x"]');
  assert.equal(existsSync(sprung), false);
});
