// Chunks that are read without the HDF5 library: found among its reads, decoded to the same values; what does not decode is its own to judge.
import assert from "node:assert/strict";
import { deflateSync } from "node:zlib";
import { test } from "node:test";
import fc from "fast-check";
import { directColumn, placesOf, type DirectSpec } from "../../../src/formats/hdf5/direct.ts";
import { hdf5 } from "../../../src/formats/hdf5/format.ts";
import { dense } from "../../../src/formats/dense.ts";
import { MAX_INPUT, workbench } from "../../../src/kernels/workbench.ts";
import type { BlockColumns, Column, PlacedSegment } from "../../../src/formats/types.ts";
import { contentOf, copied, rawOf, rowOf, scanShard } from "../blocks.ts";
import { fixtures } from "../fixtures.ts";
import { hdf5Shard } from "./samples.ts";

const FILTERS = hdf5Shard("filters.h5", `${fixtures}/cases/30-hdf5-filters`);
const DIRECT = ["builtin/gzip", "builtin/gzip_shuffle", "builtin/plain"];

function shuffled(bytes: Uint8Array, size: number): Uint8Array {
  const count = bytes.length / size;
  return Uint8Array.from(bytes, (_, at) => bytes[(at % count) * size + Math.floor(at / count)]!);
}

test("chunks are found among what the library read, and give its values, in all sizes of numbers", () => {
  const spec = fc.record({
    size: fc.constantFrom(1, 2, 4, 8),
    how: fc.constantFrom("int" as const, "float" as const),
    perRow: fc.integer({ min: 1, max: 5 }),
    chunkRows: fc.integer({ min: 0, max: 4 }),
    rows: fc.integer({ min: 1, max: 12 }),
    shuffle: fc.boolean(),
    deflate: fc.boolean(),
    seed: fc.integer({ min: 0, max: 255 }),
  });
  fc.assert(
    fc.property(spec, ({ size, how, perRow, chunkRows, rows, shuffle, deflate, seed }) => {
      if (how === "float" && size === 1) return;
      const rowBytes = perRow * size;
      const own: DirectSpec = {
        kind: how === "int" ? "int64" : "float",
        reading: { how, size, signed: true, bool: false },
        perRow,
        rowBytes,
        chunkRows,
        shuffle: shuffle && chunkRows > 0,
        deflate: deflate && chunkRows > 0,
      };
      const chunkBytes = (chunkRows === 0 ? rows : chunkRows) * rowBytes;
      const chunks = Math.ceil((rows * rowBytes) / chunkBytes);
      const all = Uint8Array.from({ length: chunks * chunkBytes }, (_, i) =>
        // Half of the time integers of 8 bytes that fit 4.
        size === 8 && seed % 2 === 0 && i % 8 >= 4 ? 0 : (i * 131 + seed + (i >> 3)) & 63,
      );
      const stored = Array.from({ length: chunks }, (_, i) => {
        const chunk = all.slice(i * chunkBytes, (i + 1) * chunkBytes);
        const planes = own.shuffle ? shuffled(chunk, size) : chunk;
        return own.deflate ? new Uint8Array(deflateSync(planes)) : planes;
      });
      const reads = [Uint8Array.of(1, 2, 3), ...stored].map((bytes, i) => ({ offset: 1000 * i, bytes }));
      const truth = all.subarray(0, rows * rowBytes);
      const places = placesOf(own, reads, truth, chunkRows * 3, chunkRows * 3 + rows);
      assert.equal(places?.length, 2 * chunks);
      const memory = new Uint8Array(new SharedArrayBuffer(64 * 1024));
      const segments = stored.map((_, i): PlacedSegment => {
        const [offset, length] = [places[2 * i]!, places[2 * i + 1]!];
        const bytes = memory.subarray(i * 512, i * 512 + length);
        bytes.set(reads.find((read) => read.offset === offset)!.bytes.subarray(0, length));
        return { file: 0, offset, length, field: 1, bytes };
      });
      const decode = (): Column => directColumn(own, segments, chunkRows * 3, chunkRows * 3 + rows)!;
      const column = decode();
      // In the workbench, several one behind the other: an odd number of values must not shift the next ones.
      const { result: benched, release } = workbench().lend(() => {
        const odd = { ...own, reading: { ...own.reading, how: "int", size: 8 }, rowBytes: 8, perRow: 1 } as const;
        const bytes = new Uint8Array(8);
        const zero = { file: 0, offset: 0, length: 8, field: 1, bytes };
        const shift = (): unknown =>
          directColumn({ ...odd, chunkRows: 0, shuffle: false, deflate: false }, [zero], 0, 1);
        return [decode(), shift(), decode()].filter((found) => found !== undefined).map((found) => found as Column);
      });
      benched.splice(1, 1);
      for (const one of benched) assert.deepEqual([...dense(one).values], [...dense(column).values]);
      release!();
      const { fields } = copied({ fields: new Map([["a", column]]), faults: new Map() });
      const types = how === "float" ? { 2: "f2", 4: "f4", 8: "f8" } : { 1: "i1", 2: "i2", 4: "i4", 8: "i8" };
      const view = new DataView(truth.buffer);
      for (let row = 0; row < rows; row++) {
        const expected = Array.from({ length: perRow }, (_, k) => {
          const at = (row * perRow + k) * size;
          switch (types[size as 2]) {
            case "f4":
              return view.getFloat32(at, true);
            case "f8":
              return view.getFloat64(at, true);
            case "f2":
              return undefined;
            default:
              return size === 8
                ? view.getBigInt64(at, true)
                : BigInt(
                    size === 1 ? view.getInt8(at) : size === 2 ? view.getInt16(at, true) : view.getInt32(at, true),
                  );
          }
        });
        if (!expected.includes(undefined)) assert.deepEqual(rowOf(fields.get("a"), row), expected);
      }
      assert.equal(directColumn(own, segments.slice(1), 0, rows), undefined, "a chunk is missing");
    }),
    { numRuns: 300 },
  );
});

