// Bad records of column formats under a job: what stands in is a function of the bytes, whatever part of a block is read.
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, statSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { Worker } from "node:worker_threads";
import type { OrderOptions } from "../../src/order/types.ts";
import { Rig, remove } from "./rig.ts";

const N = 1000;

/** Record n has id n. */
function writeLines(): string {
  const folder = mkdtempSync(join(tmpdir(), "athanor-feed-lines-"));
  const lines = Array.from({ length: N }, (_, id) => `${JSON.stringify({ id, input_ids: [id, id, id] })}\n`);
  writeFileSync(join(folder, "a.jsonl"), lines.join(""));
  return folder;
}

/** Changes bytes under the same size and mtime. */
function change(path: string, work: (bytes: Buffer) => void): void {
  const { atime, mtime } = statSync(path);
  const bytes = readFileSync(path);
  work(bytes);
  writeFileSync(path, bytes);
  utimesSync(path, atime, mtime);
}

/** The id that each sample of an epoch is served with. */
async function served(folder: string, options: OrderOptions, indexed: () => void): Promise<number[]> {
  const ledger = mkdtempSync(join(tmpdir(), "athanor-feed-ledger-"));
  const rig = await Rig.open(folder, options, { batch: 20, world: 1, ledger, quota: N, indexed });
  try {
    const client = rig.client({ rank: 0 });
    const ids = Array.from({ length: N }, () => -1);
    for (let step = 0; step < N / 20; step++) {
      const batch = await client.batch(step, 120_000);
      batch.positions.forEach((position, i) => (ids[rig.order.sampleAt(position)] = batch.ids[i]!));
    }
    return ids;
  } finally {
    await rig.close();
    remove(ledger);
  }
}

test("lines that damage joins: records behind the next known place are themselves, read in one piece or in small ones", async () => {
  const folder = writeLines();
  const path = join(folder, "a.jsonl");
  const sound = readFileSync(path);
  // Record 100 and 101 become one; bytes of records 300 to 302 are gone, and with them two ends of lines.
  const damage = (): void =>
    change(path, (bytes) => {
      bytes[bytes.indexOf('{"id":101,') - 1] = 0x20;
      bytes.fill(0, bytes.indexOf('{"id":300,') + 5, bytes.indexOf('{"id":302,') + 5);
    });
  const bad = (id: number): boolean => (id >= 100 && id < 128) || (id >= 300 && id < 320);
  const due = Array.from({ length: N }, (_, id) => (!bad(id) ? id : id < 128 ? 128 : 320));
  try {
    for (const options of [
      { seed: 5n, globalBatch: 20 },
      { seed: 5n, globalBatch: 20, shuffle: "none" },
      { seed: 5n, globalBatch: 20, lanes: 3, window: 40 },
      { seed: 5n, globalBatch: 20, shuffle: "global", shuffleMemory: 1 },
    ] as const) {
      change(path, (bytes) => void sound.copy(bytes));
      assert.deepEqual(await served(folder, options, damage), due, "shuffle" in options ? options.shuffle : "window");
    }
  } finally {
    remove(folder);
  }
});

test("a block with bad records is decoded anew by a decode worker, where it and its text held up the agent", async () => {
  const folder = writeLines();
  change(join(folder, "a.jsonl"), () => undefined);
  const surveyed: unknown[] = [];
  const { postMessage } = Worker.prototype;
  Worker.prototype.postMessage = function (this: Worker, message: { type: string }, ...more: []) {
    if (message.type === "survey") surveyed.push(message);
    postMessage.call(this, message, ...more);
  };
  try {
    const damage = (): void =>
      change(
        join(folder, "a.jsonl"),
        (bytes) => void bytes.fill(0, bytes.indexOf('{"id":500,'), bytes.indexOf('{"id":501,') - 1),
      );
    const ids = await served(folder, { seed: 5n, globalBatch: 20, shuffle: "none" }, damage);
    assert.deepEqual(
      ids,
      Array.from({ length: N }, (_, id) => (id === 500 ? 501 : id)),
    );
    assert.equal(surveyed.length, 1);
  } finally {
    Worker.prototype.postMessage = postMessage;
    remove(folder);
  }
});
