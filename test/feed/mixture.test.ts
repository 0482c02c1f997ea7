import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { Job } from "../../src/order/job.ts";
import { stateOf } from "../../src/order/state.ts";
import type { OrderOptions, OrderState } from "../../src/order/types.ts";
import { Rig, remove, writeShards } from "./rig.ts";
import type { Client } from "./rig.ts";

// Three sources of some 20 KB a record: a dozen, five and two blocks of 4 MiB.
const COUNTS = [
  [900, 700, 0, 760],
  [500, 480],
  [150, 90],
];
const FIRST = [0, 10_000, 20_000];
let folders: string[] = [];

before(() => {
  folders = COUNTS.map((counts, i) => writeShards(counts, 20_000, i === 1 ? [1] : [], FIRST[i]));
});
after(() => folders.forEach(remove));

const windows: OrderOptions = { seed: 5n, globalBatch: 40, lanes: 4, window: 60 };
const phases: Job["phases"] = [
  { from: 0, weights: [0.7, 0.2, 0.1] },
  { from: 1000, weights: [0.3, 0, 0.7] },
  { from: 2000, weights: [0, 1, 1] },
];
const ramp: Job["ramp"] = [
  { from: 0, size: 40 },
  { from: 600, size: 120 },
];

/** All ranks of a world over these nodes read `steps` steps of `size`, each rank at its own pace. */
async function readAll(rigs: Rig[], world: number, steps: number, size = 40): Promise<number[][]> {
  const perNode = world / rigs.length;
  const clients: Client[] = [];
  for (let rank = 0; rank < world; rank++) {
    const node = Math.floor(rank / perNode);
    const localRanks = Array.from({ length: perNode }, (_, i) => node * perNode + i);
    clients.push((rigs[node] as Rig).client({ rank, localRanks }));
  }
  const { order } = rigs[0] as Rig;
  const read = async (client: Client, rank: number): Promise<number[][]> => {
    const result: number[][] = [];
    for (let step = 0; step < steps; step++) {
      const batch = await client.batch(step);
      const { positions } = order.deal(batch.position, size, world, rank);
      assert.deepEqual(batch.positions, [...positions], `step ${step}, rank ${rank}`);
      const located = [...positions].map((position) => order.locate(position));
      assert.deepEqual(
        batch.sources,
        located.map(({ source }) => source),
      );
      assert.deepEqual(
        batch.ids,
        located.map(({ source, sample }) => (FIRST[source] as number) + sample),
        `ids of step ${step}, rank ${rank}`,
      );
      result.push(batch.ids);
      if (rank % 2 === 1) await new Promise((resolve) => setTimeout(resolve, 1));
    }
    return result;
  };
  const byRank = await Promise.all(clients.map(read));
  for (const client of clients) client.member?.leave();
  return Array.from({ length: steps }, (_, step) => byRank.flatMap((batches) => batches[step] as number[]));
}

const impatient = { rows: 0, bytes: 0 };

for (const [name, sizes, nodes, patience] of [
  ["windows, one node", windows, 1],
  ["windows, two nodes, small reads while they fill", windows, 2, impatient],
  ["held in memory", { seed: 5n, globalBatch: 40 }, 1],
  ["some held, some in windows, two nodes", { seed: 5n, globalBatch: 40, shuffleMemory: 24_000 }, 2],
  ["not shuffled", { seed: 5n, globalBatch: 40, shuffle: "none" }, 2],
] as const) {
  test(`a mixture in phases and with a ramp, each row where the order says: ${name}`, async () => {
    const options = { sizes, batch: 10, world: 4, phases, ramp, ...(patience && { patience }) };
    const rigs = await Promise.all(Array.from({ length: nodes }, () => Rig.mix(folders, options)));
    try {
      await readAll(rigs, 4, 100);
    } finally {
      await Promise.all(rigs.map((rig) => rig.close()));
    }
  });
}

test("a mixture goes on in the middle, at another world size, with a source that left and one that came", async () => {
  const whole = await Rig.mix(folders, { sizes: windows, batch: 10, world: 4, phases, ramp });
  try {
    const steps = await readAll([whole], 4, 70);
    for (const at of [27, 45, 60]) {
      const state = stateOf(whole.plan, at * 40);
      const rig = await Rig.mix(folders, { sizes: windows, batch: 20, world: 2, phases, ramp, state });
      try {
        const rest = await readAll([rig], 2, 10);
        for (const [i, ids] of rest.entries()) {
          assert.deepEqual(new Set(ids), new Set(steps[at + i]), `step ${at + i}`);
        }
      } finally {
        await rig.close();
      }
    }
  } finally {
    await whole.close();
  }
});

