/** Mixtures and segments: the arithmetic of `Timeline` against running through the lanes one row after another. */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { planOrder, type Job, type PlannedOrder } from "../../src/order/job.ts";
import { laneRows } from "../../src/order/lanes.ts";
import { Order } from "../../src/order/order.ts";
import { parseState, stateOf, timelineOf } from "../../src/order/state.ts";
import type { OrderState, OrderView } from "../../src/order/types.ts";

/** A view of some samples in blocks of 4, so that lanes follow from the number of samples. */
function viewOf(name: string, samples: number): OrderView {
  const blocks = Math.ceil(samples / 4);
  const fingerprint = Buffer.from(`${name}-${samples}`.padEnd(16, "0").slice(0, 16)).toString("hex");
  return { fingerprint, samples, bytes: samples * 100, blocks, largestBlock: 4, rowBytes: 100 };
}

interface Wish {
  sizes: number[];
  phases: { from: number; weights: number[] }[];
  ramp: { from: number; size: number }[];
}

function jobOf({ sizes, phases, ramp }: Wish, grown = 0): Job {
  return {
    sources: sizes.map((samples, i) => ({
      name: `s${i}`,
      view: viewOf(`s${i}`, samples + (i === 0 ? grown : 0)),
      past: i === 0 && grown > 0 ? [viewOf("s0", samples)] : [],
    })),
    phases,
    ramp,
    // Little memory: windows and lanes, nothing held.
    options: { seed: 3n, shuffleMemory: 1000 },
  };
}

const weightsOf = (n: number) =>
  fc
    .array(fc.constantFrom(0, 0.1, 0.2, 0.7, 1, 3), { minLength: n, maxLength: n })
    .filter((w) => w.filter((x) => x > 0).length > 0);

const wishes: fc.Arbitrary<Wish> = fc.integer({ min: 1, max: 4 }).chain((n) =>
  fc.record({
    sizes: fc.array(fc.integer({ min: 5, max: 140 }), { minLength: n, maxLength: n }),
    phases: fc
      .array(fc.record({ from: fc.integer({ min: 1, max: 300 }), weights: weightsOf(n) }), { maxLength: 3 })
      .chain((later) => weightsOf(n).map((weights) => [{ from: 0, weights }, ...unique(later)])),
    ramp: fc
      .array(fc.record({ from: fc.integer({ min: 1, max: 300 }), size: fc.constantFrom(4, 8, 12, 24) }), {
        maxLength: 2,
      })
      .map((later) => [{ from: 0, size: 12 }, ...unique(later)]),
  }),
);

function unique<T extends { from: number }>(list: T[]): T[] {
  return list
    .sort((a, b) => a.from - b.from)
    .filter(({ from }, i, all) => all.findIndex((other) => other.from === from) === i);
}

/** Names of rows: source, pass, lane, row. */
function walk(plan: PlannedOrder, to: number): string[] {
  const timeline = timelineOf(plan.entries, plan.segments);
  return Array.from({ length: to }, (_, position) => {
    const { source, pass, lane, row } = timeline.locate(position);
    return `${source} ${pass} ${lane} ${row}`;
  });
}

const LENGTH = 700;

test("positionAt finds every position again, and says never for rows of other views", () => {
  fc.assert(
    fc.property(wishes, fc.nat({ max: 40 }), fc.nat({ max: 200 }), (wish, grown, at) => {
      let plan = planOrder(jobOf(wish), undefined);
      plan = planOrder(jobOf(wish, grown), stateOf(plan, at));
      const timeline = timelineOf(plan.entries, plan.segments);
      const seen = new Set<string>();
      for (let position = 0; position < LENGTH; position++) {
        const { source, pass, lane, row } = timeline.locate(position);
        assert.equal(timeline.positionAt(source, pass, lane, row), position);
        assert.ok(row < laneRows(plan.entries[source]!, lane));
        const key = `${source} ${pass} ${lane} ${row}`;
        assert.ok(!seen.has(key), `${key} comes twice`);
        seen.add(key);
      }
      // Rows in front of the furthest one of each lane were all served: nothing is left out.
      for (const key of seen) {
        const [source, pass, lane, row] = key.split(" ").map(Number) as [number, number, number, number];
        if (row === 0) continue;
        const before = timeline.positionAt(source, pass, lane, row - 1);
        const fresh = before === -1 && !seen.has(`${source} ${pass} ${lane} ${row - 1}`);
        assert.ok(!fresh || isAfterGap(plan, source), `row ${row - 1} before ${key} is never served`);
      }
    }),
    { numRuns: 60 },
  );
});

