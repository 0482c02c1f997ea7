// Long lists beside a block of another format that holds the workbench.
import assert from "node:assert/strict";
import { test } from "node:test";
import { jsonl } from "../../../src/formats/jsonl/format.ts";
import { workbench } from "../../../src/kernels/workbench.ts";
import { rowOf, scanShard, shardOf } from "../blocks.ts";

test("a long list writes nothing behind the workbench's output while others hold nearly all of it", async () => {
  const bench = workbench();
  // Numbers of one digit: as many integers as a piece can hold.
  const ids = Array.from({ length: 20_000 }, (_, i) => i % 9);
  const file = shardOf("a.jsonl", Buffer.from(`${JSON.stringify({ ids })}\n`));
  for (const left of [0, 1, 2000, 2048, 2049, 5000]) {
    const end = bench.output + bench.room;
    const { release } = bench.lend(() => bench.takeInts(bench.room / 4 - left));
    try {
      assert.equal(bench.room, left * 4);
      const behind = new Uint8Array(bench.kernels.memory.buffer, end);
      const before = behind.fill(0xa5).slice();
      const { blocks } = await scanShard(jsonl, file);
      assert.deepEqual(rowOf(blocks[0]!.columns.fields.get("ids"), 0)?.map(Number), ids, `${left} left`);
      assert.deepEqual(behind, before, `${left} left`);
    } finally {
      release!();
    }
  }
});
