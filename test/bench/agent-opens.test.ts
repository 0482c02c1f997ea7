import assert from "node:assert/strict";
import { test } from "node:test";
import { countOpens } from "../../src/bench/agent-opens.ts";

test("distinct files count once; failed opens, kernel files and folders apart; interrupted calls are joined", () => {
  const found = countOpens(
    [
      '71 openat(AT_FDCWD, "/a/agent.js", O_RDONLY|O_CLOEXEC) = 17',
      '71 openat(AT_FDCWD, "/a/agent.js", O_RDONLY|O_CLOEXEC) = 17',
      '71 openat(AT_FDCWD, "/a/none.so", O_RDONLY|O_CLOEXEC) = -1 ENOENT (No such file or directory)',
      '72 openat(AT_FDCWD, "/proc/meminfo", O_RDONLY) = 18',
      '72 openat(AT_FDCWD, "/a/kernels.wasm", O_RDONLY|O_CLOEXEC <unfinished ...>',
      '71 open("/a/folder", O_RDONLY|O_DIRECTORY) = 19',
      "72 <... openat resumed>) = 20",
      "71 +++ exited with 0 +++",
    ].join("\n"),
  );
  assert.deepEqual(found, { files: ["/a/agent.js", "/a/kernels.wasm"], opens: 5, failed: 1 });
});
