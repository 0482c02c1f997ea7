// Zarr behind the storage interface: the same index, order and rows from objects without folders as from files.
import assert from "node:assert/strict";
import { readdirSync, readFileSync, statSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { buildIndex } from "../../src/dataset/index-build.ts";
import { readRecords } from "../../src/dataset/records.ts";
import type { DatasetIndex } from "../../src/dataset/types.ts";
import { verify } from "../../src/dataset/verify.ts";
import type { OrderOptions } from "../../src/order/types.ts";
import { createPosixStorage } from "../../src/storage/posix.ts";
import type { Storage } from "../../src/storage/types.ts";
import { FIXTURES } from "../formats/zarr/samples.ts";
import { ObjectStorage } from "../storage/object-storage.ts";
import { Rig, remove } from "./rig.ts";
import { writeZarr } from "./zarr-folder.ts";

/** The files of a folder as objects below `prefix`. */
function objectsOf(folder: string, prefix: string): ObjectStorage {
  const storage = new ObjectStorage();
  for (const path of readdirSync(folder, { recursive: true }) as string[]) {
    if (statSync(join(folder, path)).isFile()) storage.put(`${prefix}/${path}`, readFileSync(join(folder, path)));
  }
  return storage;
}

const rows = 3000;
const zarrs = (): string =>
  writeZarr(rows, [
    { name: "id", type: "<i4", chunkRows: 500 },
    { name: "input_ids", type: "<i8", width: 64, chunkRows: 128, gzip: 1 },
  ]);

/** What an index says, but for the times. */
async function told(
  { fingerprint, totals, schema, shards, missing, shardTable }: DatasetIndex,
  bind: DatasetIndex,
): Promise<unknown> {
  const tables = await Promise.all(shards.map((_, i) => shardTable.call(bind, i)));
  const files = (list: readonly { path: string; size: number }[] = []): unknown =>
    list.map(({ path, size }) => [path, size]);
  return {
    fingerprint,
    totals,
    schema,
    missing,
    rows: shards.map(({ mtimeNs: _, ...row }) => row),
    tables: tables.map(({ files: beside, ...table }) => ({ ...table, files: files(beside) })),
  };
}

async function indexOf(source: string, storage: Storage): Promise<unknown> {
  const index = await buildIndex(source, { storage, write: false });
  return await told(index, index);
}

async function recordsOf(source: string, storage: Storage): Promise<unknown[]> {
  const found: unknown[] = [];
  for await (const { path, record, values } of readRecords(source, { storage })) found.push([path, record, values]);
  return found;
}

async function delivered(folder: string, options: OrderOptions, storage?: Storage): Promise<number[][]> {
  const rig = await Rig.open(folder, options, { batch: 50, world: 1, ...(storage && { storage }) });
  try {
    const client = rig.client({ rank: 0 });
    const ids: number[][] = [];
    for (let step = 0; step < (2 * rows) / 50; step++) ids.push((await client.batch(step)).ids);
    return ids;
  } finally {
    await rig.close();
  }
}

test("objects give the index, the records and the order that files give", async () => {
  const posix = createPosixStorage();
  const folder = zarrs();
  try {
    for (const [source, prefix] of [
      [folder, "/bucket/data"],
      [join(FIXTURES, "zarr"), "/bucket/fixtures"],
    ] as const) {
      const objects = objectsOf(source, prefix);
      for (const inside of ["/*.zarr", ...(source === folder ? ["", "/a.zarr"] : ["/v2.zarr", "/v3.zarr/zarr.json"])]) {
        assert.deepEqual(await indexOf(prefix + inside, objects), await indexOf(source + inside, posix), inside);
        assert.deepEqual(await recordsOf(prefix + inside, objects), await recordsOf(source + inside, posix), inside);
      }
    }
    const objects = objectsOf(folder, "/bucket/data");
    for (const shuffle of ["none", "window", "global"] as const) {
      const options = { seed: 9n, globalBatch: 50, shuffle, ...(shuffle === "window" && { lanes: 4, window: 100 }) };
      const found = await delivered("/bucket/data", options, objects);
      assert.deepEqual(found, await delivered(folder, options), shuffle);
      assert.equal(new Set(found.slice(0, rows / 50).flat()).size, rows);
    }
  } finally {
    remove(folder);
    await posix.close();
  }
});

test("a key that is not there is a missing chunk, as a file that is not there", async () => {
  const posix = createPosixStorage();
  const folder = zarrs();
  const objects = objectsOf(folder, "/bucket/data");
  try {
    for (const chunk of ["a.zarr/id/2", "a.zarr/input_ids/7.0"]) {
      objects.delete(`/bucket/data/${chunk}`);
      remove(join(folder, chunk));
    }
    assert.deepEqual(await indexOf("/bucket/data", objects), await indexOf(folder, posix));
    assert.deepEqual(await recordsOf("/bucket/data", objects), await recordsOf(folder, posix));
    const report = await verify("/bucket/data", { storage: objects, strictChunks: true });
    assert.equal(report.missingChunks, 2);
    assert.deepEqual(
      report.problems.map(({ code }) => code),
      ["ATH_CHUNK_MISSING"],
    );
    const options = { seed: 9n, globalBatch: 50, shuffle: "none" } as const;
    assert.deepEqual(await delivered("/bucket/data", options, objects), await delivered(folder, options));
  } finally {
    remove(folder);
    await posix.close();
  }
});

test("an object replaced by one of the same size within the same second is another one", async () => {
  const folder = zarrs();
  const objects = objectsOf(folder, "/bucket/data");
  try {
    const key = "/bucket/data/a.zarr/id/0";
    const other = Uint8Array.from(readFileSync(join(folder, "a.zarr/id/0")), (byte) => byte ^ 1);
    const replaced = Rig.open(
      "/bucket/data",
      { seed: 9n, globalBatch: 50, shuffle: "none" },
      {
        batch: 50,
        world: 1,
        storage: objects,
        indexed: () => objects.put(key, other),
      },
    );
    const rig = await replaced;
    try {
      await assert.rejects(rig.client({ rank: 0 }).batch(0), { code: "ATH_SHARD_CHANGED" });
    } finally {
      await rig.close();
    }
  } finally {
    remove(folder);
  }
});

test("a chunk put back with an older time and the same size is read anew: its index was taken for current", async () => {
  const storage = createPosixStorage();
  const folder = zarrs();
  try {
    const read: string[] = [];
    const build = (): Promise<DatasetIndex> => buildIndex(folder, { storage, onRead: (path) => read.push(path) });
    await build();
    const file = join(folder, "a.zarr/id/0");
    writeFileSync(
      file,
      Uint8Array.from(readFileSync(file), (byte) => byte ^ 1),
    );
    utimesSync(file, 1_600_000_000, 1_600_000_000);
    await build();
    await build();
    assert.deepEqual(read, ["a.zarr", "a.zarr"]);
  } finally {
    remove(folder);
    await storage.close();
  }
});
