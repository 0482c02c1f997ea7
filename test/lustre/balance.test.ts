// How a set lies over OSTs, and what to move.
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { balanceOf, isWorthIt, movesOf } from "../../src/lustre/balance.ts";
import type { PlacedFile } from "../../src/lustre/balance.ts";
import { decodeLov } from "../../src/lustre/lov.ts";
import { plainLov } from "./replay.ts";

const any = (...osts: number[]): Map<number, number> => new Map(osts.map((ost) => [ost, Infinity]));

/** `size` in MiB. */
const file = (path: string, size: number, ...osts: number[]): PlacedFile => ({
  path,
  size: size * 2 ** 20,
  layout: decodeLov(plainLov(osts), path),
});

test("after an expansion the old OSTs hold all: files go to the new ones until it is even", () => {
  const files = Array.from({ length: 40 }, (_, i) => file(`f${i}`, 100, i % 2));
  const targets = [0, 1, 2, 3];
  const balance = balanceOf(files, targets);
  assert.deepEqual([balance.parallel, balance.possible], [2, 4]);
  const moves = movesOf(files, balance, any(...targets));
  assert.equal(moves.length, 20);
  assert.ok(moves.every(({ from, to }) => from < 2 && to >= 2));
});

test("no move to an OST that takes none, of a file over several OSTs, or for a small gain", () => {
  const files = [file("a", 100, 0), file("b", 100, 0), file("wide", 100, 0, 1)];
  assert.ok(
    movesOf(files, balanceOf(files, [0, 1, 2]), any(0, 2)).every(({ to, path }) => to === 2 && path !== "wide"),
  );
  assert.deepEqual(movesOf(files, balanceOf(files, [0, 1, 2]), any()), []);
  const even = [file("a", 110, 0), file("b", 100, 1)];
  assert.deepEqual(movesOf(even, balanceOf(even, [0, 1]), any(0, 1)), []);
});

test("an OST takes no more than it has room for", () => {
  const files = Array.from({ length: 12 }, (_, i) => file(`f${i}`, 100, 0));
  const moves = movesOf(
    files,
    balanceOf(files, [0, 1, 2]),
    new Map([
      [1, 250 * 2 ** 20],
      [2, Infinity],
    ]),
  );
  assert.equal(moves.filter(({ to }) => to === 1).length, 2);
  assert.ok(moves.filter(({ to }) => to === 2).length > 2);
});

test("one file cannot lie more evenly than it does", () => {
  const files = [file("a", 1000, 3)];
  const balance = balanceOf(files, [0, 1, 2, 3]);
  assert.deepEqual([balance.parallel, balance.possible], [1, 1]);
});

test("files stay whole: six equal ones on four OSTs lie evenly two, two, one and one", () => {
  const files = [0, 0, 1, 2, 3, 3].map((ost, i) => file(`f${i}`, 64, ost));
  const balance = balanceOf(files, [0, 1, 2, 3]);
  assert.deepEqual([balance.parallel, balance.possible], [3, 3]);
  assert.equal(isWorthIt(balance), false);
});

test("moves only make the fullest OST emptier, and end", () => {
  const placed = fc.array(fc.tuple(fc.nat(5), fc.integer({ min: 0, max: 1000 })), { maxLength: 60 });
  fc.assert(
    fc.property(placed, (list) => {
      const files = list.map(([ost, size], i) => file(`f${i}`, size, ost));
      const targets = [0, 1, 2, 3, 4, 5];
      const before = balanceOf(files, targets);
      const moves = movesOf(files, before, any(...targets));
      const to = new Map(moves.map((move) => [move.path, move.to]));
      const after = balanceOf(
        files.map((one) => file(one.path, one.size / 2 ** 20, to.get(one.path) ?? one.layout.components[0]!.osts[0]!)),
        targets,
      );
      assert.ok(after.parallel >= before.parallel);
      assert.ok(moves.length < 500);
      assert.equal(
        after.osts.reduce((sum, { bytes }) => sum + bytes, 0),
        before.osts.reduce((sum, { bytes }) => sum + bytes, 0),
      );
    }),
  );
});
