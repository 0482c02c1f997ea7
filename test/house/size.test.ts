// Files stay small: source over 20 KB needs a decision page that names it; nothing over 1 MB is checked in.
import assert from "node:assert/strict";
import { statSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { read, repositoryFiles, root } from "./tree.ts";

const files = repositoryFiles();
const bytes = (path: string): number => statSync(join(root, path)).size;

test("a source file over 20 KB is named in docs/decisions", () => {
  const decisions = files
    .filter((path) => path.startsWith("docs/decisions/"))
    .map(read)
    .join("\n");
  const large = files.filter((path) => /^(src|python\/src)\/.*\.(ts|py)$/.test(path) && bytes(path) > 20_000);
  assert.deepEqual(
    large.filter((path) => !decisions.includes(path)),
    [],
  );
});

test("no file over 1 MB is in the repository", () => {
  assert.deepEqual(
    files.filter((path) => bytes(path) > 1_000_000),
    [],
  );
});
