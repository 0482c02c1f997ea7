import assert from "node:assert/strict";
import { test } from "node:test";
import { canonicalJson, valueJson } from "../../src/base/json.ts";

test("canonical JSON: the examples of RFC 8785", () => {
  const value = {
    numbers: [Number("333333333.33333329"), 1e30, 4.5, 2e-3, 0.000000000000000000000000001, -0],
    string: "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"/",
    literals: [null, true, false],
  };
  assert.equal(
    canonicalJson(value),
    '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27,0],' +
      '"string":"\u20ac$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}',
  );
  // §3.2.3: names in the order of their UTF-16 units.
  const names = { "\u20ac": 1, "\r": 2, "\ufb33": 3, "1": 4, "\ud83d\ude00": 5, "\u0080": 6, "\u00f6": 7 };
  assert.equal(canonicalJson(names), '{"\\r":2,"1":4,"\u0080":6,"\u00f6":7,"\u20ac":1,"\ud83d\ude00":5,"\ufb33":3}');
});

test("canonical JSON refuses what JSON cannot hold", () => {
  for (const bad of [Number.NaN, Number.POSITIVE_INFINITY, "\ud800"])
    assert.throws(() => canonicalJson([bad]), TypeError);
});

test("values keep integers, bytes and odd floats exactly", () => {
  const record = {
    ids: [1n, -9007199254740991n, 9007199254740992n, -9223372036854775808n],
    w: [0.25, Number.NaN, Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY],
    t: [Buffer.from("abc"), new Uint8Array()],
    none: null,
    nested: { text: "\u2028" },
  };
  assert.deepEqual(JSON.parse(valueJson(record)), {
    ids: [1, -9007199254740991, "9007199254740992", "-9223372036854775808"],
    w: [0.25, { float: "NaN" }, { float: "-Infinity" }, { float: "Infinity" }],
    t: [{ b64: "YWJj" }, { b64: "" }],
    none: null,
    nested: { text: "\u2028" },
  });
});