/** A source that leaves the mix takes the rows that other lanes of the run were to serve with it. */
function isAfterGap(plan: PlannedOrder, source: number): boolean {
  const name = plan.entries[source]!.name;
  return !plan.segments.at(-1)!.sources.some((number) => plan.entries[number]!.name === name);
}

test("each sample of a source exactly once in each of its passes", () => {
  fc.assert(
    fc.property(wishes, fc.nat({ max: 40 }), fc.nat({ max: 200 }), (wish, grown, at) => {
      const before = planOrder(jobOf(wish), undefined);
      const plan = planOrder(jobOf(wish, grown), stateOf(before, at));
      const timeline = timelineOf(plan.entries, plan.segments);
      const served = walk(plan, LENGTH);
      const seen = new Set(served);
      assert.equal(seen.size, LENGTH, "a row comes twice in a pass");
      // Lanes stand some rows apart, so a pass may end after the next has begun: what LENGTH has cut off of a pass comes later, once.
      for (const pass of new Set(served.map((key) => key.split(" ").slice(0, 2).join(" ")))) {
        const [source, number] = pass.split(" ").map(Number) as [number, number];
        const entry = plan.entries[source]!;
        for (let lane = 0; lane < entry.lanes; lane++) {
          for (let row = 0; row < laneRows(entry, lane); row++) {
            if (seen.has(`${pass} ${lane} ${row}`)) continue;
            const position = timeline.positionAt(source, number, lane, row);
            if (position === -1 && isAfterGap(plan, source)) continue;
            assert.ok(position >= LENGTH, `row ${row} of lane ${lane} of pass ${pass} is never served`);
            assert.deepEqual(
              { ...timeline.locate(position) },
              { ...timeline.locate(position), source, pass: number, lane, row },
            );
          }
        }
      }
    }),
    { numRuns: 60 },
  );
});

test("a resume at any position, also twice, goes on with the very same sequence", () => {
  fc.assert(
    fc.property(wishes, fc.array(fc.nat({ max: 400 }), { minLength: 1, maxLength: 4 }), (wish, stops) => {
      const job = jobOf(wish);
      const whole = planOrder(job, undefined);
      const expected = walk(whole, LENGTH);
      let plan = whole;
      for (const at of stops.sort((a, b) => a - b)) {
        const state = parseState(JSON.stringify(stateOf(plan, at)));
        plan = planOrder(job, state);
        assert.equal(plan.position, at);
        assert.deepEqual(walk(plan, LENGTH), expected);
      }
    }),
    { numRuns: 60 },
  );
});

test("what a state forgets of a ramp moves no beginning of the epoch in progress", () => {
  fc.assert(
    fc.property(wishes, fc.nat({ max: 600 }), (wish, at) => {
      const job = jobOf(wish);
      const whole = planOrder(job);
      const before = timelineOf(whole.entries, whole.segments).epochs;
      const plan = planOrder(job, stateOf(whole, at));
      const { epochs } = timelineOf(plan.entries, plan.segments);
      const epoch = before.epochOf(at);
      assert.equal(epochs.epochOf(at), epoch);
      for (let e = epoch; e < epoch + 4; e++) assert.equal(epochs.begin(e), before.begin(e));
    }),
  );
});

