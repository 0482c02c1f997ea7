// Codecs of blocks of known size against what made the blocks; the two of no encoder here against bytes made by pyarrow 26:
// pa.compress(text, codec="snappy" | "lz4_raw", asbytes=True).
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import { brotliCompressSync, deflateSync, gzipSync } from "node:zlib";
import { Encoder } from "@toondepauw/node-zstd";
import fc from "fast-check";
import { compressSync } from "lz4-napi";
import { brotliDecompress, inflate } from "../../../src/formats/codecs/inflate.ts";
import { hadoopLz4Decompress, lz4Decompress, lz4InJavaScript, readyLz4 } from "../../../src/formats/codecs/lz4.ts";
import { snappyDecompress } from "../../../src/formats/codecs/snappy.ts";
import { readyZstd, zstdDecoders, zstdDecompress } from "../../../src/formats/codecs/zstd.ts";

const SHA256 = "51ea186ca2191c4463dd4174e8cf1a9f131dc200fc39dc6b23dfd98fda580cc3";
const SNAPPY =
  "7AxgdGhlIGZ1cm5hY2UgZmVlZHMgaXRzZWxmIP4ZAP4ZAP4ZAP4ZAP4ZAP4ZAP4ZAP4ZAP4ZAP4ZAP4ZAP4ZAP4ZAP4ZAP4ZADoZAPQgAWV2ZW5seSwgdW5hdHRlbmRlZAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4fICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj9AQUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVpbXF1eX2BhYmNkZWZnaGlqa2xtbm9wcXJzdHV2d3h5ent8fX5/gIGCg4SFhoeIiYqLjI2Oj5CRkpOUlZaXmJmam5ydnp+goaKjpKWmp6ipqqusra6vsLGys7S1tre4ubq7vL2+v8DBwsPExcbHyMnKy8zNzs/Q0dLT1NXW19jZ2tvc3d7f4OHi4+Tl5ufo6err7O3u7/Dx8vP09fb3+Pn6+/z9/v9hYWFhYWFhYWFhYWFhYWH+CQD+CQD+CQD+CQByCQDwRUQggjz95vHCazD5DsfdAeSIdTSiDwsNBMNu2A5x4P13sHZw65QL1TNflz2q2GGbkf/JEfV8ztRYu78s4DdTyb36D/AWnck=";
const LZ4 =
  "/wp0aGUgZnVybmFjZSBmZWVkcyBpdHNlbGYgGQD///+///8HZXZlbmx5LCB1bmF0dGVuZGVkAAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+P0BBQkNERUZHSElKS0xNTk9QUVJTVFVWV1hZWltcXV5fYGFiY2RlZmdoaWprbG1ub3BxcnN0dXZ3eHl6e3x9fn+AgYKDhIWGh4iJiouMjY6PkJGSk5SVlpeYmZqbnJ2en6ChoqOkpaanqKmqq6ytrq+wsbKztLW2t7i5uru8vb6/wMHCw8TFxsfIycrLzM3Oz9DR0tPU1dbX2Nna29zd3t/g4eLj5OXm5+jp6uvs7e7v8PHy8/T19vf4+fr7/P3+/2FhYQMA/xfwN0Qggjz95vHCazD5DsfdAeSIdTSiDwsNBMNu2A5x4P13sHZw65QL1TNflz2q2GGbkf/JEfV8ztRYu78s4DdTyb36D/AWnck=";

/** As the feed reads them. */
function shared(bytes: Uint8Array): Uint8Array {
  const copy = new Uint8Array(new SharedArrayBuffer(bytes.length));
  copy.set(bytes);
  return copy;
}

function sha256(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("hex");
}

/** Text with runs and copies, and noise. */
const block = fc
  .array(
    fc.oneof(
      fc.uint8Array({ maxLength: 40 }),
      fc.tuple(fc.nat(255), fc.nat(3000)).map(([byte, length]) => new Uint8Array(length).fill(byte)),
    ),
    { maxLength: 12 },
  )
  .map((parts) => Buffer.concat([...parts, ...parts]));

test("Snappy and LZ4 as Arrow writes them", async () => {
  await readyLz4();
  assert.equal(sha256(snappyDecompress(shared(Buffer.from(SNAPPY, "base64")), 1644)), SHA256);
  for (const decode of [lz4Decompress, lz4InJavaScript, hadoopLz4Decompress]) {
    assert.equal(sha256(decode(shared(Buffer.from(LZ4, "base64")), 1644)), SHA256);
  }
});

