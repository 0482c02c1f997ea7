import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { blockOf, spanOf } from "../../src/feed/spans.ts";
import type { BlockTable } from "../../src/formats/types.ts";

/** A table of one shard whose records have these sizes, with a block border after each record named in `borders`. */
function tableOf(sizes: number[], borders: Set<number>): { table: BlockTable; starts: number[] } {
  const starts = [0];
  for (const size of sizes) starts.push((starts[starts.length - 1] as number) + size);
  const firstRecord = [0];
  const restarts: number[] = [];
  const restartStart = [0];
  const segmentOffset: number[] = [];
  const segmentLength: number[] = [];
  let begin = 0;
  for (let record = 1; record <= sizes.length; record++) {
    if (record < sizes.length && !borders.has(record)) continue;
    segmentOffset.push(starts[begin] as number);
    segmentLength.push((starts[record] as number) - (starts[begin] as number));
    for (let at = begin; at < record; at += 64) restarts.push((starts[at] as number) - (starts[begin] as number));
    restartStart.push(restarts.length);
    firstRecord.push(record);
    begin = record;
  }
  const blocks = segmentOffset.length;
  return {
    starts,
    table: {
      stream: false,
      blocks,
      firstRecord: Float64Array.from(firstRecord),
      tokens: new Float64Array(blocks),
      segmentStart: Uint32Array.from({ length: blocks + 1 }, (_, i) => i),
      segmentFile: new Uint32Array(blocks),
      segmentOffset: Float64Array.from(segmentOffset),
      segmentLength: Float64Array.from(segmentLength),
      segmentField: new Uint32Array(blocks),
      restartStart: Uint32Array.from(restartStart),
      restarts: Uint32Array.from(restarts),
    },
  };
}

test("a span holds the records asked for, begins and ends at records, and is at most 126 records larger", () => {
  const arbitrary = fc.record({
    sizes: fc.array(fc.integer({ min: 16, max: 90 }), { minLength: 1, maxLength: 400 }),
    borders: fc.uniqueArray(fc.integer({ min: 1, max: 399 }), { maxLength: 6 }),
    a: fc.nat(),
    b: fc.nat(),
  });
  fc.assert(
    fc.property(arbitrary, ({ sizes, borders, a, b }) => {
      const { table, starts } = tableOf(sizes, new Set(borders));
      const record = a % sizes.length;
      const block = blockOf(table, record);
      const first = table.firstRecord[block] as number;
      const end = table.firstRecord[block + 1] as number;
      assert.ok(first <= record && record < end);
      const to = record + 1 + (b % (end - record));
      const span = spanOf(table, block, record, to);
      assert.ok(span.firstRecord <= record && span.firstRecord + span.records >= to);
      assert.equal(span.pieces[0]?.offset, starts[span.firstRecord]);
      assert.equal(span.pieces[0]!.offset + span.length, starts[span.firstRecord + span.records]);
      assert.ok(span.records <= to - record + 126);
    }),
  );
});
