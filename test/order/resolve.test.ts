import assert from "node:assert/strict";
import { test } from "node:test";
import { resolveOrder } from "../../src/order/resolve.ts";
import type { OrderOptions, OrderView } from "../../src/order/types.ts";
import { vectors } from "./vectors.ts";

const view: OrderView = {
  fingerprint: "0".repeat(32),
  samples: 10_000_000,
  bytes: 1e10,
  blocks: 2400,
  largestBlock: 4200,
  rowBytes: 4096,
};

test("resolved options are those of the reference", () => {
  for (const { view: v, options: o, resolved } of vectors().resolve) {
    const options: OrderOptions = { seed: 1n, globalBatch: 8 };
    if (o.shuffle !== undefined) options.shuffle = o.shuffle;
    if (o.shuffle_memory !== undefined) options.shuffleMemory = o.shuffle_memory;
    if (o.lanes !== undefined) options.lanes = o.lanes;
    if (o.window !== undefined) options.window = o.window;
    if (o.unit !== undefined) options.unit = o.unit;
    const found = resolveOrder(
      {
        fingerprint: "",
        samples: v.samples,
        bytes: v.bytes,
        blocks: v.blocks,
        largestBlock: v.largest_block,
        rowBytes: v.row_bytes,
      },
      options,
    );
    assert.deepEqual(
      {
        shuffle: found.shuffle,
        held: found.held,
        lanes: found.lanes,
        extent: found.extentBlocks,
        window: found.window,
      },
      resolved,
    );
  }
});

test("options that cannot be are refused by name", () => {
  const bad: [Partial<OrderOptions>, RegExp][] = [
    [{ globalBatch: 0 }, /globalBatch must be a whole number ≥ 1, found 0/],
    [{ globalBatch: 1.5 }, /globalBatch/],
    [{ lanes: 0 }, /lanes/],
    [{ window: -1 }, /window/],
    [{ shuffleMemory: -1 }, /shuffleMemory/],
    [{ from: Number.NaN }, /from/],
    [{ seed: -1n }, /seed/],
    [{ seed: 1n << 64n }, /seed/],
    [{ shuffle: "none", lanes: 2 }, /belong to shuffle="window"/],
  ];
  for (const [options, message] of bad) {
    assert.throws(() => resolveOrder(view, { seed: 1n, globalBatch: 8, ...options }), {
      code: "ATH_ORDER_OPTION",
      message,
    });
  }
  assert.throws(() => resolveOrder({ ...view, samples: 0 }, { seed: 1n, globalBatch: 8 }), {
    code: "ATH_ORDER_OPTION",
  });
});

test("a stream refuses global unless it is held", () => {
  const streams = { ...view, streams: true };
  assert.throws(() => resolveOrder(streams, { seed: 1n, globalBatch: 8, shuffle: "global" }), {
    code: "ATH_ORDER_STREAM",
  });
  assert.equal(resolveOrder(streams, { seed: 1n, globalBatch: 8 }).shuffle, "window");
  assert.equal(resolveOrder({ ...streams, samples: 1000 }, { seed: 1n, globalBatch: 8, shuffle: "global" }).held, true);
});