test("numbers behind shuffle and deflate, or no filter, are read without the library; a damaged copy is left to it", async () => {
  const { blocks, end } = await scanShard(hdf5, FILTERS);
  const [block] = blocks as [(typeof blocks)[0]];
  const names = (end.meta!["fields"] as string[]).filter((_, i) => block.segments.some(({ field }) => field === i + 1));
  assert.deepEqual(names, DIRECT);
  const content = await contentOf(FILTERS, "plain");
  const same = (found: BlockColumns): void => {
    assert.equal(found.faults.size, 0);
    for (const name of DIRECT) {
      const { fields } = copied(found);
      for (let i = 0; i < block.records; i++) {
        assert.deepEqual(rowOf(fields.get(name), i), rowOf(block.columns.fields.get(name), i));
      }
    }
    found.release?.();
  };
  const raw = rawOf(FILTERS, content, block, end, 0, 0, DIRECT);
  same(await hdf5.columns({ ...raw, file: "/nowhere" }, DIRECT));
  for (const { bytes, field } of raw.segments) if (DIRECT[0] === end.meta!.fields![field - 1]) bytes.fill(0x55, 20, 40);
  same(await hdf5.columns(raw, DIRECT));
  await assert.rejects(async () => hdf5.columns({ ...raw, file: "/nowhere" }, DIRECT));
});

test("a chunk that is far longer than it should be is the library's to judge, and spoils no other one in the workbench", () => {
  const spec: DirectSpec = {
    kind: "int64",
    reading: { how: "int", size: 4, signed: true, bool: false },
    perRow: 1,
    rowBytes: 4,
    chunkRows: 2,
    shuffle: true,
    deflate: false,
  };
  const chunk = shuffled(new Uint8Array(Int32Array.of(1, 2).buffer), 4);
  const segments = [chunk, new Uint8Array(MAX_INPUT + 4096)].map((bytes): PlacedSegment => {
    return { file: 0, offset: 0, length: bytes.length, field: 1, bytes };
  });
  const { result, release } = workbench().lend(() => directColumn(spec, segments, 0, 4));
  assert.equal(result, undefined);
  release!();
});
