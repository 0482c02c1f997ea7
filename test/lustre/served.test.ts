import assert from "node:assert/strict";
import { test } from "node:test";
import { withServed } from "../../src/lustre/served.ts";
import { createPosixStorage } from "../../src/storage/posix.ts";

test("counters of the client where there are some, else the clocks of our own reads; which of them is said", async () => {
  const storage = createPosixStorage();
  const own = { reads: 2, bytes: 4096, seconds: 0.01, slowestMs: 9, shared: 0 };
  const stats = {
    ...storage.stats(),
    targets: ["device 8", "fs-OST0000", "fs-OST0002"].map((target) => ({ target, ...own })),
  };
  await storage.close();
  const plain = withServed(stats, undefined);
  assert.equal(plain.from, "own reads");
  assert.deepEqual(plain.targets[1], { ...stats.targets[1], served: { requests: 2, bytes: 4096, meanMs: 5 } });
  const told = withServed(
    stats,
    new Map([
      ["fs-OST0000", { requests: 3, bytes: 9000, ms: 6 }],
      ["fs-OST0001", { requests: 1, bytes: 50, ms: 1.5 }],
    ]),
  );
  assert.equal(told.from, "client counters");
  assert.deepEqual(
    told.targets.map(({ target, reads, served }) => [target, reads, served]),
    [
      ["device 8", 2, undefined],
      ["fs-OST0000", 2, { requests: 3, bytes: 9000, meanMs: 2 }],
      ["fs-OST0001", 0, { requests: 1, bytes: 50, meanMs: 1.5 }],
      // All of it came from the memory of the node.
      ["fs-OST0002", 2, { requests: 0, bytes: 0, meanMs: 0 }],
    ],
  );
});
