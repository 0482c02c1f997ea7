import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { MemoryBudget } from "../../src/feed/errors.ts";
import { GroupMemory, MemoryPool, RawArena, RowPool } from "../../src/feed/memory.ts";

test("raw arena: live pieces never overlap, and all of it is free again at the end", () => {
  const step = fc.record({ size: fc.integer({ min: 1, max: 5000 }), keep: fc.boolean(), pick: fc.nat() });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 200 }), (steps) => {
      const arena = new RawArena(4096, 4096 + 64 * 1024);
      const live: { at: number; size: number }[] = [];
      for (const { size, keep, pick } of steps) {
        const at = arena.alloc(size);
        if (at !== 0) {
          assert.ok(at >= 4096 && at + size <= 4096 + 64 * 1024 && at % 64 === 0);
          for (const other of live) assert.ok(at + size <= other.at || other.at + other.size <= at);
          live.push({ at, size });
        }
        if (!keep && live.length > 0) arena.release((live.splice(pick % live.length, 1)[0] as { at: number }).at);
      }
      for (const { at } of live) arena.release(at);
      assert.equal(arena.used, 0);
      assert.equal(arena.alloc(64 * 1024), 4096, "free pieces are joined again");
    }),
  );
});

test("raw arena: a piece is released once", () => {
  const arena = new RawArena(0, 4096);
  const at = arena.alloc(100) || arena.alloc(100);
  arena.release(at);
  assert.throws(() => arena.release(at), /not allocated/);
});

test("row pool: hands out every row once and says when it is empty", () => {
  const pool = new RowPool(6400, 64, 3);
  const rows = [pool.alloc(), pool.alloc(), pool.alloc()];
  assert.deepEqual(rows, [6400, 6464, 6528]);
  assert.equal(pool.alloc(), 0);
  pool.release(6464);
  assert.equal(pool.available, 1);
  assert.equal(pool.used, 2);
  assert.equal(pool.alloc(), 6464);
});

test("group memory: more than 4 GiB is refused with a remedy", () => {
  assert.throws(
    () => new GroupMemory(new MemoryPool(), 2112, 3_000_000, 1 << 27),
    (error: Error) => {
      assert.ok(error instanceof MemoryBudget);
      assert.match(error.message, /shuffle_memory/);
      return true;
    },
  );
});

test("memory pool: what was released is used again, for similar sizes", () => {
  const pool = new MemoryPool();
  const first = pool.acquire(3 << 20);
  const second = pool.acquire(3 << 20);
  assert.notEqual(first, second);
  pool.release(first);
  assert.equal(pool.acquire(4 << 20), first);
  assert.ok(pool.acquire((4 << 20) + 1).memory.buffer.byteLength > 4 << 20);
  for (const kernels of [first, second]) pool.release(kernels);
  assert.equal(pool.acquire(3 << 20), second, "the last one used has its pages");
});

test("loaders that come and go leave no memory behind: as many are kept as were open at a time", () => {
  const pool = new MemoryPool();
  const seen = new Set<unknown>();
  for (let round = 0; round < 20; round++) {
    const open = [1, 2, 3, 1, 3].map((size) => pool.acquire(size * 1_000_000));
    assert.equal(new Set(open).size, open.length);
    for (const memory of open) seen.add(memory);
    for (const memory of open.sort(() => (round % 2) - 0.5)) pool.release(memory);
  }
  assert.equal(seen.size, 5);
});
