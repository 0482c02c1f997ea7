import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { resolveOrder } from "../../src/order/resolve.ts";
import { checkState, parseState, stateOf } from "../../src/order/state.ts";
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
const resolved = resolveOrder(view, options);
const state = stateOf(resolved, 4096, { name: "data", view: view.fingerprint, samples: view.samples });

test("a state survives JSON and gives back order and position", () => {
  const text = JSON.stringify(state);
  assert.ok(text.startsWith('{"version":1,'));
  assert.ok(text.length < 1024 + 150 + 208, `${text.length} characters`);
  assert.deepEqual(checkState(parseState(text), view, options), { resolved, position: 4096 });
  assert.deepEqual(parseState(JSON.parse(text)), state);
});

test("what the segment holds wins over the options", () => {
  const other: OrderOptions = {
    ...options,
    shuffle: "none",
    last: "drop",
    shuffleMemory: 1,
    lanes: undefined as never,
  };
  delete other.lanes;
  assert.deepEqual(checkState(state, view, other).resolved, resolved);
});

test("another view, seed or global batch is refused, naming what differs", () => {
  const cases: [OrderView, OrderOptions, RegExp][] = [
    [{ ...view, fingerprint: "f".repeat(32) }, options, /view fingerprint .*0123456789abcdef.*this job has ffff/],
    [view, { ...options, seed: 7n }, /seed: state has 18446744073709551615, this job has 7/],
    [view, { ...options, globalBatch: 128 }, /optimizer batch: state has 256, this job has 128/],
  ];
  for (const [v, o, message] of cases) {
    assert.throws(() => checkState(state, v, o), { code: "ATH_STATE_MISMATCH", message });
    const { resolved: fresh, position } = checkState({ ...state, position: "4100" }, v, o, true);
    assert.equal(position, 4352);
    assert.equal(fresh.from, 4352);
    assert.equal(fresh.seed, o.seed);
  }
});

test("a held order resumes where there is less memory, a stream does not", () => {
  const tiny = { ...view, samples: 1000 };
  const held = resolveOrder(tiny, options);
  assert.equal(held.held, true);
  const kept = stateOf(held, 0, { name: "data", view: view.fingerprint, samples: 1000 });
  assert.deepEqual(checkState(kept, tiny, { ...options, shuffleMemory: 10 }).resolved, { ...held, held: false });
  assert.throws(() => checkState(kept, { ...tiny, streams: true }, { ...options, shuffleMemory: 10 }), {
    code: "ATH_ORDER_STREAM",
  });
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
    [{ ...state, segments: [{ ...segment, sources: [{ view: 1, weight: 1, offset: [] }] }] }, /names source 1/],
    [`"${"x".repeat(70_000)}"`, /too long/],
  ];
  for (const [input, message] of cases) assert.throws(() => parseState(input), { code: "ATH_STATE_INVALID", message });
  assert.throws(() => checkState({ ...state, segments: [{ ...segment, from: "8192" }] }, view, options), {
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
