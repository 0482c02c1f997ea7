import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { planOrder, planSingle, resolvedEntry } from "../../src/order/job.ts";
import { parseState, stateOf } from "../../src/order/state.ts";
import type { OrderOptions, OrderView } from "../../src/order/types.ts";

const view: OrderView = {
  fingerprint: "0123456789abcdef0123456789abcdef",
  samples: 10_000_000,
  bytes: 1e10,
  blocks: 2400,
  largestBlock: 4200,
  rowBytes: 4096,
};
const options: OrderOptions = { seed: (1n << 64n) - 1n, globalBatch: 256 };
const plan = planSingle("data", view, options);
const state = stateOf(plan, 4096);

test("a state survives JSON and gives back order and position", () => {
  const text = JSON.stringify(state);
  assert.ok(text.startsWith('{"version":1,'));
  assert.ok(text.length < 1024 + 150 + 208, `${text.length} characters`);
  assert.deepEqual(planSingle("data", view, options, parseState(text)), { ...plan, position: 4096 });
  assert.deepEqual(parseState(JSON.parse(text)), state);
});

test("what the segment holds wins over the options", () => {
  const other: OrderOptions = { ...options, shuffle: "none", last: "drop", shuffleMemory: 1 };
  assert.deepEqual(planSingle("data", view, other, state), { ...plan, position: 4096 });
});

test("another view or seed is refused, naming what differs", () => {
  const cases: [OrderView, OrderOptions, RegExp][] = [
    [{ ...view, fingerprint: "f".repeat(32) }, options, /view fingerprint .*0123456789abcdef.*this job has ffff/],
    [view, { ...options, seed: 7n }, /seed: state has 18446744073709551615, this job has 7/],
  ];
  for (const [v, o, message] of cases) {
    assert.throws(() => planSingle("data", v, o, state), { code: "ATH_STATE_MISMATCH", message });
    const ramp = [{ from: 0, size: o.globalBatch }];
    const job = { sources: [{ name: "data", view: v }], phases: [{ from: 0, weights: [1] }], ramp, options: o };
    const fresh = planOrder(job, { ...state, position: "4100" }, true);
    assert.deepEqual([fresh.position, fresh.segments[0]!.from, fresh.seed], [4352, 4352, o.seed]);
  }
});

test("another global batch begins at the next border of the old one", () => {
  const { segments, position } = planSingle(
    "data",
    view,
    { ...options, globalBatch: 128 },
    { ...state, position: "4100" },
  );
  assert.equal(position, 4100);
  assert.deepEqual(
    segments.map(({ from, globalBatch }) => [from, globalBatch]),
    [
      [0, 256],
      [4352, 128],
    ],
  );
});

test("a held order resumes where there is less memory, a stream does not", () => {
  const tiny = { ...view, samples: 1000 };
  const held = planSingle("data", tiny, options);
  const kept = stateOf(held, 0);
  const little = { ...options, shuffleMemory: 10 };
  assert.equal(resolvedEntry(held, 0, tiny, options).held, true);
  const again = planSingle("data", tiny, little, kept);
  assert.deepEqual([again.entries[0]!.shuffle, resolvedEntry(again, 0, tiny, little).held], ["global", false]);
  assert.throws(() => resolvedEntry(again, 0, { ...tiny, streams: true }, little), { code: "ATH_ORDER_STREAM" });
});

test("what is no state is refused with the field", () => {
  const segment = state.segments[0]!;
  const cases: [unknown, RegExp][] = [
    ["", /not JSON/],
    ["[1]", /not a JSON object/],
    [null, /not a JSON object/],
    [{}, /unknown version: found none, expected 1/],
    [{ ...state, version: 2 }, /found 2, expected 1 \(use the version/],
    [{ ...state, version: "1" }, /unknown version/],
    [{ ...state, seed: 5 }, /field seed/],
    [{ ...state, seed: "18446744073709551616" }, /field seed is out of range/],
    [{ ...state, seed: "-1" }, /field seed/],
    [{ ...state, position: "9007199254740992" }, /field position is out of range/],
    [{ ...state, sources: [] }, /field sources/],
    [{ ...state, extra: 1 }, /extra/],
    [{ ...state, segments: [{ ...segment, L: 0 }] }, /field segments\.0\.L/],
    [{ ...state, segments: [{ ...segment, sources: [1] }] }, /names source 1/],
    [{ ...state, segments: [{ ...segment, sources: [0, 0], weights: [1, 65535] }] }, /names a source twice/],
    [{ ...state, segments: [{ ...segment, weights: [65535] }] }, /one weight a source, of sum 65536/],
    [{ ...state, segments: [segment, segment] }, /not behind the one before it/],
    [`"${"x".repeat(70_000)}"`, /too long/],
  ];
  for (const [input, message] of cases) assert.throws(() => parseState(input), { code: "ATH_STATE_INVALID", message });
  assert.throws(() => planSingle("data", view, options, { ...state, segments: [{ ...segment, from: "8192" }] }), {
    code: "ATH_STATE_INVALID",
  });
});

test("no JSON value crashes the parser", () => {
  fc.assert(
    fc.property(fc.jsonValue(), fc.constantFrom(...Object.keys(state)), (value, key) => {
      for (const input of [value, { ...state, [key]: value }]) {
        try {
          parseState(input);
        } catch (error) {
          assert.equal((error as { code?: string }).code, "ATH_STATE_INVALID");
        }
      }
    }),
  );
});
