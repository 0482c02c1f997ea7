// Blosc buffers that c-blosc (as WebAssembly in numcodecs) has written: every codec, shuffle, element size and length.
import assert from "node:assert/strict";
import { before, test } from "node:test";
import fc from "fast-check";
import Blosc from "numcodecs/blosc";
import { bloscDecompress, readyBlosc } from "../../../src/formats/codecs/blosc.ts";

before(readyBlosc);

const CODECS = ["blosclz", "lz4", "lz4hc", "snappy", "zlib", "zstd"];

/** c-blosc takes element sizes of 1 there: those of other sizes come from the Python tests. */
function encode(
  data: Uint8Array,
  cname: string,
  clevel: number,
  shuffle: number,
  blocksize: number,
): Promise<Uint8Array> {
  return Promise.resolve(Blosc.fromConfig({ id: "blosc", cname, clevel, shuffle, blocksize }).encode(data));
}

test("what c-blosc wrote comes back, from shared memory too", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.constantFrom(...CODECS),
      fc.integer({ min: 0, max: 9 }),
      fc.integer({ min: 0, max: 2 }),
      fc.constantFrom(0, 128, 1000, 4096),
      fc.oneof(
        fc.uint8Array({ maxLength: 3000 }),
        fc.uint8Array({ maxLength: 40 }).map((part) => repeated(part, 300)),
      ),
      async (cname, clevel, shuffle, blocksize, data) => {
        const stored = await encode(data, cname, clevel, shuffle, blocksize);
        const shared = new Uint8Array(new SharedArrayBuffer(stored.length));
        shared.set(stored);
        assert.deepEqual(new Uint8Array(bloscDecompress(shared, data.length)), data);
        if (data.length > 0) assert.throws(() => bloscDecompress(shared, data.length - 1), /expected \d+ at most/);
        assert.throws(() => bloscDecompress(shared.subarray(0, stored.length - 1), data.length), /Blosc/);
      },
    ),
    { numRuns: 300 },
  );
});

test("damaged buffers are errors or other bytes of the same size, and nothing else", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.constantFrom(...CODECS),
      fc.uint8Array({ minLength: 40, maxLength: 60 }),
      fc.array(fc.tuple(fc.nat(), fc.integer({ min: 1, max: 255 })), { minLength: 1, maxLength: 4 }),
      async (cname, part, flips) => {
        const data = repeated(part, 40);
        const stored = await encode(data, cname, 5, 1, 512);
        for (const [at, bits] of flips) stored[at % stored.length]! ^= bits;
        try {
          assert.ok(bloscDecompress(stored, data.length).length <= data.length);
        } catch (error) {
          // node:zlib has a RangeError of its own for more bytes than asked for.
          const ofZlib = (error as { code?: string }).code === "ERR_BUFFER_TOO_LARGE";
          const isDefect = !ofZlib && (error instanceof RangeError || error instanceof TypeError);
          assert.ok(error instanceof Error && !isDefect, String(error));
        }
      },
    ),
    { numRuns: 500 },
  );
});

function repeated(part: Uint8Array, times: number): Uint8Array {
  return Uint8Array.from({ length: part.length * times }, (_, i) => part[i % part.length]!);
}
