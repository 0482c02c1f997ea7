// The public names of both packages. A change here is a change for users: it belongs in CHANGELOG.md.
import assert from "node:assert/strict";
import { test } from "node:test";
import * as api from "../../src/index.ts";
import { read } from "./tree.ts";

test("names of the npm package", () => {
  assert.deepEqual(Object.keys(api).sort(), [
    "AthanorError",
    "Order",
    "buildIndex",
    "createPosixStorage",
    "deal",
    "extents",
    "openIndex",
    "orderView",
    "parseState",
    "resolveOrder",
    "stateOf",
    "viewFingerprint",
  ]);
});

test("the package opens its one door", () => {
  const manifest = JSON.parse(read("package.json")) as { exports: unknown; bin: unknown };
  assert.deepEqual(manifest.exports, {
    ".": { types: "./dist/src/index.d.ts", default: "./dist/src/index.js" },
    "./package.json": "./package.json",
  });
  assert.deepEqual(manifest.bin, { athanor: "bin/athanor.mjs" });
});

function all(module: string): string[] {
  const list = /^__all__ = \[([^\]]*)\]/m.exec(read(`python/src/athanor/${module}.py`))?.[1];
  assert.ok(list !== undefined, `${module}.py has an __all__`);
  return [...list.matchAll(/"([^"]+)"/g)].map(([, name]) => name as string);
}

test("names of the Python package", () => {
  assert.deepEqual(all("__init__"), ["AthanorError", "__version__"]);
  assert.deepEqual(all("torch"), ["AthanorDataset", "DeepSeekDataset", "Loader", "for_trainer", "state_of"]);
});
