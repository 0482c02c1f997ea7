// Samples cut out of tokens, against a plain loop over the tokens.
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { CutTable, documentSamples, streamSamples } from "../../src/dataset/cut.ts";
import { blockBorders } from "../../src/formats/tokens.ts";
import { BLOCK_BYTES, RESTART_EVERY, type BlockSamples, type TokenPlace } from "../../src/formats/types.ts";

interface Sample {
  record: number;
  token: number;
  start: number;
  length: number;
}

/** All samples of documents of these lengths; a stream knows no borders. */
function samplesOf(lengths: readonly number[], maxLength: number, stream: boolean): Sample[] {
  const samples: Sample[] = [];
  const tokens = lengths.reduce((sum, length) => sum + length, 0);
  let begin = 0;
  for (const [record, length] of lengths.entries()) {
    const begins = (at: number): boolean => (stream ? at % maxLength === 0 : (at - begin) % maxLength === 0);
    for (let at = begin; at < begin + length; at++) {
      if (!begins(at)) continue;
      const end = stream ? tokens : begin + length;
      samples.push({ record, token: at - begin, start: at, length: Math.min(maxLength, end - at) });
    }
    begin += length;
  }
  return samples;
}

/** Some tokens, so that blocks can be looked at: the shard begins close before a border of blocks. */
const shards = fc.record({
  lengths: fc.array(fc.oneof(fc.nat(5), fc.nat(400)), { maxLength: 40 }),
  itemBytes: fc.constantFrom(1, 2, 4, 8),
  before: fc.nat(3000),
  maxLength: fc.integer({ min: 1, max: 90 }),
  stream: fc.boolean(),
});

test("tables, restarts and identities are those of a loop over all tokens", () => {
  fc.assert(
    fc.property(shards, ({ lengths, itemBytes, before, maxLength, stream }) => {
      const tokens = lengths.reduce((sum, length) => sum + length, 0);
      const place: TokenPlace = { offset: BLOCK_BYTES - before, itemBytes, tokens };
      const expected = samplesOf(lengths, maxLength, stream);
      const borders = blockBorders(place);
      const documents = [0, ...lengths];
      for (let i = 1; i < documents.length; i++) documents[i]! += documents[i - 1]!;
      const cut = new CutTable(place, maxLength);
      if (stream) cut.add(0, tokens);
      else for (let i = 0; i < lengths.length; i++) cut.add(documents[i]!, documents[i + 1]!);
      const table = cut.finish();
      assert.equal(table.blocks, borders.length - 1);
      for (let block = 0; block < table.blocks; block++) {
        const [from, to] = [borders[block]!, borders[block + 1]!];
        const own = expected.filter(({ start }) => start >= from && start < to);
        const first = table.firstRecord[block]!;
        assert.equal(table.firstRecord[block + 1]! - first, own.length);
        assert.deepEqual(expected.slice(first, first + own.length), own);
        const bytes = own.reduce((sum, { length }) => sum + length, 0) * itemBytes;
        assert.equal(table.segmentLength[block], bytes);
        if (own.length > 0) assert.equal(table.segmentOffset[block], place.offset + own[0]!.start * itemBytes);
        const restarts = table.restarts.subarray(table.restartStart[block], table.restartStart[block + 1]);
        assert.deepEqual(
          [...restarts],
          own.filter((_, i) => i % RESTART_EVERY === 0).map(({ start }) => (start - own[0]!.start) * itemBytes),
        );
        // The documents that hold its tokens, as the shard's own table names them.
        const begun = (token: number): number => documents.slice(0, -1).filter((start) => start < token).length;
        const firstDocument = block === 0 ? 0 : Math.max(begun(from) - 1, 0);
        const behind = block === table.blocks - 1 ? lengths.length : begun(to);
        const given = { first: firstDocument, borders: Float64Array.from(documents.slice(firstDocument, behind + 1)) };
        const found = stream
          ? streamSamples(place, maxLength, from, to, given)
          : documentSamples(maxLength, from, to, given);
        assert.deepEqual(
          listed(found),
          own.map(({ record, token, length }) => [record, token, length]),
        );
        if (!stream) continue;
        const plain = streamSamples(place, maxLength, from, to);
        assert.deepEqual(
          listed(plain),
          own.map(({ start, length }) => [start, 0, length]),
        );
      }
    }),
    { numRuns: 400 },
  );
});

function listed({ record, token, length }: BlockSamples): number[][] {
  return Array.from(record, (number, i) => [number, token[i]!, length[i]!]);
}

test("samples longer than a block: blocks in which none begins", () => {
  const cut = new CutTable({ offset: 128, itemBytes: 2, tokens: (9 * 2 ** 20) / 2 }, 3 * 2 ** 20);
  cut.add(0, (9 * 2 ** 20) / 2);
  const { firstRecord, segmentLength } = cut.finish();
  assert.deepEqual([...firstRecord], [0, 1, 2, 2]);
  assert.deepEqual([...segmentLength], [6 * 2 ** 20, 3 * 2 ** 20, 0]);
});
