// Rows of pieces out of columns whose values were left in the bytes of the block: the same as out of copied ones.
import assert from "node:assert/strict";
import { test } from "node:test";
import { rowsOfPieces } from "../../src/feed/piece-rows.ts";
import { dense } from "../../src/formats/dense.ts";
import type { Column, StoredColumn } from "../../src/formats/types.ts";

test("pieces of lists that lie between others", () => {
  const values = Int32Array.of(9, 9, 1, 2, 3, 9, 4, 9, 9, 5, 6, 9);
  const apart: Column = { kind: "int64", values, starts: Uint32Array.of(2, 6, 9), ends: Uint32Array.of(5, 7, 11) };
  const pieces = {
    firstRecord: 0,
    counts: Uint32Array.of(3, 1, 2),
    restarts: Uint32Array.of(0),
    start: Uint32Array.of(0, 2, 3),
    record: Uint32Array.of(0, 2, 1),
    token: Uint32Array.of(1, 0, 0),
    length: Uint32Array.of(2, 2, 1),
  };
  const stored: StoredColumn = {
    name: "ids",
    feature: "ids",
    storage: "i32",
    maxLength: 4,
    pad: "0",
    rowOffset: 32,
    rowBytes: 16,
  };
  const rows = (column: Column): Column => {
    const block = { fields: new Map([["ids", column]]), faults: new Map() };
    const { fields, faults } = rowsOfPieces(block, pieces, [stored], () => true, "f");
    assert.equal(faults.size, 0);
    return fields.get("ids")!;
  };
  assert.deepEqual([...rows(apart).values], [2, 3, 5, 6, 4]);
  assert.deepEqual([...rows(apart).ends], [4, 5]);
  assert.deepEqual(rows(apart), rows(dense(apart)));
});