test("a loader that stands behind a source's last row goes back to where it is served", async () => {
  const start = await Rig.mix(folders, { sizes: windows, batch: 10, world: 1, phases });
  const state = stateOf(start.plan, 2800);
  await start.close();
  const rig = await Rig.mix(folders, { sizes: windows, batch: 40, world: 1, phases, state });
  try {
    const client = rig.client({ rank: 0 });
    assert.equal((await client.batch(0)).position, 2800);
    const before = client.batches.length;
    client.member?.seek(80);
    const { ids, position } = await client.batch(before);
    assert.equal(position, 80);
    const located = Array.from({ length: 40 }, (_, i) => rig.order.locate(80 + i));
    const expected = located.map(({ source, sample }) => (FIRST[source] as number) + sample);
    assert.deepEqual(new Set(ids), new Set(expected));
  } finally {
    await rig.close();
  }
});

test("a source that is over is not read, and is there again when a rank goes back to it", async () => {
  const sizes = { ...windows, globalBatch: 10 };
  const start = await Rig.mix(folders, { sizes, batch: 10, world: 1, phases });
  const state = stateOf(start.plan, 2800);
  await start.close();
  for (const held of [false, true]) {
    // Held sources share one run for all positions.
    const kind = held ? { seed: 5n, globalBatch: 10, shuffleMemory: 2 ** 30 } : sizes;
    const at = held ? undefined : state;
    const rig = await Rig.mix(folders, { sizes: kind, batch: 10, world: 1, phases, ...(at && { state: at }) });
    const after = held
      ? await Rig.mix(folders, { sizes: kind, batch: 10, world: 1, phases, state: stateOf(rig.plan, 2800) })
      : rig;
    try {
      const client = after.client({ rank: 0 });
      const idsAt = (positions: readonly number[]): number[] =>
        positions.map((position) => {
          const { source, sample } = after.order.locate(position);
          return (FIRST[source] as number) + sample;
        });
      const first = await client.batch(0);
      assert.deepEqual([first.position, first.ids], [2800, idsAt(first.positions)]);
      assert.equal(after.group.view.sources[0]?.source.shardsOpened, 0);
      client.member?.seek(0);
      const from = client.batches.length;
      for (let step = 0; step < 20; step++) {
        const batch = await client.batch(from + step);
        assert.deepEqual([batch.position, batch.ids], [step * 10, idsAt(batch.positions)]);
      }
    } finally {
      await rig.close();
      if (held) await after.close();
    }
  }
});

test("rows of another source, or said to be of it: a source left the job", async () => {
  const sizes = { seed: 5n, globalBatch: 40 };
  const both = await Rig.mix(folders.slice(1), { sizes, batch: 10, world: 2 });
  const [inside, border] = [20, 40].map((position) => stateOf(both.plan, position));
  await both.close();
  // A rig of one source calls it so.
  const alone = (state: OrderState): OrderState => ({
    ...state,
    sources: state.sources.map((source) => (source.name === "s1" ? { ...source, name: "data" } : source)),
  });
  const job = { sizes, batch: 10, world: 2 };
  await assert.rejects(Rig.mix(folders.slice(2), { ...job, state: alone(inside!) }), {
    code: "ATH_STATE_MISMATCH",
    message: /goes on with source s0 from position 20/,
  });
  const rig = await Rig.mix(folders.slice(2), { ...job, state: alone(border!) });
  try {
    assert.throws(() => rig.client({ rank: 0, position: 20 }), { code: "ATH_ORDER_POSITION" });
    const { sources } = await rig.client({ rank: 0 }).batch(0);
    assert.deepEqual(new Set(sources), new Set([1]));
  } finally {
    await rig.close();
  }
});

test("many short phases: lanes that share one of a source's drift apart, and wait for room that the others hold", async () => {
  // Each phase begins the schedule anew, so of two sources every second lane takes the same one each time.
  const large = [60, 60].map((count, i) => writeShards([count], 400_000, [], FIRST[i]));
  const short = Array.from({ length: 40 }, (_, k) => ({ from: 16 * k, weights: [50 + (k % 2), 50] }));
  const sizes: OrderOptions = { seed: 5n, globalBatch: 16, lanes: 16, window: 5 };
  const rig = await Rig.mix(large, { sizes, batch: 16, world: 1, phases: short });
  try {
    assert.equal(rig.order.timeline.stride(0), 16);
    await readAll([rig], 1, 60, 16);
  } finally {
    await rig.close();
    large.forEach(remove);
  }
});
