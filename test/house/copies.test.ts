// Things that stand in two places are equal: the segment layout, the version, the licence's name.
import assert from "node:assert/strict";
import { test } from "node:test";
import { read, repositoryFiles } from "./tree.ts";

const manifest = JSON.parse(read("package.json")) as { version: string; license: string };

test("both languages read the same segment layout", () => {
  assert.equal(read("python/src/athanor/_layout.json"), read("src/agent/layout.json"));
});

test("package.json and the Python package have one version", () => {
  const project = read("python/pyproject.toml");
  const literal = /^version\s*=\s*"([^"]+)"/m.exec(project)?.[1];
  const module = repositoryFiles()
    .filter((path) => /^python\/src\/athanor\/[^/]+\.py$/.test(path))
    .flatMap((path) =>
      [...read(path).matchAll(/^(?:__version__|VERSION)(?:\s*:[^=]+)?\s*=\s*"([^"]+)"/gm)].map(
        ([, version]) => version,
      ),
    );
  assert.deepEqual([...new Set([literal, ...module])], [manifest.version]);
  assert.ok(module.length > 0, "python/src/athanor names its version");
});

test("the TypeScript sources name no other version", () => {
  const named = repositoryFiles()
    .filter((path) => /^src\/.*\.ts$/.test(path))
    .flatMap((path) =>
      [...read(path).matchAll(/\b(?:VERSION|version)\s*=\s*"(\d+\.\d+\.\d+)"/g)].map(([, version]) => version),
    );
  assert.deepEqual(
    named.filter((version) => version !== manifest.version),
    [],
  );
});

test("Apache-2.0 everywhere", () => {
  assert.equal(manifest.license, "Apache-2.0");
  assert.match(read("LICENSE"), /Apache License\s+Version 2\.0/);
  assert.match(read("python/pyproject.toml"), /Apache-2\.0/);
});
