// A promise names the test that shows it: docs/reference/guarantees.md against the tests.
import assert from "node:assert/strict";
import { test } from "node:test";
import { read, repositoryFiles } from "./tree.ts";

test("every test that guarantees.md names exists", () => {
  const page = read("docs/reference/guarantees.md");
  const named = [...page.matchAll(/`((?:python\/tests|test)\/[^`:]+\.(?:py|ts))(?:::([^`]+))?`/g)];
  assert.ok(named.length > 30);
  const files = new Set(repositoryFiles());
  const missing = named.filter(([, path, name]) => {
    if (!files.has(path as string)) return true;
    if (name === undefined) return false;
    const text = read(path as string);
    return !text.includes((path as string).endsWith(".py") ? `def ${name}(` : `("${name}"`);
  });
  assert.deepEqual(
    missing.map(([all]) => all),
    [],
  );
});

test("every promise has a test", () => {
  const promised = read("docs/reference/guarantees.md").split("## On conditions")[0] as string;
  const rows = promised.split("\n").filter((line) => line.startsWith("| ") && !line.startsWith("| promise"));
  assert.ok(rows.length > 20);
  for (const row of rows) assert.match(row, /\| `(python\/tests|test)\/[^|]+ \|$/);
});
