import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { OrderOptions } from "../../src/order/types.ts";
import { Rig, remove, writeShards } from "./rig.ts";
import type { Client } from "./rig.ts";

// 2,000 records of some 20 KB: 40 MB, a dozen blocks, over shards of very different size (one of them empty).
const COUNTS = [700, 1, 0, 400, 650, 249];
const N = 2000;
let folder = "";

before(() => {
  folder = writeShards(COUNTS, 20_000);
});
after(() => remove(folder));

const windows: OrderOptions = { seed: 5n, globalBatch: 40, lanes: 4, window: 90 };

/** All ranks of a world, on one node or spread over several, read `steps` steps; batches by [step][rank]. */
async function readAll(rigs: Rig[], world: number, steps: number, position = 0): Promise<number[][][]> {
  const perNode = world / rigs.length;
  const clients: Client[] = [];
  for (let rank = 0; rank < world; rank++) {
    const node = Math.floor(rank / perNode);
    const localRanks = Array.from({ length: perNode }, (_, i) => node * perNode + i);
    clients.push((rigs[node] as Rig).client({ rank, localRanks, position }));
  }
  const read = async (client: Client, rank: number): Promise<number[][]> => {
    const result: number[][] = [];
    const { order } = rigs[0] as Rig;
    for (let step = 0; step < steps; step++) {
      const batch = await client.batch(step);
      const start = batch.position;
      const expected = order.deal(start, batch.ids.length * world, world, rank);
      assert.deepEqual(batch.positions, [...expected.positions], `step ${step}, rank ${rank}`);
      assert.deepEqual(
        batch.ids,
        [...expected.positions].map((p) => order.sampleAt(p)),
        `ids of step ${step}, rank ${rank}`,
      );
      batch.ids.forEach((id, i) => assert.equal(batch.lengths[i], Math.min(4, 1 + (id % 5))));
      result.push(batch.ids);
      if (rank % 2 === 1) await new Promise((resolve) => setTimeout(resolve, 1));
    }
    return result;
  };
  const byRank = await Promise.all(clients.map(read));
  for (const client of clients) client.member?.leave();
  return Array.from({ length: steps }, (_, step) => byRank.map((batches) => batches[step] as number[]));
}

/** Never wait for a fill: the first rows come by small reads. */
const impatient = { rows: 0, bytes: 0 };

for (const [name, options, nodes, patience] of [
  ["windows, one node", windows, 1],
  ["windows, small reads while they fill", windows, 2, impatient],
  ["held in memory, small reads while it fills", { seed: 5n, globalBatch: 40 }, 1, impatient],
  ["not shuffled, small reads at the start", { seed: 5n, globalBatch: 40, shuffle: "none" }, 1, impatient],
  ["windows, two nodes", windows, 2],
  ["held in memory", { seed: 5n, globalBatch: 40 }, 1],
  ["global by small reads", { seed: 5n, globalBatch: 40, shuffle: "global", shuffleMemory: 1 }, 2],
  ["not shuffled", { seed: 5n, globalBatch: 40, shuffle: "none" }, 1],
  ["whole shards", { ...windows, unit: "shard" }, 2],
] as const) {
  test(`every sample once an epoch, in the order's order: ${name}`, async () => {
    const world = 4;
    const rigs = await Promise.all(
      Array.from({ length: nodes }, () =>
        Rig.open(folder, options, { batch: 10, world, ...(patience && { patience }) }),
      ),
    );
    try {
      const steps = await readAll(rigs, world, (2 * N) / 40);
      const ids = steps.flat(2);
      for (const epoch of [ids.slice(0, N), ids.slice(N)]) assert.equal(new Set(epoch).size, N);
    } finally {
      for (const rig of rigs) await rig.close();
    }
  });
}

test("windows smaller than a batch: a batch needs more rows at once than a window holds", async () => {
  for (const lanes of [1, 3]) {
    const rig = await Rig.open(folder, { ...windows, lanes, window: 7 }, { batch: 20, world: 2, patience: impatient });
    try {
      await readAll([rig], 2, (2 * N) / 40);
    } finally {
      await rig.close();
    }
  }
});