test("G alone changes no sample, only where optimizer batches begin", () => {
  fc.assert(
    fc.property(wishes, fc.nat({ max: 300 }), fc.constantFrom(4, 6, 24, 48), (wish, at, size) => {
      const job = { ...jobOf(wish), phases: [wish.phases[0]!] };
      const before = planOrder(job, undefined);
      const changed = planOrder({ ...job, ramp: [{ from: 0, size }] }, stateOf(before, at));
      assert.deepEqual(walk(changed, LENGTH), walk(before, LENGTH));
      const last = changed.segments.at(-1)!;
      assert.equal(last.globalBatch, size);
      assert.ok(last.from < at + 24);
    }),
  );
});

test("appended shards: the pass in progress ends over the old ones, the next one is over all", () => {
  const wish: Wish = { sizes: [60], phases: [{ from: 0, weights: [1] }], ramp: [{ from: 0, size: 12 }] };
  const before = planOrder(jobOf(wish), undefined);
  const plan = planOrder(jobOf(wish, 20), stateOf(before, 24));
  assert.deepEqual(
    plan.entries.map(({ samples }) => samples),
    [60, 80],
  );
  const rows = walk(plan, 300);
  assert.deepEqual(rows.slice(0, 60), walk(before, 60));
  assert.equal(new Set(rows.slice(60, 140).filter((row) => row.startsWith("1 1 "))).size, 80);
  const { epochs } = timelineOf(plan.entries, plan.segments);
  assert.deepEqual(
    [0, 1, 2, 3].map((epoch) => epochs.begin(epoch)),
    [0, 60, 144, 228],
  );
});

test("a ramp takes effect at the first optimizer batch at or after its sample count; with drop it is refused", () => {
  const ramp = [
    { from: 0, size: 8 },
    { from: 20, size: 12 },
    { from: 21, size: 24 },
  ];
  const job = jobOf({ sizes: [100], phases: [{ from: 0, weights: [1] }], ramp });
  assert.deepEqual(
    planOrder(job).segments.map(({ from, globalBatch }) => [from, globalBatch]),
    [
      [0, 8],
      [24, 24],
    ],
  );
  assert.throws(() => planOrder({ ...job, options: { ...job.options, last: "drop" } }), { code: "ATH_ORDER_OPTION" });
});

test("in every step each rank's count of a source is within 2 of batch × weight: 3 sources, 8 ranks, 64 lanes", () => {
  const sizes = [2000, 1500, 1200];
  for (const weights of [
    [0.7, 0.2, 0.1],
    [0.5, 0.3, 0.2],
    [1, 1, 1],
  ]) {
    for (const batch of [4, 8, 32]) {
      const step = 8 * batch;
      const job = jobOf({ sizes, phases: [{ from: 0, weights }], ramp: [{ from: 0, size: step }] });
      const plan = planOrder({ ...job, options: { ...job.options, lanes: 64 } });
      assert.equal(plan.segments[0]!.lanes, 64);
      const timeline = timelineOf(plan.entries, plan.segments);
      const order = new Order(timeline, []);
      const sum = weights.reduce((a, b) => a + b, 0);
      for (let start = 0; start < 400 * step; start += step) {
        for (let rank = 0; rank < 8; rank++) {
          const counts = weights.map(() => 0);
          for (const position of order.deal(start, step, 8, rank).positions)
            counts[timeline.locate(position).source]!++;
          for (const [i, count] of counts.entries()) {
            const share = (batch * weights[i]!) / sum;
            assert.ok(
              Math.abs(count - share) <= 2,
              `source ${i}: ${count} of ${batch}, share ${share}, weights ${weights.join()}`,
            );
          }
        }
      }
    }
  }
});

