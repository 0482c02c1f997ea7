import assert from "node:assert/strict";
import { test } from "node:test";
import { deflateSync, gzipSync } from "node:zlib";
import fc from "fast-check";
import { index } from "../../../src/formats/tfrecord/index.ts";
import { InflateStream } from "../../../src/formats/stream.ts";
import type { ShardContent } from "../../../src/formats/types.ts";
import { concat, example, frame } from "../../kernels/examples.ts";
import { memoryObject } from "./memory-object.ts";
import { all, failure, ints, many, MANY, wasm } from "./shards.ts";

const indexOf = (bytes: Uint8Array): Promise<ShardContent> => index(memoryObject("x.tfrecord", bytes), wasm);

test("compressed streams cut at any byte are errors", async () => {
  const body = concat(...Array.from({ length: 20 }, (_, i) => frame(example([["ids", ints(i)]]))));
  for (const bytes of [gzipSync(body), deflateSync(body)]) {
    for (let cut = 40; cut < bytes.length; cut += 3) {
      const error = await failure(() => all(bytes.subarray(0, cut)));
      assert.equal(error.code, "ATH_STREAM_CORRUPT", `cut at ${cut} of ${bytes.length}`);
      assert.equal(error.where.byteOffset, cut);
    }
  }
});

test("a damaged compressed stream names its compressed byte", async () => {
  const body = concat(
    ...Array.from({ length: 3000 }, (_, i) =>
      frame(example([["b", { kind: "bytes", values: [Buffer.from(String(i * i * 7919).repeat(9))] }]])),
    ),
  );
  const bytes = gzipSync(body);
  const trailer = bytes.slice();
  trailer[bytes.length - 6]! ^= 1;
  const error = await failure(() => all(trailer));
  assert.equal(error.code, "ATH_STREAM_CORRUPT");
  assert.match(error.message, /from compressed byte \d+/);
});

test("many gzip members, also with borders inside records and at chunk borders; zeros behind; other bytes refused", async () => {
  const members = Buffer.concat(
    Array.from({ length: Math.ceil(many.length / 500_000) }, (_, i) =>
      gzipSync(many.subarray(i * 500_000, (i + 1) * 500_000), { level: 1 }),
    ),
  );
  assert.equal((await indexOf(members)).records, MANY);
  assert.equal((await indexOf(Buffer.concat([members, Buffer.alloc(2_000_000)]))).records, MANY);
  const tail = Buffer.concat([members, Buffer.alloc(1_500_000), Buffer.from("x")]);
  const error = await failure(() => indexOf(tail));
  assert.equal(error.code, "ATH_STREAM_CORRUPT");
  assert.equal(error.where.byteOffset, members.length + 1_500_000);
  assert.equal(
    (await failure(() => indexOf(Buffer.concat([deflateSync(many.subarray(0, 0)), Buffer.from("x")])))).code,
    "ATH_STREAM_CORRUPT",
  );
});

test("InflateStream gives the same bytes for any chunks, skips and reads", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.uint8Array({ maxLength: 3000 }),
      fc.integer({ min: 1, max: 700 }),
      fc.integer({ min: 1, max: 900 }),
      fc.nat(500),
      fc.boolean(),
      async (body, chunk, read, skip, gzip) => {
        const cut = body.length >> 1;
        const packed = gzip
          ? Buffer.concat([gzipSync(body.subarray(0, cut)), gzipSync(body.subarray(cut))])
          : deflateSync(body);
        let at = 0;
        const stream = new InflateStream(gzip ? "gzip" : "zlib", "x", () => {
          const part = packed.subarray(at, at + chunk);
          at += part.length;
          setImmediate(() => stream.push(part, at >= packed.length));
        });
        const from = Math.min(skip, body.length);
        await stream.skip(from);
        const out: Uint8Array[] = [];
        for (;;) {
          const target = new Uint8Array(new SharedArrayBuffer(read));
          const n = await stream.readSome(target);
          if (n === 0) break;
          out.push(target.slice(0, n));
        }
        assert.deepEqual(concat(...out), body.slice(from));
        await assert.rejects(stream.readInto(new Uint8Array(1)), { code: "ATH_STREAM_CORRUPT" });
      },
    ),
    { numRuns: 60 },
  );
});

test("a closed stream wakes its reader", async () => {
  const stream = new InflateStream("gzip", "x", () => {});
  const read = stream.readInto(new Uint8Array(1));
  stream.destroy();
  await assert.rejects(read, /closed/);
});
