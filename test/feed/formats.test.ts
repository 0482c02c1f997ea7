// What column formats ask of the feed that TFRecord never did: blocks of several segments, and segments that blocks share.
import assert from "node:assert/strict";
import { mkdtempSync, renameSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import type { OrderOptions } from "../../src/order/types.ts";
import { Rig, remove } from "./rig.ts";
import { writeZarr } from "./zarr-folder.ts";

/** Ids of one epoch on one rank, each batch checked against the order. */
async function readEpoch(folder: string, options: OrderOptions, batch: number): Promise<number[]> {
  const rig = await Rig.open(folder, options, { batch, world: 1 });
  try {
    const client = rig.client({ rank: 0 });
    const ids: number[] = [];
    for (let step = 0; step < Math.ceil(rig.order.sources[0]!.samples / batch); step++) {
      const { ids: own, valid } = await client.batch(step, 120_000);
      ids.push(...own.filter((_, i) => valid[i] !== false));
    }
    return ids;
  } finally {
    await rig.close();
  }
}

test("a set held in memory whose blocks begin with a small segment: one read does not take the whole shard", async () => {
  const rows = 12 * 1024;
  const folder = writeZarr(rows, [
    { name: "id", type: "<i4", chunkRows: 1024 },
    { name: "input_ids", type: "<i4", width: 1024, chunkRows: 1024 },
  ]);
  try {
    const ids = await readEpoch(folder, { seed: 5n, globalBatch: 64 }, 64);
    assert.deepEqual(
      ids.sort((a, b) => a - b),
      Array.from({ length: rows }, (_, i) => i),
    );
  } finally {
    remove(folder);
  }
});

test("an evaluation over blocks that share a chunk: reads of several of them are larger than the shard", async () => {
  const rows = 4 * 65536;
  const folder = writeZarr(rows, [
    { name: "id", type: "<i8", chunkRows: rows, gzip: 0 },
    { name: "input_ids", type: "<i4", width: 2, chunkRows: 65536, gzip: 9 },
  ]);
  try {
    for (const shuffle of ["none", "window"] as const) {
      const ids = await readEpoch(folder, { seed: 5n, globalBatch: 4096, shuffle, last: "pad" }, 4096);
      assert.equal(new Set(ids).size, rows);
    }
  } finally {
    remove(folder);
  }
});

test("an HDF5 file that is replaced while it is open: rows of the other file", async () => {
  const h5 = await import("h5wasm/node");
  await h5.ready;
  const folder = mkdtempSync(join(tmpdir(), "athanor-feed-h5-"));
  const other = mkdtempSync(join(tmpdir(), "athanor-feed-h5-"));
  const rows = 200;
  const write = (path: string, first: number): void => {
    const ids = Int32Array.from({ length: rows }, (_, i) => first + i);
    const file = new h5.File(path, "w");
    file.create_dataset({ name: "id", data: ids, shape: [rows] });
    file.create_dataset({ name: "input_ids", data: new Int32Array(rows * 4), shape: [rows, 4] });
    file.close();
  };
  const options = { seed: 5n, globalBatch: 20, shuffle: "none" } as const;
  try {
    for (const when of ["before it is read again", "between check and read"]) {
      write(join(folder, "a.h5"), 0);
      write(join(other, "a.h5"), 1000);
      // Two files written within one tick of the clock have one time, and nothing then tells them apart.
      utimesSync(join(other, "a.h5"), 1, 1);
      const replace = (): void => renameSync(join(other, "a.h5"), join(folder, "a.h5"));
      const rig = await Rig.open(folder, options, { batch: 20, world: 1 });
      try {
        const check = rig.source.check.bind(rig.source);
        if (when === "before it is read again") {
          await check(0);
          replace();
        } else {
          rig.source.check = async (shard) => {
            rig.source.check = check; // once: two reads may check at a time
            await check(shard);
            replace();
          };
        }
        await assert.rejects(rig.client({ rank: 0 }).batch(0, 60_000), { code: "ATH_SHARD_CHANGED" }, when);
      } finally {
        await rig.close();
      }
    }
  } finally {
    remove(folder);
    remove(other);
  }
});

test("Zarr chunks that are written anew under their sizes, in place or under the name of the old ones", async () => {
  const rows = 2000;
  const plain = [
    { name: "id", type: "<i4", chunkRows: 100 } as const,
    { name: "input_ids", type: "<i4", width: 4, chunkRows: 100 } as const,
  ];
  for (const how of ["in place", "renamed"] as const) {
    for (const when of ["before the first read", "while it is open"] as const) {
      const folder = writeZarr(rows, plain);
      const options = { seed: 5n, globalBatch: 20, shuffle: "none", shuffleMemory: 1 } as const;
      const change = (): void => {
        for (let chunk = 0; chunk < rows / 100; chunk++) {
          const path = join(folder, "a.zarr", "id", `${chunk}`);
          const bytes = new Uint8Array(Int32Array.from({ length: 100 }, () => -1).buffer);
          writeFileSync(how === "renamed" ? `${path}.new` : path, bytes);
          if (how === "renamed") renameSync(`${path}.new`, path);
        }
      };
      const rig = await Rig.open(folder, options, { batch: 20, world: 1 });
      try {
        const client = rig.client({ rank: 0 });
        if (when === "while it is open") await client.batch(0, 60_000);
        change();
        let refused: unknown;
        const ids: number[] = [];
        for (let step = 0; step < rows / 20 && refused === undefined; step++) {
          await client.batch(step, 60_000).then(
            (batch) => ids.push(...batch.ids),
            (error: unknown) => (refused = error),
          );
        }
        assert.ok(
          ids.every((id, i) => id === i),
          "rows of the other chunks",
        );
        // A file that another took the name of goes on as it was (its descriptor holds the old bytes, decision 0012), and
        // what was read ahead of the change is right.
        const whole = refused === undefined && ids.length === rows;
        if (how === "in place" && when === "before the first read") assert.ok(!whole);
        if (!whole) assert.equal((refused as { code?: string } | undefined)?.code, "ATH_SHARD_CHANGED");
      } finally {
        await rig.close();
        remove(folder);
      }
    }
  }
});