test("the ranks of a step share its positions at any world size, over borders of segments and passes", () => {
  fc.assert(
    fc.property(wishes, fc.constantFrom(1, 2, 4), fc.nat({ max: 100 }), (wish, world, k) => {
      const plan = planOrder(jobOf(wish));
      const order = new Order(timelineOf(plan.entries, plan.segments), []);
      const start = 4 * k;
      const all = Array.from({ length: world }, (_, rank) => [...order.deal(start, 4, world, rank).positions]);
      assert.deepEqual(
        all.flat().sort((a, b) => a - b),
        [0, 1, 2, 3].map((i) => start + i),
      );
      for (const [rank, positions] of all.entries()) {
        for (const position of positions) assert.equal(order.owner(position, start, 4, world), rank);
      }
    }),
  );
});

test("rowAt: every row in front of it was served before, and frontier is the first position not served", () => {
  fc.assert(
    fc.property(wishes, fc.nat({ max: 400 }), (wish, at) => {
      const plan = planOrder(jobOf(wish));
      const timeline = timelineOf(plan.entries, plan.segments);
      for (let position = at; position < at + 60; position++) {
        const { source, pass, lane, row } = timeline.locate(position);
        const first = timeline.rowAt(source, lane, at);
        assert.ok(first !== undefined);
        assert.ok(first.pass < pass || (first.pass === pass && first.row <= row));
        assert.ok(timeline.frontier(source, first.pass, lane, first.row) < Infinity);
        assert.ok(timeline.serves(source, at));
      }
    }),
  );
});

test("drop: whole optimizer batches an epoch, each sample at most once a pass, also where G changes in the middle", () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 30, max: 140 }),
      fc.constantFrom(4, 6, 12, 24),
      fc.constantFrom(4, 6, 12, 24),
      fc.nat({ max: 300 }),
      (samples, g, later, at) => {
        const job = jobOf({ sizes: [samples], phases: [{ from: 0, weights: [1] }], ramp: [{ from: 0, size: g }] });
        const options = { ...job.options, last: "drop" as const };
        const before = planOrder({ ...job, options });
        const plan = planOrder({ ...job, options, ramp: [{ from: 0, size: later }] }, stateOf(before, at));
        const timeline = timelineOf(plan.entries, plan.segments);
        const passes = new Map<number, Set<number>>();
        const order = new Order(timeline, []);
        for (let position = 0; position < LENGTH; position++) {
          const { pass, lane, row } = timeline.locate(position);
          const rows = passes.get(pass) ?? new Set<number>();
          passes.set(pass, rows);
          const key = row * plan.entries[0]!.lanes + lane;
          assert.ok(!rows.has(key), `row ${key} of pass ${pass} twice`);
          rows.add(key);
          assert.equal(timeline.positionAt(0, pass, lane, row), position);
        }
        for (let epoch = 0; order.begin(epoch + 1) < LENGTH; epoch++) {
          const [from, to] = [order.begin(epoch), order.begin(epoch + 1)];
          assert.equal(order.epochOf(from), epoch);
          const size = timeline.epochs.batchAt(from);
          assert.equal(
            (to - timeline.epochs.batches.findLast((batch) => batch.from <= to)!.from) % timeline.epochs.batchAt(to),
            0,
          );
          assert.ok(
            to - from > samples - 2 * Math.max(g, later) && to - from <= samples,
            `epoch ${epoch}: ${to - from}`,
          );
          assert.ok(size === g || size === later);
        }
      },
    ),
    { numRuns: 60 },
  );
});

test("a source of fewer samples than lanes joins a mixture: rows that are nowhere", () => {
  const one: Wish = { sizes: [10], phases: [{ from: 0, weights: [1] }], ramp: [{ from: 0, size: 12 }] };
  const alone = planOrder({ ...jobOf(one), options: { seed: 3n, shuffleMemory: 1000, lanes: 16 } });
  const two = planOrder(jobOf({ ...one, sizes: [10, 50], phases: [{ from: 0, weights: [1, 1] }] }), stateOf(alone, 24));
  assert.throws(() => timelineOf(two.entries, two.segments), {
    code: "ATH_ORDER_OPTION",
    message: /source s0 cannot be mixed: 10 samples in 16 lanes/,
  });
});

