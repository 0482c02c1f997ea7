// Chunks that hold less than their dataset's chunks: the HDF5 library gave what lay behind them in memory (test/fixtures/hdf5/make.py: short0, short1).
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { chunkFault } from "../../../src/formats/hdf5/guard.ts";
import { layoutAt, rowsAt } from "../../../src/formats/hdf5/reader.ts";
import { rowOf } from "../blocks.ts";
import { HDF5_FIXTURES } from "./samples.ts";

const CAUSES =
  /chunk of \d+ bytes, expected at least \d+|filter returned failure|chunks are too short|ends at byte \d+, the chunk has|as it says, has|has no end|Aborted/;

for (const name of ["short0.h5", "short1.h5"]) {
  test(`${name}: rows of a short chunk are bad, behind every filter and without any; others are not: they had other values at each read`, async () => {
    const path = `${HDF5_FIXTURES}/${name}`;
    const tokens = readFileSync(`${HDF5_FIXTURES}/numbers.jsonl`, "utf8").trimEnd().split("\n");
    const truth = tokens.map((line) => (JSON.parse(line) as { tokens: number[] }).tokens.slice(0, 8));
    const { rows, fields } = await layoutAt(path);
    assert.equal(fields.length, name === "short0.h5" ? 7 : 48);
    for (const field of fields) {
      const { faults, fields: read } = await rowsAt(path, [field.name], 0, rows);
      assert.deepEqual([...faults.keys()], [8, 9, 10, 11, 12, 13, 14, 15], field.name);
      for (const [row, { code, message, where }] of faults) {
        assert.ok(["ATH_RECORD_MALFORMED", "ATH_RECORD_CRC"].includes(code), `${field.name}: ${code}`);
        assert.ok(message.includes(`dataset /${field.name}, rows 8 to 15`) && CAUSES.test(message), message);
        assert.equal(where.record, row);
        assert.ok((where.byteOffset ?? 0) > 0, message);
      }
      if (field.kind === "bytes" || field.reading.how === "list") continue;
      for (const row of [0, 7, 16, 23]) {
        const expected = truth[row]!.map((token) => BigInt(token % 512));
        assert.deepEqual(rowOf(read.get(field.name), row), expected, `${field.name}, row ${row}`);
      }
    }
  });
}

/** 20 bytes in blocks of 8, each stored as two bytes. */
function blocks(stored: number): Uint8Array {
  const bytes = new Uint8Array(30);
  const view = new DataView(bytes.buffer);
  view.setBigUint64(0, 20n);
  view.setUint32(8, 8);
  for (let at = 12; at < 30; at += 6) view.setUint32(at, 2);
  return bytes.subarray(0, stored);
}

test("sizes inside a chunk are compared with its bytes", () => {
  assert.equal(chunkFault(32004, blocks(30), []), undefined);
  assert.equal(chunkFault(32004, blocks(29), []), "LZ4 block 2 of 3 ends at byte 30, the chunk has 29");
  assert.equal(chunkFault(32004, blocks(30).subarray(0, 11), []), "a chunk of 11 bytes has no LZ4 header");
  // 20 bytes in blocks of none: the plugin takes one after the other and gets no further.
  const none = blocks(30);
  new DataView(none.buffer).setUint32(8, 0);
  assert.equal(chunkFault(32004, none, []), "LZ4 blocks of 0 bytes cannot hold 20");
  assert.equal(chunkFault(32004, new Uint8Array(12), []), undefined, "nothing is in no blocks");
  // One byte an element: two blocks of 8 and four elements as they are.
  const parameters = [0, 3, 1, 0, 2];
  assert.equal(chunkFault(32008, blocks(28), parameters), undefined);
  assert.equal(chunkFault(32008, blocks(27), parameters), "bitshuffle needs 28 bytes, the chunk has 27");
  assert.equal(chunkFault(32008, blocks(20), parameters), "bitshuffle block 1 of 2 ends at byte 22, the chunk has 20");
  assert.equal(chunkFault(32008, Uint8Array.of(1), [0, 3, 1, 0, 0]), undefined, "without a codec there is no header");
  const bzip2 = Uint8Array.from(Buffer.from("425a68391772453850900000000000", "hex"));
  assert.equal(chunkFault(307, bzip2.subarray(0, 14), []), undefined);
  assert.equal(chunkFault(307, bzip2.subarray(0, 13), []), "a bzip2 chunk of 13 bytes has no end");
  const blosc = Uint8Array.of(2, 1, 0, 1, 20, 0, 0, 0, 20, 0, 0, 0, 36, 0, 0, 0, ...new Uint8Array(20));
  assert.equal(chunkFault(32001, blosc, []), undefined);
  assert.equal(chunkFault(32001, blosc.subarray(0, 35), []), "a Blosc chunk of 36 bytes, as it says, has 35");
  assert.equal(chunkFault(32001, blosc.subarray(0, 9), []), "a Blosc chunk of 9 bytes has no header");
  blosc[2] = 2;
  blosc[4] = 21;
  assert.equal(chunkFault(32001, blosc, []), "a stored Blosc chunk of 36 bytes cannot hold 21");
});

test("a library that has the checks is not given them again", async () => {
  const root = new URL("../../../../", import.meta.url);
  const { patchHdf5 } = (await import(new URL("scripts/patch-hdf5.mjs", root).href)) as {
    patchHdf5: (wasm: Uint8Array) => Uint8Array;
  };
  const patched = readFileSync(new URL("dist/hdf5/hdf5.wasm", root));
  assert.throws(() => patchHdf5(patched), /the checks are in it already/);
});
