// Names of error numbers that Node knows, and of those that it does not.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { errnoName } from "../../src/base/errno.ts";

test("a number that Node has no name for has one", () => {
  const unknown = (errno: number): Error =>
    Object.assign(new Error("x"), { errno, code: `Unknown system error ${errno}` });
  assert.equal(errnoName(unknown(-122)), "EDQUOT");
  assert.equal(errnoName(unknown(-116)), "ESTALE");
  assert.equal(errnoName(unknown(-9999)), "error 9999");
  assert.equal(errnoName(Object.assign(new Error("of writeSync"), { errno: -122, code: "UNKNOWN" })), "EDQUOT");
  assert.throws(
    () => readFileSync("/no/such/file"),
    (error) => errnoName(error) === "ENOENT",
  );
  assert.equal(errnoName(new Error("ours")), undefined);
});
