// Reading by layout: what is read next follows the OSTs, what is delivered follows the order alone.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import fc from "fast-check";
import { Budget } from "../../src/feed/budget.ts";
import type { Home } from "../../src/storage/places.ts";
import type { OrderOptions } from "../../src/order/types.ts";
import { unlessAborted } from "../../src/base/unless-aborted.ts";
import { createPosixStorage } from "../../src/storage/posix.ts";
import type { PosixStorage } from "../../src/storage/posix.ts";
import type { Storage } from "../../src/storage/types.ts";
import { Rig, remove, writeShards } from "./rig.ts";
import { writeZarr } from "./zarr-folder.ts";

// Blocks of 4 MiB hold 210 records of 20 KB: two and a bit a shard.
const SHARDS = 8;
const RECORDS = 500;
let folder = "";

before(() => (folder = writeShards(Array<number>(SHARDS).fill(RECORDS), 20_000)));
after(() => remove(folder));

const windows: OrderOptions = { seed: 11n, globalBatch: 40, lanes: 8, window: 60 };

/** OST of each shard. */
type Places = readonly (number | undefined)[];

const numberOf = (path: string): number => Number(/s(\d+)\.tfrecord$/.exec(path)?.[1]);

function home(places: Places, more: Partial<Home> = {}): Home {
  return {
    requestBytes: undefined,
    restoring: true,
    expect: () => undefined,
    targetsOf: (path) => {
      const ost = places[numberOf(path)];
      return ost === undefined ? undefined : [`x-OST000${ost}`];
    },
    arrival: () => undefined,
    noteOf: () => undefined,
    ...more,
  };
}

/** Reads take `delay` milliseconds more on their OST; the most reads at a time of each. */
function delayed(base: PosixStorage, places: Places, delay: (ost: number | undefined) => number) {
  const now = new Map<number | undefined, number>();
  const most = new Map<number | undefined, number>();
  const readShared: Storage["readShared"] = async (path, ...rest) => {
    const ost = places[numberOf(path)];
    now.set(ost, (now.get(ost) ?? 0) + 1);
    most.set(ost, Math.max(most.get(ost) ?? 0, now.get(ost)!));
    await sleep(delay(ost));
    try {
      return await base.readShared(path, ...rest);
    } finally {
      now.set(ost, now.get(ost)! - 1);
    }
  };
  const storage: Storage = {
    open: (...args) => base.open(...args),
    list: (...args) => base.list(...args),
    names: (...args) => base.names(...args),
    stat: (...args) => base.stat(...args),
    close: () => base.close(),
    readShared,
  };
  return { storage, most };
}

async function idsOf(size: Partial<Parameters<typeof Rig.open>[2]>, steps: number): Promise<number[][]> {
  const rig = await Rig.open(folder, windows, { batch: 40, world: 1, ...size });
  try {
    const client = rig.client({ rank: 0 });
    const ids: number[][] = [];
    for (let step = 0; step < steps; step++) ids.push((await client.batch(step)).ids);
    return ids;
  } finally {
    await rig.close();
  }
}

test("the order of samples is the same with and without layouts, however slow their OSTs are", async () => {
  const steps = (2 * SHARDS * RECORDS) / 40;
  const plain = await idsOf({}, steps);
  assert.deepEqual(
    [...new Set(plain.flat())].sort((a, b) => a - b),
    Array.from({ length: SHARDS * RECORDS }, (_, i) => i),
  );
  const scene = fc.record({
    places: fc.array(fc.option(fc.nat(3), { nil: undefined }), { minLength: SHARDS, maxLength: SHARDS }),
    delays: fc.array(fc.nat(8), { minLength: 5, maxLength: 5 }),
    requestBytes: fc.constantFrom(undefined, 8 << 20, 16 << 20),
    away: fc.uniqueArray(fc.nat(SHARDS - 1), { maxLength: 3 }),
  });
  await fc.assert(
    fc.asyncProperty(scene, async ({ places, delays, requestBytes, away }) => {
      const back = new Map(away.map((shard) => [shard, sleep(20 * shard)]));
      for (const [shard, done] of back) void done.then(() => back.delete(shard));
      const own = home(places, {
        requestBytes,
        arrival: (path) => back.get(numberOf(path)),
        noteOf: (path) => (back.has(numberOf(path)) ? "released to HSM" : undefined),
      });
      const { storage } = delayed(createPosixStorage({ threads: 2 }), places, (ost) => delays[ost ?? 4]!);
      assert.deepEqual(await idsOf({ storage, placement: { home: () => own } }, steps), plain);
    }),
    { numRuns: 6 },
  );
});

