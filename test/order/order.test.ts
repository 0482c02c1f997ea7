import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { Order } from "../../src/order/order.ts";
import type { ResolvedOrder } from "../../src/order/types.ts";
import { extentsOf, resolvedOf, vectors, viewOf } from "./vectors.ts";

const order = (counts: readonly number[], resolved: ResolvedOrder) =>
  Order.single(viewOf(counts), extentsOf(counts), resolved);

/** Small sets with empty extents, odd lanes and windows; G = 24 has many divisors. */
const small = fc.record({
  counts: fc.array(fc.integer({ min: 0, max: 30 }), { minLength: 1, maxLength: 9 }).filter((c) => c.some((n) => n > 0)),
  seed: fc.bigInt({ min: 0n, max: (1n << 64n) - 1n }),
  mode: fc.constantFrom("window" as const, "global" as const, "none" as const),
  lanes: fc.integer({ min: 1, max: 9 }),
  window: fc.integer({ min: 1, max: 40 }),
  from: fc.nat({ max: 3 }),
});
type Small = typeof small extends fc.Arbitrary<infer T> ? T : never;

function make(
  { counts, seed, mode, lanes, window, from }: Small,
  last: ResolvedOrder["last"],
  globalBatch = 24,
): Order {
  const resolved: ResolvedOrder = {
    seed,
    shuffle: mode,
    held: false,
    lanes: mode === "window" ? lanes : 1,
    window: mode === "none" ? 1 : window,
    extentBlocks: 1,
    last,
    globalBatch,
    from: from * globalBatch,
  };
  return order(counts, resolved);
}

test("samples, epochs and deals are those of the reference", () => {
  for (const vector of vectors().order) {
    const o = order(vector.extents, resolvedOf(vector.options));
    const from = vector.options.from;
    assert.deepEqual(
      vector.samples.map((_, p) => o.sampleAt(from + p)),
      vector.samples,
    );
    assert.deepEqual(
      vector.begin.map((_, e) => o.begin(e)),
      vector.begin,
    );
    for (const [position, epoch] of vector.epochOf) assert.equal(o.epochOf(position), epoch);
    for (const { start, step, world, ranks } of vector.steps) {
      for (const [rank, [positions, valid]] of ranks.entries()) {
        const dealt = o.deal(start, step, world, rank);
        assert.deepEqual(
          [[...dealt.positions], dealt.valid],
          [positions, valid],
          `step at ${start}, rank ${rank} of ${world}`,
        );
      }
    }
  }
});

test("carry: every sample exactly once a pass, over epoch borders", () => {
  fc.assert(
    fc.property(small, (s) => {
      const o = make(s, "carry");
      for (let pass = 0; pass < 3; pass++) {
        const begin = o.epochs.from + pass * o.source(0).samples;
        const served = Array.from({ length: o.source(0).samples }, (_, p) => o.sampleAt(begin + p));
        assert.deepEqual(
          served.sort((a, b) => a - b),
          Array.from({ length: o.source(0).samples }, (_, i) => i),
        );
      }
      // The loader's epochs follow each other without a hole, in whole optimizer batches.
      for (let e = 0; e < 5; e++) {
        assert.equal((o.begin(e) - o.epochs.from) % 24, 0);
        assert.equal(o.begin(e) + o.steps(e, 8) * 8, o.begin(e + 1));
        assert.ok(
          o.begin(e) - o.epochs.from >= e * o.source(0).samples &&
            o.begin(e) - o.epochs.from < e * o.source(0).samples + 24,
        );
      }
    }),
  );
});

test("drop: whole optimizer batches, each sample at most once, less than one batch lost", () => {
  fc.assert(
    fc.property(small, (s) => {
      const samples = s.counts.reduce((a, b) => a + b, 0);
      if (samples < 24) {
        assert.throws(() => make(s, "drop"), { code: "ATH_ORDER_OPTION" });
        return;
      }
      const o = make(s, "drop");
      for (const e of [0, 1]) {
        const served = new Set<number>();
        for (let p = o.begin(e); p < o.begin(e + 1); p++) served.add(o.sampleAt(p));
        assert.equal(served.size, o.steps(e, 24) * 24);
        assert.ok(samples - served.size < 24);
      }
    }),
  );
});

test("pad: every sample exactly once an epoch, equal steps on all ranks", () => {
  fc.assert(
    fc.property(small, fc.constantFrom(1, 2, 3, 4, 8), (s, world) => {
      const o = make(s, "pad");
      let at = o.begin(1);
      const served: number[] = [];
      for (let k = 0; k < o.steps(1, 24); k++) {
        for (let rank = 0; rank < world; rank++) {
          const { positions, valid } = o.deal(at, 24, world, rank);
          assert.equal(positions.length, 24 / world);
          for (const [i, position] of positions.entries()) if (i < valid) served.push(o.sampleAt(position));
        }
        at = o.stepEnd(at, 24);
      }
      assert.equal(at, o.begin(2));
      assert.deepEqual(
        served.sort((a, b) => a - b),
        Array.from({ length: o.source(0).samples }, (_, i) => i),
      );
    }),
  );
});

