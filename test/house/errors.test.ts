// Every error code is documented, and nothing else is: docs/reference/errors.md against both languages.
import assert from "node:assert/strict";
import { test } from "node:test";
import { read, repositoryFiles } from "./tree.ts";

const codes = (text: string): string[] =>
  [...text.matchAll(/["'`](ATH_[A-Z0-9]+(?:_[A-Z0-9]+)*)["'`]/g)].map(([, code]) => code as string);

test("each error code has a section in errors.md, each section a code, in alphabetical order", () => {
  const sources = repositoryFiles().filter((path) => /^(src\/.*\.ts|python\/src\/.*\.py|examples\/.*\.py)$/.test(path));
  const used = new Set(sources.flatMap((path) => codes(read(path))));
  assert.ok(used.has("ATH_INTERNAL"));
  const sections = [...read("docs/reference/errors.md").matchAll(/^## (ATH_[A-Z0-9_]+)\s*$/gm)].map(
    ([, code]) => code as string,
  );
  assert.deepEqual([...used].filter((code) => !sections.includes(code)).sort(), [], "codes without a section");
  assert.deepEqual(
    sections.filter((code) => !used.has(code)),
    [],
    "sections without a code",
  );
  assert.deepEqual(sections, [...new Set(sections)].sort(), "sections in alphabetical order, each once");
});

test("one cause, one code: no code is defined twice", () => {
  const defined = repositoryFiles()
    .filter((path) => /^src\/.*\.ts$/.test(path))
    .flatMap((path) =>
      [...read(path).matchAll(/defineError\(\s*"(ATH_[A-Z0-9_]+)"/g)].map(([, code]) => `${code} ${path}`),
    )
    .filter((line) => !line.startsWith("ATH_SHARD_TRUNCATED src/base/errors.ts")); // the example in its header
  const names = defined.map((line) => line.split(" ")[0]);
  assert.deepEqual(
    defined.filter((_, at) => names.indexOf(names[at]) !== at),
    [],
  );
});
