// HDF5 against what h5py reads (test/fixtures/hdf5/make.py), cases from the field, and what must be refused before the first value.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { copyFileSync, mkdtempSync, readFileSync, rmSync, truncateSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { Worker } from "node:worker_threads";
import { AthanorError } from "../../../src/base/errors.ts";
import { plainValue, type Json } from "../../../src/base/json.ts";
import { hdf5 } from "../../../src/formats/hdf5/format.ts";
import { layoutAt } from "../../../src/formats/hdf5/reader.ts";
import type { Column, ScannedBlock } from "../../../src/formats/types.ts";
import { createKernels } from "../../../src/kernels/load.ts";
import { checkShard, contentOf, rawOf, rowOf, scanShard, shardFiles, type TestShard } from "../blocks.ts";
import { fixtures } from "../fixtures.ts";
import { HDF5_FIXTURES, hdf5Shard } from "./samples.ts";

const CASES = `${fixtures}/cases`;

function recordsOf(blocks: readonly ScannedBlock[]): Json[] {
  return blocks.flatMap(({ records, record }) => Array.from({ length: records }, (_, i) => plainValue(record!(i))));
}

/** SHA-256 of all integers of a field as little-endian int64. */
function digest(blocks: readonly ScannedBlock[], field: string): string {
  const hash = createHash("sha256");
  for (const { columns, records } of blocks) {
    const column = columns.fields.get(field) as Column;
    for (let i = 0; i < records; i++) {
      hash.update(new Uint8Array(BigInt64Array.from(rowOf(column, i)!, BigInt).buffer));
    }
  }
  return hash.digest("hex");
}

async function refused(shard: TestShard, code: string, what: RegExp): Promise<AthanorError> {
  try {
    await scanShard(hdf5, shard);
  } catch (error) {
    assert.ok(error instanceof AthanorError, String(error));
    assert.equal(error.code, code);
    assert.match(error.message, what);
    return error;
  }
  return assert.fail("it was read");
}

// The first test: it is the one without a thread yet.
test("a thread that could not be started once is started by the next one who needs it: every later read failed, too", async () => {
  const { postMessage } = Worker.prototype;
  Worker.prototype.postMessage = function (this: Worker) {
    this.emit("message", { type: "failed", error: { code: "ATH_INTERNAL", message: "no room for the library" } });
  };
  try {
    await assert.rejects(layoutAt(`${HDF5_FIXTURES}/numbers.h5`), /no room for the library/);
  } finally {
    Worker.prototype.postMessage = postMessage;
  }
  await layoutAt(`${HDF5_FIXTURES}/numbers.h5`);
});

for (const name of ["numbers", "text", "plugins", "virtual"]) {
  test(`${name}.h5 gives what h5py reads, by scan and by columns`, async () => {
    const { blocks } = await checkShard(hdf5, hdf5Shard(`${name}.h5`));
    const twin = readFileSync(`${HDF5_FIXTURES}/${name}.jsonl`, "utf8").trimEnd().split("\n");
    assert.deepEqual(
      recordsOf(blocks),
      twin.map((line) => JSON.parse(line) as Json),
    );
  });
}

test("case 30: values behind every filter, built in or plugin, never zeros", async () => {
  const folder = `${CASES}/30-hdf5-filters`;
  const expected = JSON.parse(readFileSync(`${folder}/expected.json`, "utf8")) as {
    fields: Record<string, string>;
    n: number;
    sha256_le_i64: string;
  };
  const { blocks } = await checkShard(hdf5, hdf5Shard("filters.h5", folder));
  // bzip2_zeros has another number of rows: no field of these records.
  const names = Object.keys(expected.fields).filter((name) => name !== "plugin/bzip2_zeros");
  assert.deepEqual([...blocks[0]!.columns.fields.keys()], names.sort());
  for (const name of names) assert.equal(digest(blocks, name), expected.sha256_le_i64, name);
});

test("case 32: chunks that were never written are the fill value, also behind a resize", async () => {
  const folder = `${CASES}/32-hdf5-fill-extendible`;
  const expected = JSON.parse(readFileSync(`${folder}/expected.json`, "utf8")) as {
    n: number;
    sha256_le_i64: string;
    minus_one_count: number;
  };
  const { blocks } = await checkShard(hdf5, hdf5Shard("fill.h5", folder));
  assert.equal(digest(blocks, "tokens"), expected.sha256_le_i64);
  const values = blocks.flatMap(({ columns }) => [...(columns.fields.get("tokens")!.values as Int32Array)]);
  assert.equal(values.length, expected.n);
  assert.equal(values.filter((value) => value === -1).length, expected.minus_one_count);
});

test("h5wasm's own files: arrays, an empty dataset, lists", async () => {
  const read = async (name: string): Promise<Json[]> =>
    recordsOf((await checkShard(hdf5, hdf5Shard(name, `${HDF5_FIXTURES}/h5wasm`))).blocks);
  assert.deepEqual(await read("empty.h5"), []);
  assert.deepEqual(
    await read("vlen.h5"),
    [0, 1, 2].map((last) => ({ float32_oneD: [0, 1, 2].slice(0, last + 1) })),
  );
  assert.deepEqual(await read("array.h5"), [
    { bigint: [0, 1, 2, 3], bool: [false, true], float_arr: [0, 1, 2, 3] },
    { bigint: [4, 5, 6, 7], bool: [true, false], float_arr: [4, 5, 6, 7] },
  ]);
});

