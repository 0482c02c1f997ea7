// The running Zstandard decoder over frames of Python's zstandard (test/fixtures/zstd/make.py) and their damaged forms.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { AthanorError } from "../../../src/base/errors.ts";
import { Xxh64 } from "../../../src/formats/codecs/xxh64.ts";
import { ZstdStream } from "../../../src/formats/codecs/zstd-stream.ts";
import { fixtures } from "../fixtures.ts";

const text = Buffer.concat(
  Array.from({ length: 3000 }, (_, i) => Buffer.from(`line ${i} of ${(i * 7919) % 1000} ${"ab".repeat(i % 90)}\n`)),
);
const frames = (name: string): Buffer => readFileSync(`${fixtures}/zstd/${name}.zst`);

async function decompress(bytes: Uint8Array, piece: number): Promise<Buffer> {
  let at = 0;
  const stream = new ZstdStream("/a.zst", () => {
    const next = bytes.slice(at, at + piece);
    at += piece;
    setImmediate(() => stream.push(next, at >= bytes.length));
  });
  const parts: Buffer[] = [];
  const target = new Uint8Array(50_000);
  for (let n = await stream.readSome(target); n > 0; n = await stream.readSome(target)) {
    parts.push(Buffer.from(target.slice(0, n)));
  }
  return Buffer.concat(parts);
}

test("XXH64 of every length", () => {
  // Checksums of frames over bytes(range(n)), by libzstd.
  const bytes = Uint8Array.from({ length: 100 }, (_, i) => i);
  const expected = JSON.parse(readFileSync(`${fixtures}/zstd/xxh64.json`, "utf8")) as number[];
  assert.equal(expected.length, 101);
  for (const [n, low] of expected.entries()) {
    const hash = new Xxh64();
    hash.update(bytes.subarray(0, n >> 1));
    hash.update(bytes.subarray(n >> 1, n));
    assert.equal(hash.low32(), low, `${n} bytes`);
  }
});

test("all frames, in pieces of any size", async () => {
  for (const name of ["one", "frames", "skippable", "unsized", "long"]) {
    for (const piece of [7, 1000, 1 << 20])
      assert.ok(text.equals(await decompress(frames(name), piece)), `${name} ${piece}`);
  }
  assert.equal((await decompress(frames("empty"), 5)).length, 0);
  assert.equal((await decompress(new Uint8Array(0), 5)).length, 0);
});

test("pieces of a stream by offset", async () => {
  const bytes = frames("frames");
  const stream = new ZstdStream("/a.zst", () => stream.push(bytes, true));
  await stream.skip(100_000);
  const target = new Uint8Array(1000);
  await stream.readInto(target);
  assert.ok(text.subarray(100_000, 101_000).equals(target));
  await assert.rejects(stream.skip(text.length), /ends at decompressed byte/);
});

test("a cut, a wrong checksum, bytes behind the end and damage are errors with the place", async () => {
  const whole = frames("frames");
  const corrupt = async (bytes: Uint8Array, what: RegExp, at?: number): Promise<void> => {
    await assert.rejects(decompress(bytes, 5000), (error) => {
      assert.ok(error instanceof AthanorError && error.code === "ATH_STREAM_CORRUPT", String(error));
      assert.match(error.message, what);
      if (at !== undefined) assert.equal(error.where.byteOffset, at);
      return true;
    });
  };
  for (const cut of [1, 3, 8, 500, whole.length - 2]) await corrupt(whole.subarray(0, cut), /cut|no Zstandard frame/);
  await corrupt(whole.subarray(0, 500), /inside a frame/, 500);
  await corrupt(Buffer.concat([whole, Buffer.from("more")]), /no Zstandard frame/, whole.length);
  const wrong = Buffer.from(frames("one"));
  wrong[wrong.length - 1]! ^= 1;
  await corrupt(wrong, /content checksum wrong: found 0x/, wrong.length - 4);
  await assert.rejects(decompress(frames("window"), 5000), /a window of 268435456 bytes, at most 134217728/);
});