test("the set of every optimizer batch is the same for world sizes 1 to 64 at one G", () => {
  const G = 192;
  fc.assert(
    fc.property(small, (s) => {
      const o = make(s, "carry", G);
      for (let batch = 0; batch < 3; batch++) {
        const begin = o.epochs.from + batch * G;
        const expected = Array.from({ length: G }, (_, i) => begin + i);
        for (const [world, step] of [
          [1, 1],
          [1, G],
          [2, 32],
          [3, 96],
          [8, 64],
          [16, 16],
          [32, 192],
          [64, 64],
          [64, G],
        ] as const) {
          const dealt: number[] = [];
          for (let at = begin; at < begin + G; at += step) {
            for (let rank = 0; rank < world; rank++) dealt.push(...o.deal(at, step, world, rank).positions);
          }
          assert.deepEqual(
            dealt.sort((a, b) => a - b),
            expected,
          );
        }
      }
    }),
    { numRuns: 40 },
  );
});

test("owner equals deal, and a deal goes by (lane, position) in equal runs", () => {
  fc.assert(
    fc.property(
      small,
      fc.integer({ min: 1, max: 8 }),
      fc.integer({ min: 1, max: 9 }),
      fc.nat({ max: 200 }),
      (s, world, batch, skip) => {
        const o = make(s, "carry");
        const step = world * batch;
        const start = o.epochs.from + skip;
        const sorted = Array.from({ length: step }, (_, i) => start + i).sort(
          (a, b) => o.locate(a).lane - o.locate(b).lane || a - b,
        );
        for (let rank = 0; rank < world; rank++) {
          const { positions, valid } = o.deal(start, step, world, rank);
          assert.equal(valid, batch);
          assert.deepEqual([...positions], sorted.slice(rank * batch, (rank + 1) * batch));
          for (const position of positions) assert.equal(o.owner(position, start, step, world), rank);
        }
      },
    ),
  );
});

test("seeking to any position equals having run there", () => {
  fc.assert(
    fc.property(small, fc.nat({ max: 500 }), (s, skip) => {
      const ran = make(s, "carry");
      const from = ran.epochs.from;
      let last = -1;
      for (let p = from; p <= from + skip; p++) last = ran.sampleAt(p);
      assert.equal(make(s, "carry").sampleAt(from + skip), last);
    }),
    { numRuns: 50 },
  );
});

test("windows, pieces and positionAt say what locate says", () => {
  fc.assert(
    fc.property(
      small.filter((s) => s.mode !== "global"),
      (s) => {
        const run = make(s, "carry");
        const o = run.source(0);
        const epoch = 1;
        let rows = 0;
        for (let lane = 0; lane < o.lanes; lane++) {
          for (let w = 0; w < o.windows(lane); w++) {
            const { firstRow, rows: count, perm } = o.window(epoch, lane, w);
            const laid = o
              .pieces(epoch, lane, firstRow, firstRow + count)
              .flatMap(({ extent, first, count: n }) =>
                Array.from({ length: n }, (_, i) => o.extents.sampleStart[extent]! + first + i),
              );
            assert.equal(laid.length, count);
            for (let i = 0; i < count; i++) {
              const position = o.positionAt(epoch, lane, firstRow + i);
              const row = firstRow + i;
              assert.deepEqual(run.locate(position), { source: 0, pass: epoch, lane, row, sample: laid[perm[i]!] });
            }
            rows += count;
          }
          assert.equal(
            o.laneRows(lane),
            Array.from({ length: o.windows(lane) }, (_, w) => o.window(epoch, lane, w).rows).reduce((a, b) => a + b, 0),
          );
        }
        assert.equal(rows, o.samples);
      },
    ),
  );
});

test("another seed and another epoch give another order", () => {
  const counts = Array.from({ length: 40 }, () => 25);
  const base = resolvedOf({
    seed: "1",
    shuffle: "window",
    lanes: 4,
    window: 50,
    last: "carry",
    global_batch: 8,
    from: 0,
  });
  const first = (resolved: ResolvedOrder, begin: number) =>
    Array.from({ length: 200 }, (_, p) => order(counts, resolved).sampleAt(begin + p));
  assert.notDeepEqual(first(base, 0), first({ ...base, seed: 2n }, 0));
  assert.notDeepEqual(first(base, 0), first(base, 1000));
});

test("positions outside the order are refused", () => {
  const options = {
    seed: "1",
    shuffle: "window",
    lanes: 1,
    window: 5,
    last: "carry",
    global_batch: 4,
    from: 4,
  } as const;
  const resolved = resolvedOf(options);
  const o = order([10], resolved);
  for (const position of [3, -1, 4.5, 2 ** 53, Number.NaN, Number.POSITIVE_INFINITY]) {
    assert.throws(() => o.locate(position), { code: "ATH_ORDER_POSITION" }, String(position));
    assert.throws(() => o.epochOf(position), { code: "ATH_ORDER_POSITION" }, String(position));
  }
  assert.throws(() => o.deal(4, 5, 2, 0), { code: "ATH_ORDER_OPTION" });
  assert.throws(() => o.deal(4, 4, 2, 2), { code: "ATH_ORDER_OPTION" });
  assert.throws(() => o.owner(8, 4, 4, 2), { code: "ATH_ORDER_OPTION" });
  assert.throws(() => Order.single({ ...viewOf([10]), samples: 11 }, extentsOf([10]), resolved), {
    code: "ATH_ORDER_OPTION",
  });
});
