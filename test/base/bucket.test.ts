// The token bucket against a clock that stands still until it is told to move.
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { Bucket } from "../../src/base/bucket.ts";

test("a burst at once, then so many a second, and what is owed first", () => {
  let now = 0;
  const bucket = new Bucket(10, 3, () => now);
  for (let k = 0; k < 3; k++) {
    assert.equal(bucket.waitMs(), 0);
    bucket.take();
  }
  assert.equal(bucket.waitMs(), 100);
  now = 99;
  assert.ok(bucket.waitMs() > 0);
  now = 100;
  assert.equal(bucket.waitMs(), 0);
  bucket.take(21); // owes 20
  assert.equal(bucket.waitMs(), 2100);
  now = 60_000;
  assert.equal(bucket.there(), 3);
  bucket.change(1, 1);
  assert.equal(bucket.there(), 1);
});

test("whoever waits as long as it says never begins more than burst + rate × time, and loses none of it", () => {
  const steps = fc.array(fc.record({ pause: fc.nat(500), calls: fc.integer({ min: 1, max: 40 }) }), { maxLength: 40 });
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 2000 }), fc.integer({ min: 1, max: 300 }), steps, (rate, burst, plan) => {
      let now = 0;
      const bucket = new Bucket(rate, burst, () => now);
      const begun: number[] = [];
      for (const { pause, calls } of plan) {
        now += pause;
        for (let k = 0; k < calls; k++) {
          now += bucket.waitMs();
          bucket.take();
          begun.push(now);
        }
      }
      for (const [i, from] of begun.entries()) {
        const last = begun.at(-1)!;
        assert.ok(begun.length - i <= burst + 1 + ((last - from) * rate) / 1000 + 1e-3);
      }
      const total = plan.reduce((sum, { calls }) => sum + calls, 0);
      const pauses = plan.reduce((sum, { pause }) => sum + pause, 0);
      assert.ok(now <= pauses + (total * 1000) / rate + 1e-3, "it waited for more than the rate asks");
    }),
  );
});