test("LZ4: the decoder in JavaScript gives what the native one does, framed by Hadoop too", async () => {
  await readyLz4();
  fc.assert(
    fc.property(block, (bytes) => {
      // The encoder puts the size in front.
      const raw = compressSync(bytes).subarray(4);
      assert.deepEqual(Buffer.from(lz4InJavaScript(shared(raw), bytes.length)), bytes);
      assert.deepEqual(Buffer.from(lz4Decompress(shared(raw), bytes.length)), bytes);
      const head = Buffer.alloc(8);
      head.writeUInt32BE(bytes.length, 0);
      head.writeUInt32BE(raw.length, 4);
      const framed = Buffer.concat([head, raw, head, raw]);
      const twice = hadoopLz4Decompress(framed, bytes.length * 2);
      assert.deepEqual(Buffer.from(twice), Buffer.concat([bytes, bytes]));
    }),
  );
});

test("Zstandard: all frames, skippable ones passed over, with each decoder", async () => {
  await readyZstd();
  const encoder = new Encoder(3);
  const native = await zstdDecoders.native();
  assert.ok(native !== undefined);
  const skippable = Buffer.from("502a4d18030000000a0b0c", "hex");
  fc.assert(
    fc.property(block, block, (a, b) => {
      const frames = [a, b].map((part) => encoder.encodeSync(part));
      const whole = Buffer.concat([skippable, frames[0]!, skippable, frames[1]!]);
      assert.deepEqual(Buffer.from(zstdDecompress(shared(whole), a.length + b.length)), Buffer.concat([a, b]));
      assert.deepEqual(Buffer.from(zstdDecoders.inJavaScript(frames[0]!, a.length)), a);
      assert.deepEqual(Buffer.from(native(frames[0]!, a.length)), a);
    }),
    { numRuns: 50 },
  );
});

test("gzip of all members, zlib, Brotli", () => {
  fc.assert(
    fc.property(block, block, (a, b) => {
      const whole = Buffer.concat([a, b]);
      const members = Buffer.concat([gzipSync(a), gzipSync(b)]);
      assert.deepEqual(Buffer.from(inflate(shared(members), whole.length)), whole);
      assert.deepEqual(Buffer.from(inflate(shared(deflateSync(a)), a.length)), a);
      assert.deepEqual(Buffer.from(brotliDecompress(shared(brotliCompressSync(a)), a.length)), a);
    }),
    { numRuns: 50 },
  );
});

test("a block that is cut, or holds more or less than its size, is an error", async () => {
  await Promise.all([readyZstd(), readyLz4()]);
  const text = Buffer.from("evenly, unattended, and never twice the same coal. ".repeat(60));
  const codecs: [string, (bytes: Uint8Array, size: number) => Uint8Array, Buffer, number][] = [
    ["snappy", snappyDecompress, Buffer.from(SNAPPY, "base64"), 1644],
    ["lz4", lz4Decompress, compressSync(text).subarray(4), text.length],
    ["lz4 in JavaScript", lz4InJavaScript, compressSync(text).subarray(4), text.length],
    ["hadoop", hadoopLz4Decompress, compressSync(text).subarray(4), text.length],
    ["zstd", zstdDecompress, new Encoder(3).encodeSync(text), text.length],
    ["gzip", inflate, gzipSync(text), text.length],
    ["brotli", brotliDecompress, brotliCompressSync(text), text.length],
  ];
  for (const [name, decode, bytes, size] of codecs) {
    assert.equal(decode(bytes, size).length, size, name);
    assert.throws(() => decode(bytes, size - 1), Error, `${name}: more`);
    assert.throws(() => decode(bytes, size + 1), Error, `${name}: less`);
    assert.throws(() => decode(bytes.subarray(0, bytes.length - 3), size), Error, `${name}: cut`);
  }
});

test("a Snappy literal of 2 GiB is an error and no loop", () => {
  const endless = Buffer.from([200, 1, 0xfc, 0xff, 0xff, 0xff, 0xff, ...Array<number>(40).fill(0)]);
  assert.throws(() => snappyDecompress(endless, 200), /cut/);
});
