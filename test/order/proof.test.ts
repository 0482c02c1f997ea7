import assert from "node:assert/strict";
import { test } from "node:test";
import { Order } from "../../src/order/order.ts";
import { expectedSum, ProofSum, rowHash, shardKey } from "../../src/order/proof.ts";
import { extentsOf, resolvedOf, vectors, viewOf } from "./vectors.ts";

test("row hashes and shard keys are the committed vectors", () => {
  for (const { source, path, key } of vectors().shardKey) assert.equal(shardKey(source, path), BigInt(key));
  for (const { row, hash } of vectors().rowHash) {
    assert.equal(rowHash(Number(row[0]), BigInt(row[1]), Number(row[2]), Number(row[3])), BigInt(hash));
  }
});

test("sums do not depend on who adds them, and wrap at 2^64", () => {
  const counts = [13, 20, 17];
  const order = Order.single(
    viewOf(counts),
    extentsOf(counts),
    resolvedOf({ seed: "5", shuffle: "window", lanes: 3, window: 6, last: "carry", global_batch: 24, from: 0 }),
  );
  const identify = (_source: number, sample: number) => ({
    shardKey: BigInt(sample >> 3),
    record: sample & 7,
    token: 0,
  });
  const { sum: expected } = expectedSum(order, 24, 48, identify);
  for (const world of [1, 2, 3, 4, 24]) {
    let sum = 0n;
    for (let rank = 0; rank < world; rank++) {
      const own = new ProofSum();
      for (const position of order.deal(24, 24, world, rank).positions) {
        const { shardKey: key, record, token } = identify(0, order.sampleAt(position));
        own.add(position, key, record, token);
      }
      assert.equal(own.rows, 24 / world);
      assert.ok(own.value < 1n << 64n);
      sum += own.value;
    }
    assert.equal(BigInt.asUintN(64, sum), expected);
  }
});
