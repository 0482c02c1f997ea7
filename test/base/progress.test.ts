import assert from "node:assert/strict";
import { test } from "node:test";
import { Progress } from "../../src/base/progress.ts";

function run(isTTY: boolean, quiet = false): string[] {
  const written: string[] = [];
  let now = 0;
  const stream = { isTTY, write: (text: string) => written.push(text) };
  const progress = new Progress("indexing", { stream, quiet, now: () => now });
  for (; now <= 25_000; now += 100) progress.update(now * 2 ** 20, 50_000 * 2 ** 20, "a.tfrecord");
  progress.done();
  return written;
}

test("a log gets a line every 10 s, a terminal one line that is rewritten, --json nothing", () => {
  assert.deepEqual(run(false), [
    "indexing: 20 % of 48.8GiB, 1000MiB/s, 40s left (a.tfrecord)\n",
    "indexing: 40 % of 48.8GiB, 1000MiB/s, 30s left (a.tfrecord)\n",
  ]);
  const terminal = run(true);
  assert.equal(terminal.length, 121 + 1);
  assert.ok(terminal.every((text) => text.startsWith("\r")));
  assert.equal(terminal.at(-1), "\r\u001b[K");
  assert.deepEqual(run(true, true), []);
});
