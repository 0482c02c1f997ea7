import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { READ_CHUNK, checkpointOf, dealt, groupsOf, levelsOf, piecesOf, runsOf } from "../../src/bench/storage-plan.ts";

test("1, 2, 4 … and the last", () => {
  assert.deepEqual([1, 2, 3, 4, 6].map(levelsOf), [[1], [1, 2], [1, 2, 3], [1, 2, 4], [1, 2, 4, 6]]);
});

test("no more bytes than asked for, at any number of shards that has a MiB each", () => {
  fc.assert(
    fc.property(fc.integer({ min: 32, max: 4096 }), fc.integer({ min: 1, max: 16 }), (mib, shards) => {
      const size = mib * (1 << 20);
      const { shards: files, small, checkpoint, shared } = piecesOf("/d", size, shards);
      const bytes = [...files, ...small, checkpoint, shared].reduce((sum, piece) => sum + piece.bytes, 0);
      assert.ok(bytes <= size && bytes >= size * 0.4, `${bytes} of ${size}`);
    }),
  );
  const { checkpoint, ...pieces } = piecesOf("/d", 1 << 30, 4);
  const files = checkpointOf({ checkpoint, ...pieces }, 3);
  assert.equal(files.length, 3);
  assert.ok(files.reduce((sum, { bytes }) => sum + bytes, 0) <= checkpoint.bytes);
});

test("runs hold each byte once, in order, cut at reads, alike to a read", () => {
  const sizes = fc.array(fc.integer({ min: 1, max: 5 * READ_CHUNK }), { minLength: 1, maxLength: 20 });
  fc.assert(
    fc.property(sizes, fc.integer({ min: 1, max: 8 }), (bytes, processes) => {
      const pieces = bytes.map((each, i) => ({ path: `/${i}`, bytes: each }));
      const runs = runsOf(pieces, processes);
      const spans = runs.flat();
      for (const { path, bytes: whole } of pieces) {
        let end = 0;
        for (const span of spans.filter((each) => each.path === path)) {
          assert.equal(span.offset, end);
          assert.equal(span.offset % READ_CHUNK, 0);
          end += span.length;
        }
        assert.equal(end, whole);
      }
      const all = bytes.reduce((sum, each) => sum + each, 0);
      for (const run of runs)
        assert.ok(run.reduce((sum, { length }) => sum + length, 0) <= all / processes + READ_CHUNK);
    }),
  );
  assert.deepEqual(
    dealt(
      [1, 2, 3].map((i) => ({ path: `/${i}`, bytes: i })),
      2,
    ).map((run) => run.map(({ path }) => path)),
    [["/1"], ["/2", "/3"]],
  );
});

test("what is read was written before in the same group; without writing only what is there is read", () => {
  for (const group of groupsOf([1, 2], ["a", "b"], true)) {
    const [first] = group;
    if (first!.pattern !== "shared" && (first!.pattern !== "shards" || first!.target !== undefined))
      assert.equal(first!.op, "write");
  }
  const read = groupsOf([1], [], false).flat();
  assert.deepEqual(
    read.map(({ pattern, op }) => `${pattern} ${op}`),
    ["shards read", "shared read"],
  );
});