test("drop leaves out more rows than a lane reads ahead: the next epoch comes", async () => {
  const options: OrderOptions = { ...windows, globalBatch: 120, lanes: 1, window: 7, last: "drop" };
  const rig = await Rig.open(folder, options, { batch: 20, world: 2, patience: impatient });
  try {
    assert.equal(rig.order.epochs.spans[0]!.length, 1920);
    await readAll([rig], 2, 100);
  } finally {
    await rig.close();
  }
});

test("a batch of more rows than all reads ahead bring: the lane's own room holds them", async () => {
  const small = writeShards(
    Array.from({ length: 100 }, () => 4),
    10,
  );
  const options: OrderOptions = { ...windows, globalBatch: 200, lanes: 1, window: 7 };
  const rig = await Rig.open(small, options, { batch: 100, world: 2, patience: impatient });
  try {
    await readAll([rig], 2, 4);
  } finally {
    await rig.close();
    remove(small);
  }
});

test("a batch of many epochs: lanes of unequal length have room for all their rows of it", async () => {
  const small = writeShards([4, 3], 20);
  try {
    for (const [lanes, batch] of [
      [2, 1024],
      [2, 4096],
      [4, 4096],
    ] as const) {
      const rig = await Rig.open(small, { ...windows, globalBatch: batch, lanes, window: 100 }, { batch, world: 1 });
      try {
        await readAll([rig], 1, 3);
      } finally {
        await rig.close();
      }
    }
  } finally {
    remove(small);
  }
});

test("a trainer that takes all there is leaves others their turn, and is served on without being asked for again", async () => {
  const rig = await Rig.open(folder, { seed: 5n, globalBatch: 10 }, { batch: 10, world: 1 });
  try {
    const client = rig.client({ rank: 0 }, 1000);
    const deadline = Date.now() + 60_000;
    let most = 0;
    for (let seen = 0; seen < 1000;) {
      await new Promise((resolve) => setImmediate(resolve));
      assert.ok(Date.now() < deadline, `${seen} batches came`);
      most = Math.max(most, client.batches.length - seen);
      seen = client.batches.length;
    }
    assert.equal(most, 8);
    client.member?.leave();
  } finally {
    await rig.close();
  }
});

test("a start in the middle of an epoch goes on as if it had run there", async () => {
  const rig = await Rig.open(folder, windows, { batch: 10, world: 2, patience: impatient });
  try {
    await readAll([rig], 2, 30, 1220);
  } finally {
    await rig.close();
  }
});

test("padded epochs: every sample once, equal steps, the rest is marked", async () => {
  const rig = await Rig.open(folder, { ...windows, last: "pad", globalBatch: 64 }, { batch: 16, world: 4 });
  try {
    const clients = [0, 1, 2, 3].map((rank) => rig.client({ rank, localRanks: [0, 1, 2, 3] }));
    const steps = Math.ceil(N / 64);
    const seen: number[] = [];
    for (let step = 0; step < steps; step++) {
      for (const client of clients) {
        const batch = await client.batch(step);
        batch.ids.forEach((id, i) => batch.valid[i] === true && seen.push(id));
        assert.equal(batch.ids.length, 16);
        assert.equal(batch.position, step * 64);
      }
    }
    assert.equal(seen.length, N);
    assert.equal(new Set(seen).size, N);
    assert.equal((await (clients[0] as Client).batch(steps)).position, N, "the next epoch begins at N");
  } finally {
    await rig.close();
  }
});

test("padded epochs of a rank alone on its node: the lanes of the short last step have their room", async () => {
  const small = writeShards([24, 15, 1, 0], 10);
  const padded = {
    seed: 1_266_293_597_618_668_813n,
    shuffle: "window",
    lanes: 3,
    last: "pad",
    globalBatch: 9,
  } as const;
  const rig = await Rig.open(small, padded, { batch: 3, world: 3 });
  try {
    const clients = [0, 1, 2].map((rank) => rig.client({ rank, localRanks: [rank] }));
    const ids = new Map<number, number>();
    // Eight epochs of five steps, the last of each with 4 rows for 3 ranks.
    for (let step = 0; step < 40; step++) {
      for (const client of clients) {
        const batch = await client.batch(step);
        batch.ids.forEach((id, i) => batch.valid[i] === true && ids.set(id, (ids.get(id) ?? 0) + 1));
      }
    }
    assert.deepEqual(new Set(ids.values()), new Set([8]));
    assert.equal(ids.size, 40);
  } finally {
    await rig.close();
    remove(small);
  }
});

