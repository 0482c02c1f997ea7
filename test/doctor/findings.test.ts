// Each finding is explained in docs/reference/doctor.md, with its severity, and nothing else is.
import assert from "node:assert/strict";
import { test } from "node:test";
import { FINDINGS } from "../../src/doctor/findings.ts";
import { read, repositoryFiles } from "../house/tree.ts";

test("docs/reference/doctor.md lists every finding with its severity", () => {
  const rows = [...read("docs/reference/doctor.md").matchAll(/^\| `([a-z0-9-]+)` \| (problem|warning|hint) \|/gm)];
  assert.deepEqual(
    rows.map(([, id, severity]) => `${id} ${severity}`),
    Object.entries(FINDINGS).map(([id, [severity]]) => `${id} ${severity}`),
  );
});

test("no finding is left that no check gives", () => {
  const sources = repositoryFiles().filter(
    (path) => /^src\/doctor\/.*\.ts$/.test(path) && !path.endsWith("/findings.ts"),
  );
  const text = sources.map(read).join("\n");
  assert.deepEqual(
    Object.keys(FINDINGS).filter((id) => !text.includes(`"${id}"`)),
    [],
  );
});
