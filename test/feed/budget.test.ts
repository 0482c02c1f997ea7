import assert from "node:assert/strict";
import { after, before, mock, test } from "node:test";
import { Budget } from "../../src/feed/budget.ts";
import { remove, Rig, writeShards } from "./rig.ts";

const MIB = 1024 * 1024;
const padded = { seed: 1n, shuffle: "none", last: "pad", globalBatch: 8 } as const;
let seven = "";
let large = "";
before(() => {
  seven = writeShards([4, 3], 100);
  large = writeShards([10_000, 10_000], 2000);
});
after(() => {
  remove(seven);
  remove(large);
});

test("memory that a hung read keeps counts until the read returns", async () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  const budget = new Budget(100);
  budget.reserve(60, "training");
  let returns = (): void => undefined;
  budget.release(60, "training", new Promise<void>((resolve) => (returns = resolve)));
  assert.equal(budget.free("evaluation"), 100, "the next run may take its place at once");
  mock.timers.tick(10_000);
  assert.deepEqual([budget.free("evaluation"), budget.stuck, budget.reserved], [40, 60, 0]);
  returns();
  await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual([budget.free("evaluation"), budget.stuck], [100, 0]);
  mock.timers.reset();
});

test("memory whose reads came back in time is never counted again", async () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  const budget = new Budget(100);
  budget.reserve(60, "training");
  budget.release(60, "training", Promise.resolve());
  await new Promise((resolve) => setImmediate(resolve));
  mock.timers.tick(10_000);
  assert.deepEqual([budget.free("evaluation"), budget.stuck], [100, 0]);
  mock.timers.reset();
});

test("a part of the memory is for evaluation alone, and counts once", () => {
  const budget = new Budget(800);
  assert.equal(budget.kept, 100);
  assert.equal(new Budget(64 * 1024 * MIB).kept, 256 * MIB);
  assert.deepEqual([budget.free("training"), budget.free("evaluation")], [700, 800]);
  budget.reserve(700, "training");
  assert.deepEqual([budget.free("training"), budget.free("evaluation")], [0, 100]);
  budget.reserve(60, "evaluation");
  assert.deepEqual([budget.free("training"), budget.free("evaluation")], [0, 40]);
  budget.release(200, "training", Promise.resolve());
  assert.deepEqual([budget.free("training"), budget.free("evaluation"), budget.reserved], [200, 240, 560]);
  // Evaluations beyond what is kept take what training leaves.
  budget.reserve(140, "evaluation");
  assert.deepEqual([budget.free("training"), budget.free("evaluation")], [100, 100]);
});

test("training that has reserved all it can leaves room: 7 samples on 8 ranks, exactly once", async () => {
  const budget = new Budget(512 * MIB);
  budget.reserve(budget.free("training"), "training");
  const training = await Rig.open(seven, { seed: 1n, globalBatch: 8 }, { batch: 1, world: 8, budget });
  const evaluation = await Rig.open(seven, padded, { batch: 1, world: 8, budget });
  try {
    assert.throws(() => training.client({ rank: 0 }), /free are 0B of 512MiB, besides 64MiB for evaluation/);
    const localRanks = [0, 1, 2, 3, 4, 5, 6, 7];
    const clients = localRanks.map((rank) => evaluation.client({ rank, localRanks }));
    assert.ok(evaluation.group.reserved < 2 * MIB, `7 samples reserve ${evaluation.group.reserved}`);
    for (let epoch = 0; epoch < 2; epoch++) {
      const batches = await Promise.all(clients.map((client) => client.batch(epoch)));
      assert.deepEqual(
        batches.flatMap(({ ids, valid }) => ids.filter((_, i) => valid[i])),
        [0, 1, 2, 3, 4, 5, 6],
      );
    }
  } finally {
    await training.close();
    await evaluation.close();
  }
  assert.equal(budget.free("evaluation"), 64 * MIB, "all of it is given back");
});

test("an evaluation of a large set needs little, also where training would need much", async () => {
  const evaluation = await Rig.open(
    large,
    { ...padded, globalBatch: 256 },
    { batch: 32, world: 8, largestBlock: 4 * MIB },
  );
  const training = await Rig.open(
    large,
    { seed: 1n, shuffle: "none", globalBatch: 256 },
    { batch: 32, world: 8, largestBlock: 4 * MIB },
  );
  try {
    const localRanks = [0, 1, 2, 3, 4, 5, 6, 7];
    evaluation.client({ rank: 0, localRanks });
    training.client({ rank: 0, localRanks });
    assert.ok(evaluation.group.reserved < 40 * MIB, `evaluation reserves ${evaluation.group.reserved}`);
    assert.ok(evaluation.group.reserved < training.group.reserved);
  } finally {
    await evaluation.close();
    await training.close();
  }
});
