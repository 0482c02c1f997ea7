import assert from "node:assert/strict";
import { test } from "node:test";
import { deflateSync, gzipSync } from "node:zlib";
import { detectFormat, formatOf } from "../../../src/formats/registry.ts";
import { describe, notAnyFormat } from "../../../src/formats/describe.ts";
import { detect } from "../../../src/formats/tfrecord/detect.ts";
import { concat, example, frame } from "../../kernels/examples.ts";

const text = (s: string): Uint8Array => new Uint8Array(Buffer.from(s, "latin1"));
const record = frame(
  example([["b", { kind: "bytes", values: [new Uint8Array(2000).map((_, i) => (i * 7919) >> 3)] }]]),
);

test("found by content: plain, gzip, zlib, an empty file", () => {
  for (const head of [record, record.subarray(0, 512)]) assert.deepEqual(detect(head), { encoding: "plain" });
  for (const size of [512, 1e6]) {
    assert.deepEqual(detect(gzipSync(record).subarray(0, size)), { encoding: "gzip" });
    assert.deepEqual(detect(deflateSync(record).subarray(0, size)), { encoding: "zlib" });
  }
  // Bytes behind a short stream: its reader names them, where it is known what it is.
  const short = frame(example([["n", { kind: "int64", values: [1n] }]]));
  assert.deepEqual(detect(concat(gzipSync(short), text("garbage"))), { encoding: "gzip" });
  assert.deepEqual(detect(concat(deflateSync(short), text("garbage"))), { encoding: "zlib" });
  assert.deepEqual(detect(new Uint8Array(0)), { encoding: "plain" });
  assert.equal(detectFormat(record, "a")?.format.name, "tfrecord");
  assert.equal(detectFormat(new Uint8Array(0), "part-3")?.format.name, "tfrecord");
  assert.equal(detectFormat(new Uint8Array(0), "train.tfrecord-00003-of-00010")?.format.name, "tfrecord");
  assert.equal(detectFormat(new Uint8Array(0), "a.h5"), undefined);
  for (const name of ["a.bin", "a.dat", "d.tmp/a.bin"])
    assert.equal(detectFormat(new Uint8Array(0), name), undefined, name);
  assert.equal(detectFormat(new Uint8Array(0), "a.tar")?.format.name, "webdataset");
  assert.equal(formatOf("tfrecord").name, "tfrecord");
  assert.throws(() => formatOf("nothing"), { code: "ATH_NOT_FORMAT" });
});

const others: [string, Uint8Array, RegExp][] = [
  [
    "LFS pointer",
    text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 42\n"),
    /Git LFS pointer .* names 42 bytes/,
  ],
  ["HTML", text("\n<HTML><body>"), /begins as HTML/],
  ["XML", text("<?xml version='1.0'?><Error>"), /begins as XML/],
  ["JSON", text('{"a": 1, "b": 2}'), /begins as JSON/],
  ["text", text("once upon a time"), /begins as text/],
  ["Parquet", text("PAR1\x15\x04\x15\x10\x15\x14\x4c\x15"), /begins as Parquet/],
  ["HDF5", text("\x89HDF\r\n\x1a\n\0\0\0\0\0\0"), /begins as HDF5/],
  ["tar", text(`${"a".padEnd(257, "\0")}ustar\0`), /begins as a tar archive/],
  ["noise", Uint8Array.from({ length: 64 }, (_, i) => i * 37), /no format that we know/],
  ["zeros", new Uint8Array(600), /begins with zeros/],
  ["image", text("\x89PNG\r\n\x1a\n0000"), /begins as a PNG image/],
  ["pickle", text("\x80\x04\x95\x0c\0\0\0\0\0\0\0}"), /begins as a Python pickle/],
  ["gzip of JSON", gzipSync('{"a": 1, "text": "something"}'), /gzip of something else: its content begins as JSON/],
  [
    "damaged gzip",
    Uint8Array.from([0x1f, 0x8b, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9]),
    /begins as gzip, but cannot be inflated/,
  ],
];
for (const [name, head, words] of others) {
  test(`not TFRecord: ${name}`, () => {
    assert.equal(detect(head), undefined);
    assert.match(describe(head), words);
  });
}

test("a file of no format: what it is, and what its name says", () => {
  const error = notAnyFormat(text("\x89PNG\r\n"), "/d/a.parquet", ["tfrecord", "parquet"]);
  assert.equal(error.code, "ATH_NOT_FORMAT");
  assert.match(error.message, /\(tfrecord, parquet\): the file begins as a PNG image, though its name says Parquet/);
});