test("a rank that seeks, and one that leaves and comes back, get exactly their rows", async () => {
  const rig = await Rig.open(folder, windows, { batch: 10, world: 2 });
  const { order } = rig;
  const check = (batch: { ids: number[]; position: number }, rank: number, position: number): void => {
    assert.equal(batch.position, position);
    assert.deepEqual(
      batch.ids,
      [...order.deal(position, 20, 2, rank).positions].map((p) => order.sampleAt(p)),
    );
  };
  try {
    const a = rig.client({ rank: 0, localRanks: [0, 1] });
    const b = rig.client({ rank: 1, localRanks: [0, 1] });
    for (let step = 0; step < 5; step++) {
      check(await a.batch(step), 0, step * 20);
      check(await b.batch(step), 1, step * 20);
    }
    const sought = a.batches.length;
    a.member?.seek(1500);
    for (let k = 0; k < sought - 5; k++) a.release();
    for (let step = 0; step < 10; step++) check(await a.batch(sought + step), 0, 1500 + step * 20);
    b.member?.leave();
    const again = rig.client({ rank: 1, localRanks: [0, 1], position: 100 });
    for (let step = 0; step < 10; step++) check(await again.batch(step), 1, 100 + step * 20);
  } finally {
    await rig.close();
  }
});

test("after the death of an agent, ranks that come back some steps apart share one run", async () => {
  const rig = await Rig.open(folder, windows, { batch: 10, world: 2 });
  try {
    const ahead = rig.client({ rank: 1, localRanks: [0, 1], position: 1240 });
    await ahead.batch(0);
    const reserved = rig.group.reserved;
    const behind = rig.client({ rank: 0, localRanks: [0, 1], position: 1180 });
    for (let step = 0; step < 10; step++) {
      assert.deepEqual((await behind.batch(step)).positions, [...rig.order.deal(1180 + step * 20, 20, 2, 0).positions]);
    }
    assert.equal(rig.group.reserved, reserved, "no second run");
  } finally {
    await rig.close();
  }
});

test("workers of a DataLoader share a rank's steps", async () => {
  const rig = await Rig.open(folder, windows, { batch: 20, world: 1 });
  const { order } = rig;
  try {
    const workers = [0, 1, 2].map((offset) => rig.client({ rank: 0, stride: 3, offset }));
    for (let step = 0; step < 200; step++) {
      const batch = await (workers[step % 3] as Client).batch(Math.floor(step / 3));
      assert.equal(batch.position, step * 20);
      assert.deepEqual(
        batch.ids,
        [...order.deal(step * 20, 20, 1, 0).positions].map((p) => order.sampleAt(p)),
      );
    }
  } finally {
    await rig.close();
  }
});

test("a rank that was announced and never comes holds nobody up for long", async () => {
  const rig = await Rig.open(folder, windows, { batch: 10, world: 2 });
  try {
    const alone = rig.client({ rank: 0, localRanks: [0, 1] });
    for (let step = 0; step < 150; step++) await alone.batch(step, 30_000);
  } finally {
    await rig.close();
  }
});

