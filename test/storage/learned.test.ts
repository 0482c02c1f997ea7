// What is asked of files in the background: once a file, many at a time.
import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { until } from "../base/until.ts";
import { Learned } from "../../src/storage/learned.ts";

const none = (): Promise<string | undefined> => Promise.resolve(undefined);

test("files are asked for together, at most so many at once, each once, and told of by how soon they are needed", async () => {
  const calls: string[][] = [];
  const found: string[] = [];
  const learned = new Learned<string>({
    batch: () => 2,
    ask: (batch) => {
      calls.push(batch.map(({ path, system }) => `${system}:${path}`));
      return Promise.resolve(batch.map(({ path }) => (path === "none" ? undefined : path.toUpperCase())));
    },
    onFound: (path, what, rank) => found.push(`${path}=${what}@${rank}`),
  });
  learned.expect(["a", "none"], "x");
  learned.expect(["b", "a"], "y");
  await until(() => found.length === 2);
  assert.deepEqual(calls, [["x:a", "x:none"], ["y:b"]]);
  assert.deepEqual(found, ["a=A@0", "b=B@0"]);
  learned.expect(["none", "b"], "x");
  await sleep(100);
  assert.equal(calls.length, 2);
  assert.equal(found.at(-1), "b=B@1");
  learned.forget("a");
  learned.expect(["a"], "x");
  await until(() => learned.get("a") === "A");
  assert.deepEqual(calls.at(-1), ["x:a"]);
  // Also of those that are asked for later.
  learned.expect(["d", "e", "f"], "x");
  await until(() => found.at(-1)!.startsWith("f="));
  assert.deepEqual(found.slice(-3), ["d=D@0", "e=E@1", "f=F@2"]);
  learned.close();
  learned.expect(["c"], "x");
  await sleep(100);
  assert.equal(calls.length, 5);
});

test("who cannot wait asks at once, or joins who is asking; a file that nobody knows is asked of nobody", async () => {
  let calls = 0;
  let answer = (): void => undefined;
  const learned = new Learned<string>({
    batch: () => 8,
    ask: async (batch) => {
      calls++;
      await new Promise<void>((resolve) => (answer = resolve));
      return batch.map(({ path }) => path);
    },
  });
  learned.expect(["a"], "x");
  const both = Promise.all([learned.now("a", none), learned.now("a", none)]);
  await sleep(100);
  answer();
  assert.deepEqual([await both, calls], [["a", "a"], 1]);
  assert.equal(await learned.now("b", none), undefined);
  const known = learned.now("c", () => Promise.resolve("x"));
  await sleep(10);
  answer();
  assert.deepEqual([await known, calls], ["c", 2]);
});

test("nothing to ask with: nothing is asked again; no answer: left alone for a while", async () => {
  for (const answer of [undefined, ["silent"] as const]) {
    let calls = 0;
    const learned = new Learned<string>({
      batch: () => 1,
      ask: () => {
        calls++;
        return Promise.resolve(answer);
      },
    });
    learned.expect(["a", "b"], "x");
    // oxlint-disable-next-line no-await-in-loop -- one at a time
    await sleep(100);
    learned.expect(["a"], "x");
    // oxlint-disable-next-line no-await-in-loop -- one at a time
    await sleep(100);
    assert.equal(calls, 1);
    learned.close();
  }
});