test("lanes whose next reads would queue at a busy OST leave the memory for reads to the others", async () => {
  // Half of the shards lie on a slow OST.
  const places = Array.from({ length: SHARDS }, (_, shard) => (shard % 2 === 0 ? 0 : 1 + (shard % 3)));
  const slow = (ost: number | undefined): number => (ost === 0 ? 300 : 0);
  const unknown = delayed(createPosixStorage({ threads: 2 }), places, slow);
  const plain = await idsOf({ storage: unknown.storage, patience: { rows: 1e9, bytes: 1e12 } }, 20);
  const known = delayed(createPosixStorage({ threads: 2 }), places, slow);
  const placement = { home: () => home(places) };
  const ids = await idsOf({ storage: known.storage, placement, patience: { rows: 1e9, bytes: 1e12 } }, 20);
  assert.deepEqual(ids, plain);
  assert.ok(unknown.most.get(0)! > 4, `${unknown.most.get(0)} reads at a time without layouts`);
  assert.ok(known.most.get(0)! <= 4, `${known.most.get(0)} reads at a time of the slow OST`);
});

test("the shards that lanes read next are named ahead, each lane's next one first", async () => {
  const expected: string[][] = [];
  const placement = {
    home: () => home([], { expect: (paths) => void expected.push([...paths]) }),
  };
  const rig = await Rig.open(folder, windows, { batch: 40, world: 1, placement });
  try {
    const client = rig.client({ rank: 0 });
    for (let step = 0; step < 20; step++) await client.batch(step);
    const pieces = Array.from({ length: 8 }, (_, lane) => rig.order.source(0).pieces(0, lane, 0, 1)[0]!);
    const first = pieces.map(({ extent }) => rig.order.source(0).extents.shard[extent]!);
    assert.deepEqual(
      expected
        .slice(0, 8)
        .map(([path]) => numberOf(path!))
        .sort((a, b) => a - b),
      first.sort((a, b) => a - b),
    );
    assert.equal(new Set(expected.flat()).size, SHARDS);
    assert.ok(expected.length <= 8 * 3, `${expected.length} times`);
  } finally {
    await rig.close();
  }
});

