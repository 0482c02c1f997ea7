import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { mostPieces, packRecords, type PackedRows } from "../../src/dataset/pack.ts";

type Piece = [record: number, token: number, length: number];

function piecesOf({ start, record, token, length }: PackedRows, row: number): Piece[] {
  const pieces: Piece[] = [];
  for (let p = start[row]!; p < start[row + 1]!; p++) pieces.push([record[p]!, token[p]!, length[p]!]);
  return pieces;
}

function rowsOf(packed: PackedRows): Piece[][] {
  return Array.from({ length: packed.rows }, (_, row) => piecesOf(packed, row));
}

/** The rule in the words of docs/reference/formats.md, in quadratic time. */
function naive(counts: readonly number[], maxLength: number): Piece[][] {
  const pieces = counts.flatMap((count, record) =>
    Array.from({ length: Math.ceil(count / maxLength) }, (_, i): Piece => [
      record,
      i * maxLength,
      Math.min(maxLength, count - i * maxLength),
    ]),
  );
  const rows: { room: number; since: number; pieces: Piece[] }[] = [];
  let time = 0;
  for (const piece of pieces.toSorted((a, b) => b[2] - a[2])) {
    const fitting = rows.filter(({ room }) => room >= piece[2]);
    let row = fitting.toSorted((a, b) => a.room - b.room || a.since - b.since)[0];
    if (row === undefined) rows.push((row = { room: maxLength, since: 0, pieces: [] }));
    row.pieces.push(piece);
    row.room -= piece[2];
    row.since = time++;
  }
  const inFile = (a: Piece, b: Piece): number => a[0] - b[0] || a[1] - b[1];
  return rows.map((row) => row.pieces.toSorted(inFile)).toSorted((a, b) => inFile(a[0]!, b[0]!));
}

/** Rows of next-fit: a piece that does not fit the last row begins another. */
function nextFit(counts: readonly number[], maxLength: number): number {
  let rows = 0;
  let room = 0;
  for (const count of counts) {
    for (let left = count; left > 0; left -= maxLength) {
      const tokens = Math.min(left, maxLength);
      if (tokens > room) {
        rows++;
        room = maxLength;
      }
      room -= tokens;
    }
  }
  return rows;
}

const blocks = fc.record({
  counts: fc.array(fc.oneof(fc.nat(12), fc.nat(200)), { maxLength: 60 }),
  maxLength: fc.integer({ min: 1, max: 64 }),
});

test("packed rows are those of the rule in words", () => {
  fc.assert(
    fc.property(blocks, ({ counts, maxLength }) => {
      const packed = packRecords(Uint32Array.from(counts), "pack", maxLength);
      assert.deepEqual(rowsOf(packed), naive(counts, maxLength));
    }),
  );
});

test("every token is in one row, of either rule, and no row is too long", () => {
  fc.assert(
    fc.property(blocks, fc.constantFrom("split", "pack"), ({ counts, maxLength }, rule) => {
      const packed = packRecords(Uint32Array.from(counts), rule, maxLength);
      const seen = counts.map((count) => new Uint8Array(count));
      for (const row of rowsOf(packed)) {
        assert.ok(row.reduce((sum, [, , length]) => sum + length, 0) <= maxLength);
        for (const [record, token, length] of row) {
          for (let i = token; i < token + length; i++) seen[record]![i]!++;
        }
      }
      assert.ok(seen.every((record) => record.every((times) => times === 1)));
    }),
  );
});

test("split rows are one piece each, in file order; a record without tokens is an empty one", () => {
  const { rows, start, record, token, length } = packRecords(Uint32Array.of(5, 0, 4), "split", 4);
  assert.equal(rows, 4);
  assert.deepEqual([...start], [0, 1, 2, 3, 4]);
  assert.deepEqual([...record], [0, 0, 1, 2]);
  assert.deepEqual([...token], [0, 4, 0, 0]);
  assert.deepEqual([...length], [4, 1, 0, 4]);
});

test("all packed rows but one are more than half full", () => {
  fc.assert(
    fc.property(blocks, ({ counts, maxLength }) => {
      const lengths = rowsOf(packRecords(Uint32Array.from(counts), "pack", maxLength)).map((row) =>
        row.reduce((sum, [, , length]) => sum + length, 0),
      );
      assert.ok(lengths.filter((length) => length * 2 <= maxLength).length <= 1);
    }),
  );
});

test("documents as the web has them fill rows better than next-fit does", () => {
  let seed = 7;
  const chance = (): number => (seed = (seed * 48271) % 2147483647) / 2147483647;
  const draw = (): number =>
    Math.round(Math.exp(6 + 1.3 * Math.sqrt(-2 * Math.log(chance())) * Math.cos(6.283 * chance())));
  for (const maxLength of [512, 4096, 32768]) {
    const counts = Array.from({ length: 1500 }, draw);
    const { rows, ...packed } = packRecords(Uint32Array.from(counts), "pack", maxLength);
    const tokens = counts.reduce((sum, count) => sum + count, 0);
    assert.ok(rows <= nextFit(counts, maxLength), `${rows} rows, next-fit ${nextFit(counts, maxLength)}`);
    assert.ok(tokens / (rows * maxLength) > 0.97, `${tokens / (rows * maxLength)} full`);
    assert.ok(mostPieces({ rows, ...packed }) > 1);
  }
});

test("a block of no tokens, and of many records of one token", () => {
  assert.equal(packRecords(new Uint32Array(3), "pack", 8).rows, 0);
  assert.equal(packRecords(new Uint32Array(0), "split", 8).rows, 0);
  const many = packRecords(new Uint32Array(200_000).fill(1), "pack", 4096);
  assert.equal(many.rows, Math.ceil(200_000 / 4096));
  assert.equal(mostPieces(many), 4096);
});
