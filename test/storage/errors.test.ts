import assert from "node:assert/strict";
import { test } from "node:test";
import { AthanorError } from "../../src/base/errors.ts";
import { systemError } from "../../src/storage/errors.ts";

test("an errno that Node has no words for has some", () => {
  const causeOf = (code: string, message: string): unknown => {
    const error = systemError({ code, message, path: "/d/a", byteOffset: 0 });
    assert.ok(error instanceof AthanorError);
    return error.cause;
  };
  const message = "Unknown system error -116: Unknown system error -116, read";
  assert.equal(causeOf("ESTALE", message), "ESTALE: stale file handle, read");
  assert.equal(causeOf("EIO", "EIO: i/o error, read"), "EIO: i/o error, read");
});
