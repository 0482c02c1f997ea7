// Tools that do not end, are not there, or print without end.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import { runTool } from "../../src/base/run-tool.ts";

test("status, both streams, and a tool that is not there", async () => {
  const ran = await runTool("sh", ["-c", "echo out; echo err >&2; exit 25"], { timeoutMs: 60_000 });
  assert.deepEqual(ran, { status: 25, stdout: "out\n", stderr: "err\n", missing: false, timedOut: false });
  assert.equal((await runTool("no-such-tool-here", [], { timeoutMs: 60_000 })).missing, true);
});

test("a tool that does not end is given up, and what it printed is kept", async () => {
  const ran = await runTool("sh", ["-c", "echo first; exec sleep 600"], { timeoutMs: 500 });
  assert.deepEqual(ran, { status: undefined, stdout: "first\n", stderr: "", missing: false, timedOut: true });
});

test("a tool that leaves a child with its pipes behind keeps nobody from ending", () => {
  const module = new URL("../../src/base/run-tool.js", import.meta.url).href;
  const code = `import { runTool } from ${JSON.stringify(module)};
    await runTool("sh", ["-c", "trap '' TERM; sleep 5 & wait"], { timeoutMs: 200 });`;
  const ran = spawnSync(process.execPath, ["--input-type=module", "-e", code], { timeout: 20_000, encoding: "utf8" });
  assert.equal(ran.status, 0, ran.stderr);
});