for (const [name, options, patience] of [
  ["windows", windows],
  ["windows, small reads while they fill", windows, impatient],
  ["held in memory", { seed: 5n, globalBatch: 40 }],
  ["held in memory, small reads while it fills", { seed: 5n, globalBatch: 40 }, impatient],
  ["global by small reads", { seed: 5n, globalBatch: 40, shuffle: "global", shuffleMemory: 1 }],
] as const) {
  test(`peers of a rank get the same rows, each decoded once: ${name}`, async () => {
    const decoded: number[] = [];
    for (const peers of [1, 4]) {
      const rig = await Rig.open(folder, options, { batch: 20, world: 2, ...(patience && { patience }) });
      try {
        const localRanks = [0, 1].flatMap((rank) => Array<number>(peers).fill(rank));
        const clients = localRanks.map((rank) => rig.client({ rank, localRanks }));
        const { reserved } = rig.group;
        const read = async (client: Client, rank: number, k: number): Promise<void> => {
          for (let step = 0; step < (2 * N) / 40; step++) {
            const { positions, ids } = await client.batch(step);
            assert.deepEqual(positions, [...rig.order.deal(step * 40, 40, 2, rank).positions]);
            assert.deepEqual(
              ids,
              positions.map((p) => rig.order.sampleAt(p)),
            );
            if (k % 3 === 1) await new Promise((resolve) => setTimeout(resolve, 1));
          }
        };
        await Promise.all(clients.map((client, k) => read(client, localRanks[k] as number, k)));
        assert.equal(rig.group.reserved, reserved, "no second run");
        const { clocks } = rig.group.view;
        for (let before = -1; before !== clocks.decodedRows;) {
          before = clocks.decodedRows;
          await new Promise((resolve) => setTimeout(resolve, 200));
        }
        decoded.push(clocks.decodedRows);
        for (const client of clients) client.member?.leave();
        assert.equal(rig.group.reserved, 0);
      } finally {
        await rig.close();
      }
    }
    const [alone, shared] = decoded as [number, number];
    // How far it had read ahead, and how many rows came singly, may differ by a few.
    if (name === "held in memory") assert.equal(shared, alone);
    assert.ok(shared < 1.1 * alone, `${alone} rows decoded for one session a rank, ${shared} for four`);
  });
}

test("a peer that leaves and one that never came hold nobody up, and a late one gets its rows", async () => {
  const rig = await Rig.open(folder, windows, { batch: 10, world: 1 });
  const check = ({ ids, positions }: { ids: number[]; positions: number[] }, position: number): void => {
    assert.deepEqual(positions, [...rig.order.deal(position, 10, 1, 0).positions]);
    assert.deepEqual(
      ids,
      positions.map((p) => rig.order.sampleAt(p)),
    );
  };
  try {
    const localRanks = [0, 0, 0];
    const stays = rig.client({ rank: 0, localRanks });
    const leaves = rig.client({ rank: 0, localRanks });
    for (let step = 0; step < 150; step++) {
      if (step < 20) check(await leaves.batch(step), step * 10);
      if (step === 20) leaves.member?.leave();
      check(await stays.batch(step, 30_000), step * 10);
    }
    const late = rig.client({ rank: 0, localRanks, position: 500 });
    for (let step = 0; step < 20; step++) check(await late.batch(step, 30_000), 500 + step * 10);
  } finally {
    await rig.close();
  }
});

test("random access: any samples, the same one twice too", async () => {
  const rig = await Rig.open(folder, windows, { batch: 8, world: 1 });
  try {
    const client = rig.client({ rank: 0, random: true });
    const asked = [[3, 1999, 3, 700, 701], [3, 4, 5, 6, 7, 8, 9, 10], [0]];
    for (const samples of asked) client.member?.ask(Float64Array.from(samples));
    for (const [n, samples] of asked.entries()) {
      const batch = await client.batch(n);
      assert.deepEqual(batch.ids.slice(0, samples.length), samples);
      assert.deepEqual(
        batch.valid.map(Number).reduce((a, b) => a + b),
        samples.length,
      );
    }
  } finally {
    await rig.close();
  }
});

test("compressed shards: gzip files are read by running decoders, also from the middle", async () => {
  const packed = writeShards([300, 0, 200, 500], 200, [0, 2]);
  const rig = await Rig.open(packed, { seed: 1n, globalBatch: 40, lanes: 2, window: 100 }, { batch: 20, world: 2 });
  const held = await Rig.open(packed, { seed: 1n, globalBatch: 40 }, { batch: 20, world: 2 });
  try {
    for (const each of [rig, held]) {
      const ids = (await readAll([each], 2, 50)).flat(2);
      assert.equal(new Set(ids.slice(0, 1000)).size, 1000);
      await readAll([each], 2, 20, 440);
    }
  } finally {
    await rig.close();
    await held.close();
    remove(packed);
  }
});

test("a job that does not fit the node's memory fails at once with need, free and remedy", async () => {
  const rig = await Rig.open(folder, windows, { batch: 10, world: 1, memory: 1 << 20 });
  try {
    assert.throws(() => rig.client({ rank: 0 }), /ATH_MEMORY_BUDGET|needs .* free are/);
  } finally {
    await rig.close();
  }
});