test("whoever waits for a released shard is told so", async () => {
  const never = new Promise<void>(() => undefined);
  let released = true;
  let finish = (): void => undefined;
  const back = new Promise<void>((resolve) => (finish = resolve));
  const own = home([], {
    arrival: () => (released ? back : undefined),
    noteOf: () => (released ? "released to HSM, its restore was asked for 3 s ago" : undefined),
  });
  const rig = await Rig.open(folder, windows, { batch: 40, world: 1, placement: { home: () => own } });
  try {
    const client = rig.client({ rank: 0 });
    const first = client.batch(0);
    await Promise.race([sleep(300), never]);
    assert.match(rig.why(client.member!), /s\d+\.tfrecord at byte \d+ for .* \(released to HSM, its restore was asked/);
    released = false;
    finish();
    assert.equal((await first).ids.length, 40);
  } finally {
    await rig.close();
  }
});

test("a run that ends while it waits for released shards gives back its memory", async () => {
  // One wait is known to the reader, the other to its storage alone.
  for (const wait of ["arrival", "storage"] as const) {
    let asked = 0;
    const never = (): Promise<void> => {
      asked++;
      return new Promise<void>(() => undefined);
    };
    const own = home([], wait === "arrival" ? { arrival: never } : {});
    const base = createPosixStorage({ threads: 2 });
    const { storage } = delayed(base, [], () => 0);
    if (wait === "storage") {
      storage.readShared = (path, version, buffer, at, offset, length, over) =>
        unlessAborted(never(), over).then(() => base.readShared(path, version, buffer, at, offset, length));
    }
    const budget = new Budget(2 ** 31);
    const size = { batch: 40, world: 1, placement: { home: () => own }, storage, budget };
    const rig = await Rig.open(folder, windows, size);
    try {
      const client = rig.client({ rank: 0 });
      for (const end = Date.now() + 20_000; asked === 0; await sleep(5)) assert.ok(Date.now() < end, "nothing is read");
      assert.ok(budget.reserved > 0);
      client.member!.leave();
      for (const end = Date.now() + 20_000; budget.reserved > 0; await sleep(5))
        assert.ok(Date.now() < end, "it is kept");
      assert.equal(client.error, undefined);
    } finally {
      await rig.close();
    }
  }
});

test("what a format's library reads by itself waits for its shard to be back, and can be given up", async () => {
  const waiting = new Map<number, () => void>();
  const arrival = (path: string): Promise<void> | undefined =>
    numberOf(path) === 7 ? undefined : new Promise<void>((resolve) => waiting.set(numberOf(path), resolve));
  const rig = await Rig.open(folder, windows, {
    batch: 40,
    world: 1,
    placement: { home: () => home([], { arrival }) },
  });
  try {
    const over = new AbortController();
    const given = assert.rejects(rig.source.check(1, over.signal), /no longer/);
    let checked = false;
    const held = rig.source.check(0).then(() => (checked = true));
    await rig.source.check(7);
    await sleep(50);
    assert.equal(checked, false);
    over.abort(new Error("no longer"));
    await given;
    waiting.get(0)!();
    await held;
  } finally {
    await rig.close();
  }
});

for (const [supply, options] of [
  ["lanes", { seed: 11n, globalBatch: 40, lanes: 4, window: 60 }],
  ["a set that is held", { seed: 11n, globalBatch: 40 }],
] as const) {
  test(`the chunks of Zarr that ${supply} read next are named ahead and waited for, not their folder`, async () => {
    const zarr = writeZarr(8000, [
      { name: "id", type: "<i4", chunkRows: 1000 },
      { name: "input_ids", type: "<i8", width: 512, chunkRows: 1000 },
    ]);
    const named: string[] = [];
    let released = true;
    let finish = (): void => undefined;
    const back = new Promise<void>((resolve) => (finish = resolve));
    const isAway = (path: string): boolean => released && path.endsWith("/input_ids/5.0");
    const own = home([], {
      expect: (paths) => void named.push(...paths),
      arrival: (path) => (isAway(path) ? back : undefined),
      noteOf: (path) => (isAway(path) ? "released to HSM, its restore was asked for 3 s ago" : undefined),
    });
    const rig = await Rig.open(zarr, options, { batch: 40, world: 1, placement: { home: () => own } });
    try {
      const client = rig.client({ rank: 0 });
      const steps = (async () => {
        for (let step = 0; step < 200; step++) await client.batch(step);
      })();
      const waits = /reading .*\/input_ids\/5\.0 at byte 0 for .* \(released to HSM, its restore was asked/;
      const why = (): string => rig.why(client.member!);
      for (const end = Date.now() + 20_000; !waits.test(why()); await sleep(5)) assert.ok(Date.now() < end, why());
      const chunks = [0, 1, 2, 3, 4, 5, 6, 7].flatMap((chunk) => [`id/${chunk}`, `input_ids/${chunk}.0`]);
      const paths = chunks.map((chunk) => `${zarr}/a.zarr/${chunk}`);
      assert.deepEqual(
        paths.filter((path) => !named.includes(path)),
        [],
      );
      released = false;
      finish();
      await steps;
    } finally {
      await rig.close();
      remove(zarr);
    }
  });
}
