import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { BOUNCE_BYTES, returnBounce, takeBounce } from "../../src/storage/bounce.ts";
import { createPosixStorage } from "../../src/storage/posix.ts";

test("bounce buffers: as many are made as are in use at a time", () => {
  const seen = new Set<SharedArrayBuffer>();
  for (let round = 0; round < 50; round++) {
    const taken = [1, 5000, 5001, BOUNCE_BYTES].map(takeBounce);
    assert.equal(new Set(taken).size, taken.length);
    for (const bounce of taken) seen.add(bounce);
    for (const bounce of taken) returnBounce(bounce);
  }
  assert.equal(seen.size, 4);
  assert.deepEqual(
    [...seen].map((bounce) => bounce.byteLength).sort((a, b) => a - b),
    [4096, 8192, 8192, BOUNCE_BYTES],
  );
});

test("a read longer than a bounce buffer comes whole", async () => {
  const folder = mkdtempSync(join(tmpdir(), "athanor-bounce-"));
  const storage = createPosixStorage();
  try {
    const bytes = new Uint8Array(BOUNCE_BYTES + 12345).map((_, i) => (i * 7 + (i >>> 13)) & 255);
    writeFileSync(join(folder, "long"), bytes);
    const object = await storage.open(join(folder, "long"));
    const target = new Uint8Array(bytes.length);
    assert.equal(await object.readInto(target, 0), bytes.length);
    assert.equal(Buffer.compare(target, bytes), 0);
    assert.equal(await object.readInto(target.subarray(0, BOUNCE_BYTES + 1), 5000), BOUNCE_BYTES + 1);
    assert.equal(Buffer.compare(target.subarray(0, BOUNCE_BYTES + 1), bytes.subarray(5000, 5001 + BOUNCE_BYTES)), 0);
  } finally {
    await storage.close();
    rmSync(folder, { recursive: true });
  }
});
