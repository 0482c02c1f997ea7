import assert from "node:assert/strict";
import { test } from "node:test";
import { visible } from "../../src/base/visible.ts";

test("control characters are shown, lines and tabs kept, JSON the same", () => {
  assert.equal(visible("a\u001b[31mb\r\u007f\u009bc\0"), "a\\u001b[31mb\\u000d\\u007f\\u009bc\\u0000");
  assert.equal(visible("one\n\ttwo ü \u{1f525} \u00a0"), "one\n\ttwo ü \u{1f525} \u00a0");
  const value = { name: "\u009b\u007f\u001b\n" };
  assert.deepEqual(JSON.parse(visible(JSON.stringify(value))), value);
});