test("states that were changed by hand: lanes without end, lanes that do not divide, padded mixtures", () => {
  const wish: Wish = { sizes: [50, 60], phases: [{ from: 0, weights: [1, 1] }], ramp: [{ from: 0, size: 12 }] };
  const state = stateOf(planOrder(jobOf(wish)), 24);
  const changed = (change: (copy: OrderState) => void): (() => unknown) => {
    const copy = structuredClone(state);
    change(copy);
    return () => timelineOf(...parts(parseState(copy)));
  };
  const parts = (copy: OrderState): Parameters<typeof timelineOf> => {
    const { entries, segments } = planOrder(jobOf(wish), copy);
    return [entries, segments];
  };
  assert.doesNotThrow(changed(() => undefined));
  const refused: [(copy: OrderState) => void, string][] = [
    [(copy) => (copy.segments[0]!.L = 2 ** 26), "ATH_STATE_INVALID"],
    [(copy) => (copy.sources[0]!.L = 2 ** 26), "ATH_STATE_INVALID"],
    [(copy) => (copy.segments[0]!.last = "pad"), "ATH_STATE_INVALID"],
    [(copy) => copy.segments.push({ ...copy.segments[0]!, from: "48", last: "drop" }), "ATH_STATE_INVALID"],
    [(copy) => copy.segments.push({ ...copy.segments[0]!, from: "12", weights: [1, 65535], L: 8 }), "ATH_ORDER_OPTION"],
    [
      (copy) => copy.segments.push({ ...copy.segments[0]!, from: "12", sources: [1], weights: [65536], L: 3 }),
      "ATH_ORDER_OPTION",
    ],
  ];
  for (const [change, code] of refused) assert.throws(changed(change), { code });
});

test("a padded state is loaded over appended shards: epochs of two lengths", () => {
  const wish: Wish = { sizes: [60], phases: [{ from: 0, weights: [1] }], ramp: [{ from: 0, size: 12 }] };
  const padded = (grown: number): Job => ({ ...jobOf(wish, grown), options: { seed: 3n, last: "pad" } });
  const state = stateOf(planOrder(padded(0)), 24);
  assert.throws(() => planOrder(padded(20), state), { code: "ATH_STATE_MISMATCH" });
  assert.equal(planOrder(padded(20), state, true).segments.length, 1);
  const mixed = jobOf({ ...wish, sizes: [60, 50], phases: [{ from: 0, weights: [1, 1] }] });
  assert.throws(() => planOrder(mixed, state), { code: "ATH_STATE_MISMATCH" });
});

test("a ramp that never comes, said with 2^53 − 1: a state that cannot be loaded", () => {
  const ramp = [
    { from: 0, size: 12 },
    { from: Number.MAX_SAFE_INTEGER, size: 24 },
  ];
  const plan = planOrder(jobOf({ sizes: [60], phases: [{ from: 0, weights: [1] }], ramp }));
  assert.doesNotThrow(() => parseState(stateOf(plan, 24)));
});

test("where a position lies does not hang on which were asked for before it", () => {
  const bases = [0, 7, 1024, 2 ** 31 - 5, 2 ** 32 - 5, 2 ** 53 - 5000];
  const positions = fc.tuple(fc.constantFrom(...bases), fc.integer({ min: 0, max: 4 }), fc.integer({ min: 0, max: 4 }));
  fc.assert(
    fc.property(wishes, fc.array(positions, { minLength: 2, maxLength: 40 }), (wish, asked) => {
      const plan = planOrder(jobOf(wish));
      const fresh = () => timelineOf(plan.entries, plan.segments);
      const lasting = fresh();
      for (const [base, turn, more] of asked) {
        const position = base + 1024 * turn + more;
        assert.deepEqual(lasting.locate(position), fresh().locate(position));
      }
    }),
  );
});
