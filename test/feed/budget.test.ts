import assert from "node:assert/strict";
import { mock, test } from "node:test";
import { Budget } from "../../src/feed/budget.ts";

test("memory that a hung read keeps counts until the read returns", async () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  const budget = new Budget(100);
  budget.reserved = 60;
  let returns = (): void => undefined;
  budget.release(60, new Promise<void>((resolve) => (returns = resolve)));
  assert.equal(budget.free, 100, "the next run may take its place at once");
  mock.timers.tick(10_000);
  assert.deepEqual([budget.free, budget.stuck, budget.reserved], [40, 60, 0]);
  returns();
  await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual([budget.free, budget.stuck], [100, 0]);
  mock.timers.reset();
});

test("memory whose reads came back in time is never counted again", async () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  const budget = new Budget(100);
  budget.reserved = 60;
  budget.release(60, Promise.resolve());
  await new Promise((resolve) => setImmediate(resolve));
  mock.timers.tick(10_000);
  assert.deepEqual([budget.free, budget.stuck], [100, 0]);
  mock.timers.reset();
});
