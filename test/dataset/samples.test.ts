import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout } from "node:timers/promises";
import { buildIndex } from "../../src/dataset/index-build.ts";
import { sampleIndex } from "../../src/dataset/samples.ts";
import { createPosixStorage } from "../../src/storage/posix.ts";
import type { Storage } from "../../src/storage/types.ts";

/** A Megatron pair of one-byte tokens in documents of these lengths. */
function writePair(folder: string, lengths: readonly number[]): void {
  const idx = new DataView(new ArrayBuffer(34 + lengths.length * 20 + 8));
  new Uint8Array(idx.buffer).set(new TextEncoder().encode("MMIDIDX\0\0"));
  idx.setBigUint64(9, 1n, true);
  idx.setUint8(17, 1);
  idx.setBigUint64(18, BigInt(lengths.length), true);
  idx.setBigUint64(26, BigInt(lengths.length + 1), true);
  let pointer = 0;
  for (const [i, length] of lengths.entries()) {
    idx.setInt32(34 + i * 4, length, true);
    idx.setBigInt64(34 + lengths.length * 4 + i * 8, BigInt(pointer), true);
    idx.setBigInt64(34 + lengths.length * 12 + (i + 1) * 8, BigInt(i + 1), true);
    pointer += length;
  }
  writeFileSync(join(folder, "a.idx"), new Uint8Array(idx.buffer));
  writeFileSync(join(folder, "a.bin"), new Uint8Array(pointer));
}

test("a block of tokens whose borders cannot be read, after it was forgotten, ended the process", async () => {
  const folder = mkdtempSync(join(tmpdir(), "athanor-samples-"));
  const storage = createPosixStorage();
  let opens = Number.NEGATIVE_INFINITY;
  const failing = Object.create(storage, {
    open: {
      value: async (...of: Parameters<Storage["open"]>) => {
        if (opens++ < 1) return storage.open(...of);
        await setTimeout(300);
        throw new Error("the .idx is gone");
      },
    },
  }) as Storage;
  try {
    writePair(folder, [5 << 20, 5 << 20]);
    const index = await buildIndex(folder, { storage, write: false });
    // Samples of one token: a block has more of them than are kept.
    const samples = await sampleIndex(index, "stream", 1, failing);
    opens = 0;
    const [first, ...others] = await Promise.allSettled([0, 1, 2].map((block) => samples.cut!.of(0, block)));
    assert.equal(first!.status === "fulfilled" && first!.value.length.length, 4 << 20);
    for (const other of others) assert.match(String((other as PromiseRejectedResult).reason), /is gone/);
    opens = Number.NEGATIVE_INFINITY;
    assert.equal((await samples.cut!.of(0, 2)).length.length, 2 << 20, "what failed is asked for again");
  } finally {
    await storage.close();
    rmSync(folder, { recursive: true, force: true });
  }
});
