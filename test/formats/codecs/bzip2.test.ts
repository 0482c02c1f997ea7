// Bzip2 streams that Python's bz2 has written (base64 below: bz2.compress(data, level)).
import assert from "node:assert/strict";
import { test } from "node:test";
import { bzip2Decompress } from "../../../src/formats/codecs/bzip2.ts";

const EMPTY = "QlpoORdyRThQkAAAAAA=";
const TEXT =
  "QlpoMTFBWSZTWdc4HCcAAG//////////////////////////////////////////////sAD6kIAAAAAAAAAACYAAAAAAAAAABMAAAAAAAAAAAA" +
  "AAAAAAJgJhJgAJgACYAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAESoAJgTAAARgmBMABMmmmBMmBBgATAAAAmTIMABMmQwjAAACZGIYCYj" +
  "TAmBMQaYBMAjRgZGhscHR4fICHoERGSEpMT9EoKSorLC0uLzAxMjM0NXkAAQG5wcnXS6Z2eHp8flxeYGJkZmhqbG5wcnR2eHp8f/xAQUJDREVG" +
  "R0hJSktMTU5PUFFSU1RVVldYWVpbXF1eZmdo4lFrAGtxAAEA0IQgDmGxNze4eBxfQABA5kLo6uzu8EYAAgeRAAgensYAAED4wDgAAgfSR+f4CB" +
  "goOEhYaHiPDExXii4zx+Ty+aNji6Pj5CRkZKTlJWWl5iZmpucnZ6foKGio6SlpqeoqaqrrK2ur7CxsrO0tba3uLm6u7y9vr/AwcLDxMXGx8jJy" +
  "svMzc7P0NHS09TV1tfY2drb3N3e3+Dh4uPk5ebn6Onq6+zt7u/w8fLz/3p6+3v8fLd9Tn/+/z9F3JFOFCQ1zgcJw==";
const RUN = "QlpoMTFBWSZTWWvLKlAAAk4AgIRAAAggADDMBSmnGFEbAojxdyRThQkGvLKlAA==";

function stream(text: string): Uint8Array {
  return new Uint8Array(Buffer.from(text, "base64"));
}

function textOf(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes);
}

const PLAIN = Buffer.concat([
  Buffer.from("athanor ".repeat(40) + "a".repeat(400)),
  Uint8Array.from({ length: 256 }, (_, i) => i),
]);

test("no bytes, text, long runs over several blocks, and streams one behind the other", () => {
  assert.equal(bzip2Decompress(stream(EMPTY), 0).length, 0);
  assert.deepEqual(textOf(bzip2Decompress(stream(TEXT), PLAIN.length)), PLAIN);
  assert.ok(bzip2Decompress(stream(RUN), 300_000).every((byte) => byte === 120));
  const both = Buffer.concat([stream(TEXT), stream(EMPTY), stream(TEXT)]);
  assert.deepEqual(textOf(bzip2Decompress(both, 2 * PLAIN.length)), Buffer.concat([PLAIN, PLAIN]));
});

test("more than was asked for, a cut stream and damage are errors", () => {
  assert.throws(() => bzip2Decompress(stream(TEXT), PLAIN.length - 1), /more than/);
  const whole = stream(TEXT);
  for (let length = 0; length < whole.length; length += 3)
    assert.throws(() => bzip2Decompress(whole.subarray(0, length), PLAIN.length), /bzip2/);
  // Some bits say nothing (tables that no group uses, the sum of all blocks), so that the right bytes may come out.
  for (let at = 4; at < whole.length; at++) {
    try {
      assert.deepEqual(textOf(bzip2Decompress(whole.with(at, whole[at]! ^ 0x10), 1 << 20)), PLAIN, `byte ${at}`);
    } catch (error) {
      assert.match(String(error), /bzip2/, `byte ${at}`);
    }
  }
});