test("a chunk whose checksum does not fit makes its rows bad, and no others", async () => {
  const { blocks } = await checkShard(hdf5, hdf5Shard("flipped.h5"));
  const { faults, fields } = blocks[0]!.columns;
  assert.deepEqual(
    [...faults].map(([i, { code, where }]) => [i, code, where.record]),
    [8, 9, 10, 11, 12, 13, 14, 15].map((i) => [i, "ATH_RECORD_CRC", i]),
  );
  assert.ok((faults.get(8)!.where.byteOffset ?? 0) > 0);
  assert.match(faults.get(8)!.message, /dataset \/tokens, rows 8 to 15/);
  const whole = readFileSync(`${HDF5_FIXTURES}/plugins.jsonl`, "utf8").split("\n");
  assert.deepEqual(rowOf(fields.get("tokens"), 16)!.map(Number), (JSON.parse(whole[16]!) as { lzf: number[] }).lzf);
  const files = await shardFiles(hdf5Shard("flipped.h5"));
  await assert.rejects(Promise.resolve(hdf5.index(files, { kernels: createKernels(0) })), /rows 8 to 15/);
  await files.object.close();
});

test("a value over int64 is named with its dataset and row, and a bad record where the field is asked for", async () => {
  const shard = hdf5Shard("over.h5");
  const { blocks, end } = await checkShard(hdf5, shard);
  const { faults, fields } = blocks[0]!.columns;
  const { rows, first } = fields.get("n")!.unfit!;
  assert.deepEqual([faults.size, rows, first.code], [0, [3], "ATH_VALUE_RANGE"]);
  assert.match(first.message, /record 3.*dataset \/n: value 9223372036854775809/);
  assert.deepEqual(rowOf(fields.get("n"), 4), [5n]);
  const asked = await hdf5.columns(rawOf(shard, await contentOf(shard, "plain", end), blocks[0]!, end, 0, 0), ["n"]);
  assert.deepEqual(
    [...asked.faults].map(([i, { code, where }]) => [i, code, where.record]),
    [[3, "ATH_VALUE_RANGE", 3]],
  );
  asked.release?.();
});

test("what would give values that the file does not hold is refused", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "athanor-hdf5-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const copy = (name: string): TestShard => {
    copyFileSync(`${HDF5_FIXTURES}/${name}`, join(folder, name));
    return hdf5Shard(name, folder);
  };
  // part1.h5 is not beside it.
  const virtual = copy("virtual.h5");
  await refused(virtual, "ATH_SHARD_INVALID", /virtual, and its file .*part0\.h5 is missing/);
  copy("part0.h5");
  await refused(virtual, "ATH_SHARD_INVALID", /part1\.h5 is missing/);
  await refused(hdf5Shard("compound.h5"), "ATH_FORMAT_UNSUPPORTED", /no dataset has rows .*scalar.*compound/);
  const cut = copy("numbers.h5");
  truncateSync(join(folder, "numbers.h5"), 9000);
  await refused(cut, "ATH_SHARD_TRUNCATED", /ends at byte 9000, its superblock says 15217/);
});

test("external storage is refused, not read as zeros", async () => {
  const { blocks } = await scanShard(hdf5, hdf5Shard("external.h5"));
  assert.equal(blocks[0]!.columns.faults.size, 40);
  assert.match(blocks[0]!.columns.faults.get(0)!.message, /external/);
});

test("an unknown filter is named before the first value", async () => {
  await refused(
    hdf5Shard("unknown.h5"),
    "ATH_FORMAT_UNSUPPORTED",
    /dataset \/x: HDF5 filter 32024 \(.*\) is not available/,
  );
});

for (const name of ["forms0", "forms1"]) {
  test(`${name}.h5: bfloat16 is not read as float16, other forms of numbers are no columns, and what is left out is told of`, async () => {
    const { blocks, end } = await checkShard(hdf5, hdf5Shard(`${name}.h5`));
    const records = recordsOf(blocks) as { [field: string]: Json }[];
    const narrow = [1, -2.5, 0.15625, { float: "Infinity" }, 65280, 2.9907629905160607e38];
    assert.deepEqual(Object.keys(records[0]!), ["array", "bfloat", "ints", "named", "plain16", "plain32", "plain64"]);
    for (const [i, value] of narrow.entries()) {
      assert.deepEqual(records[i], {
        ...records[i],
        array: [value, value],
        bfloat: value,
        named: value,
        ints: [2 * i, 2 * i + 1],
      });
    }
    assert.deepEqual(
      records.map(({ plain16 }) => plain16),
      [1, -2.5, 0.15625, 60000, 60000, 60000],
    );
    const odd = "holds integers of fewer bits than their bytes have, or floats that are not IEEE 754";
    assert.deepEqual(end.notColumns, {
      alone: "is a scalar",
      float24: odd,
      int12: odd,
      other_rows: "has 3 rows, and the datasets that records are made of 6",
      pair: "holds values of type compound",
    });
  });
}
