import assert from "node:assert/strict";
import { test } from "node:test";
import { planSingle } from "../../src/order/job.ts";
import { stateOf } from "../../src/order/state.ts";
import { compareStates } from "../../src/order/state-diff.ts";
import type { OrderState, OrderView } from "../../src/order/types.ts";

const view: OrderView = {
  fingerprint: "0123456789abcdef0123456789abcdef",
  samples: 10_000_000,
  bytes: 1e10,
  blocks: 2400,
  largestBlock: 4200,
  rowBytes: 4096,
};
const options = { seed: 5n, globalBatch: 256 };
const a = stateOf(planSingle("data", view, options), 4096);
const source = a.sources[0]!;
const segment = a.segments[0]!;

test("the verdict on B is that of the job that wrote A", () => {
  const cases: [OrderState, string, string[]][] = [
    [a, "same", []],
    [{ ...a, position: "8192" }, "moved", ["position"]],
    [{ ...a, position: "20000000" }, "moved", ["position", "epoch"]],
    [{ ...a, sources: [{ ...source, name: "other" }] }, "same", ["sources"]],
    [{ ...a, sources: [{ ...source, L: 32 }] }, "reordered", ["lanes"]],
    [{ ...a, segments: [{ ...segment, last: "drop" }], position: "0" }, "reordered", ["last", "position"]],
    // What lies ahead is the job's to say.
    [{ ...a, segments: [segment, { ...segment, from: "8192", G: 128 }] }, "same", []],
    [
      { ...a, segments: [segment, { ...segment, from: "8192", G: 128 }], position: "8448" },
      "moved",
      ["number of segments", "samples of one optimizer batch", "beginning of the order", "position"],
    ],
    [{ ...a, seed: "6" }, "refused", ["seed"]],
    [{ ...a, segments: [{ ...segment, G: 128 }] }, "moved", ["samples of one optimizer batch"]],
    [
      { ...a, sources: [{ ...source, view: "f".repeat(32), samples: "9" }] },
      "refused",
      ["view (data, columns, max_length or tokenizer)", "samples", "epoch"],
    ],
  ];
  for (const [b, verdict, what] of cases) {
    const diff = compareStates(a, b);
    assert.deepEqual([diff.verdict, diff.differences.map((difference) => difference.what)], [verdict, what]);
    if (b.segments.length > 1) continue;
    // The agent says the same.
    const load = (): unknown => planSingle(b.sources[0]!.name, view, options, b);
    if (verdict === "refused") assert.throws(load, { code: "ATH_STATE_MISMATCH" });
    else assert.doesNotThrow(load);
  }
  assert.equal(compareStates(a, { ...a, position: "4000" }).ahead, -96);
});
