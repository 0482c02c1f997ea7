import assert from "node:assert/strict";
import { test } from "node:test";
import { figure, table } from "../../src/bench/table.ts";

test("the first column is left-aligned, the others right-aligned, no blanks at line ends", () => {
  assert.equal(
    table([
      ["loader", "samples/s", "AU"],
      ["memmap", "69 344", "65.0"],
      ["athanor window", "9", ""],
    ]),
    ["loader          samples/s    AU", "memmap             69 344  65.0", "athanor window          9"].join("\n"),
  );
  assert.equal(table([]), "");
});

test("figures carry three digits", () => {
  assert.deepEqual([0.00266, 0.1234, 12.34, 123.4, 69344.2, 0, Number.NaN].map(figure), [
    "0.0027",
    "0.12",
    "12.3",
    "123",
    "69 344",
    "0.00",
    "-",
  ]);
});
