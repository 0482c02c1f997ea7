// Nothing of one machine is checked in: its folders, its registries, a user's home, a key.
import assert from "node:assert/strict";
import { test } from "node:test";
import { read, repositoryFiles } from "./tree.ts";

/** Spelled in pieces, so that this file does not find itself. */
const FORBIDDEN = [
  ["/wo" + "rk/", "a folder of one machine"],
  ["bash_" + "jobs", "a folder of one machine"],
  ["/ro" + "ot/", "a user's home"],
  ["athanor-" + "try", "a scratch folder"],
  ["regis" + "try.npmjs", "a registry (lock files carry no addresses)"],
  ["files.python" + "hosted", "a registry"],
  ["PRIVATE " + "KEY-----", "a key"],
] as const;

test("no machine's paths, registries or keys are checked in", () => {
  const wrong: string[] = [];
  for (const path of repositoryFiles()) {
    if (/\.(png|npy|bin|idx|gz|tfrecord|wasm|zip)$/.test(path)) continue;
    const text = read(path);
    for (const [needle, why] of FORBIDDEN) if (text.includes(needle)) wrong.push(`${path}: ${needle} is ${why}`);
  }
  assert.deepEqual(wrong, []);
});

test("the lock file resolves through whatever registry is set up", () => {
  assert.ok(!read("package-lock.json").includes('"resolved"'));
});