test("a shard that changes under the job ends it with an error that names the file", async () => {
  const own = writeShards([500, 500], 20_000);
  const rig = await Rig.open(own, windows, { batch: 10, world: 1 });
  try {
    const { writeFileSync, readdirSync } = await import("node:fs");
    for (const name of readdirSync(own)) if (name.endsWith(".tfrecord")) writeFileSync(`${own}/${name}`, "x");
    const client = rig.client({ rank: 0 });
    await assert.rejects(client.batch(0), /s00\d\.tfrecord.*(changed since it was indexed|shorter than)/);
  } finally {
    await rig.close();
    remove(own);
  }
});

test("several nodes, and a pass that is not a whole number of steps: lanes shift at its end, and no row is missing", async () => {
  const small = writeShards(
    Array.from({ length: 12 }, () => 668),
    40,
  );
  const world = 4;
  const options: OrderOptions = { seed: 3n, globalBatch: 32, lanes: 64, window: 20 };
  const nodes = await Promise.all(Array.from({ length: world }, () => Rig.open(small, options, { batch: 8, world })));
  try {
    // 501 steps of 32 are two passes over 8016 samples.
    const times = new Map<number, number>();
    for (const id of (await readAll(nodes, world, 501)).flat(2)) times.set(id, (times.get(id) ?? 0) + 1);
    assert.equal(times.size, 8016);
    assert.ok([...times.values()].every((count) => count === 2));
  } finally {
    for (const node of nodes) await node.close();
    remove(small);
  }
});

test("lanes that nobody reads from any more stop reading", async () => {
  const rig = await Rig.open(folder, windows, { batch: 10, world: 2 });
  try {
    const stays = rig.client({ rank: 0, localRanks: [0, 1] });
    const leaves = rig.client({ rank: 1, localRanks: [0, 1] });
    await stays.batch(0);
    await leaves.batch(0);
    leaves.member?.leave();
    await new Promise((resolve) => setTimeout(resolve, 1000));
    const { readBytes } = rig.group.view.clocks;
    assert.ok(readBytes < 3 * rig.source.index.totals.bytes, `${readBytes} bytes were read`);
    for (let step = 1; step < 120; step++) await stays.batch(step);
  } finally {
    await rig.close();
  }
});

test("a session that seeks again and again needs its memory once, and gives all of it back", async () => {
  const probe = await Rig.open(folder, windows, { batch: 10, world: 1 });
  probe.client({ rank: 0 });
  const memory = Math.ceil(probe.group.reserved * 1.2);
  await probe.close();
  const rig = await Rig.open(folder, windows, { batch: 10, world: 1, memory, patience: impatient });
  try {
    const client = rig.client({ rank: 0 });
    const { reserved } = rig.group;
    for (let k = 0; k < 30; k++) {
      const at = client.batches.length;
      for (let free = client.unread; free > 0; free--) client.release();
      client.member?.seek(k * 50);
      const batch = await client.batch(at);
      assert.deepEqual(
        batch.ids,
        [...rig.order.deal(k * 50, 10, 1, 0).positions].map((p) => rig.order.sampleAt(p)),
      );
      assert.equal(rig.group.reserved, reserved);
    }
    client.member?.leave();
    assert.equal(rig.group.reserved, 0);
  } finally {
    await rig.close();
  }
});

test("loaders opened and dropped one after the other never see each other's bytes", async () => {
  const rig = await Rig.open(folder, windows, { batch: 10, world: 1, patience: impatient });
  try {
    for (let k = 0; k < 40; k++) {
      const client = rig.client({ rank: 0, position: k * 40 });
      if (k % 3 !== 0) {
        const batch = await client.batch(0);
        assert.deepEqual(
          batch.ids,
          [...rig.order.deal(k * 40, 10, 1, 0).positions].map((p) => rig.order.sampleAt(p)),
        );
      }
      client.member?.leave();
    }
  } finally {
    await rig.close();
  }
});

test("records larger than a usual read", async () => {
  const own = writeShards([3, 2], 18_000_000);
  const rig = await Rig.open(
    own,
    { seed: 1n, globalBatch: 2, lanes: 1, window: 2 },
    { batch: 1, world: 1, largestBlock: 40e6 },
  );
  try {
    await readAll([rig], 1, 10);
  } finally {
    await rig.close();
    remove(own);
  }
});
