// Parquet against its JSON twins made by pyarrow, columns() against scan(), at the usual size of a block and at such small ones that
// nearly every border falls inside a page; the cases from the field; damage.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync, readdirSync } from "node:fs";
import { basename } from "node:path";
import { test } from "node:test";
import { AthanorError } from "../../../src/base/errors.ts";
import { plainValue } from "../../../src/base/json.ts";
import { bulkLimits } from "../../../src/formats/parquet/bulk.ts";
import { parquet, parquetIn } from "../../../src/formats/parquet/format.ts";
import { readHead } from "../../../src/formats/parquet/page.ts";
import { LIMITS } from "../../../src/formats/parquet/scan.ts";
import { detectFormat } from "../../../src/formats/registry.ts";
import { ColumnStats } from "../../../src/formats/stats.ts";
import type { ColumnFormat } from "../../../src/formats/types.ts";
import { checkShard, rowOf, scanShard, shardOf, type TestShard } from "../blocks.ts";
import { fixtures } from "../fixtures.ts";
import { hostile } from "../hostile.ts";
import { hostileShards } from "./samples.ts";

const FOLDER = `${fixtures}/parquet`;
const OWN = readdirSync(FOLDER).filter((name) => name.endsWith(".parquet"));
const TINY = parquetIn({ ...LIMITS, storedBytes: 900, records: 40, textBytes: 300 });

type Rows = Record<string, unknown>[];

function twins(folder: string): [path: string, rows: Rows][] {
  const expected = JSON.parse(readFileSync(`${folder}/expected.json`, "utf8")) as Record<string, Rows>;
  return Object.entries(expected).map(([name, rows]) => [`${folder}/${name}`, rows]);
}

function load(path: string): TestShard {
  return shardOf(basename(path), readFileSync(path));
}

/** What `cat` prints, and columns() checked against scan() on the way. */
async function rowsOf(path: string, format: ColumnFormat = parquet): Promise<{ rows: Rows; blocks: number }> {
  const { blocks } = await checkShard(format, load(path));
  const rows: Rows = [];
  for (const { records, record } of blocks)
    for (let i = 0; i < records; i++) rows.push(plainValue(record!(i)) as Rows[0]);
  return { rows, blocks: blocks.length };
}

for (const [path, expected] of [...twins(FOLDER), ...twins(`${FOLDER}/public`)]) {
  test(`${basename(path)} gives the rows that pyarrow reads, in blocks of any size, by kernels and without`, async () => {
    const usual = { ...bulkLimits };
    for (const fewest of [1, Infinity]) {
      bulkLimits.fewest = fewest;
      assert.deepEqual((await rowsOf(path)).rows, expected);
    }
    Object.assign(bulkLimits, usual);
    const { rows, blocks } = await rowsOf(path, TINY);
    assert.deepEqual(rows, expected);
    if (FOLDER === path.slice(0, -basename(path).length - 1)) assert.ok(blocks >= 4, `${blocks} blocks`);
  });
}

test("nothing that pyarrow could not read is without a twin", () => {
  const known = [...twins(FOLDER), ...twins(`${FOLDER}/public`)].map(([path]) => basename(path));
  assert.equal(known.length, OWN.length + 27);
});

test("int96 is shown in nanoseconds, and no column", async () => {
  const { blocks } = await checkShard(parquet, load(`${FOLDER}/public/parquet-testing/int96_from_spark.parquet`));
  const [block] = blocks;
  assert.deepEqual([...block!.columns.fields.keys()], []);
  const shown = [0, 1].map((i) => block!.record!(i)["a"]);
  assert.deepEqual(shown, ["2024-01-01T20:34:56.123456000", "2024-01-01T01:00:00.000000000"]);
});

test("columns of a table: numbers, lists and text are fields, a list of structs is its JSON", async () => {
  const path = `${FOLDER}/v1-dictionary-snappy.parquet`;
  const { blocks, end } = await scanShard(parquet, load(path));
  const fields = ["id", "input_ids", "maybe_ids", "score", "weights", "text", "good"];
  assert.deepEqual(
    end.meta?.fields?.filter((name) => name !== "chat"),
    fields,
  );
  const rows = twins(FOLDER).find(([name]) => name === path)![1];
  let at = 0;
  for (const { records, columns } of blocks) {
    for (let i = 0; i < records; i++, at++) {
      for (const name of fields) {
        const value = rows[at]![name] as null | string | number | boolean | number[];
        const found = rowOf(columns.fields.get(name), i);
        const expected =
          value === null
            ? null
            : typeof value === "string"
              ? [...Buffer.from(value)]
              : ([value].flat() as number[]).map(Number);
        assert.deepEqual(found?.map(Number) ?? null, expected, `row ${at}, ${name}`);
      }
      const chat = columns.fields.get("chat");
      const text = rowOf(chat, i) as number[] | null;
      assert.equal(chat!.json, true);
      const expected = rows[at]!["chat"] as unknown[] | null;
      // No bytes are an empty list.
      assert.deepEqual(text && JSON.parse(Buffer.from(text).toString() || "[]"), expected, `row ${at}, chat`);
    }
  }
  assert.equal(at, 300);
  // Where they fit, integers are 32 bits wide, whatever is stored.
  assert.ok(blocks[0]!.columns.fields.get("id")!.values instanceof Int32Array);
  assert.ok(blocks[0]!.columns.fields.get("maybe_ids")!.values instanceof BigInt64Array);
});

function caseOf(number: string): { folder: string; expected: Record<string, unknown> } {
  const name = readdirSync(`${fixtures}/cases`).find((entry) => entry.startsWith(`${number}-`));
  const folder = `${fixtures}/cases/${name}`;
  return { folder, expected: JSON.parse(readFileSync(`${folder}/expected.json`, "utf8")) as Record<string, unknown> };
}

test("case 20: empty row groups, files of no rows", async () => {
  const { folder, expected } = caseOf("20");
  for (const [name, count] of Object.entries(expected["per_file"] as Record<string, number>)) {
    const { rows } = await rowsOf(`${folder}/${name}`);
    assert.deepEqual(rows, count === 0 ? [] : expected["records"], name);
  }
});

test("case 21: a column that falls back from its dictionary to plain pages", async () => {
  const { folder, expected } = caseOf("21");
  for (const format of [parquet, TINY]) {
    const { rows } = await rowsOf(`${folder}/fallback.parquet`, format);
    assert.equal(rows.length, expected["n"]);
    const text = createHash("sha256");
    const ids = createHash("sha256");
    for (const row of rows) {
      const word = Buffer.alloc(8);
      word.writeBigInt64LE(BigInt(row["id"] as number));
      ids.update(word);
      if (row["text"] === null) continue;
      const bytes = Buffer.from(row["text"] as string);
      word.writeBigUInt64LE(BigInt(bytes.length));
      text.update(word).update(bytes);
    }
    assert.equal(rows.filter((row) => row["text"] === null).length, 100);
    assert.equal(ids.digest("hex"), expected["id_sha256"]);
    assert.equal(text.digest("hex"), expected["text_sha256_nonnull"]);
  }
});

test("case 23: null lists, empty lists and nulls inside lists are four different things", async () => {
  const { folder, expected } = caseOf("23");
  for (const name of expected["input"] as string[]) {
    for (const format of [parquet, TINY])
      assert.deepEqual((await rowsOf(`${folder}/${name}`, format)).rows, expected["records"], name);
  }
});

test("a null inside a list is an error of its record where the field is asked for, and hides nothing of the others", async () => {
  const shard = load(`${caseOf("23").folder}/lists.parquet`);
  const { blocks, end } = await scanShard(parquet, shard);
  const stats = new ColumnStats(shard.path);
  stats.add(blocks[0]!.columns, blocks[0]!.records);
  const seen = stats.finish().schema.fields.find((field) => field.name === "tokens");
  assert.deepEqual([seen?.kind, seen?.present, seen?.minLength, seen?.maxLength], ["int64", 2, 0, 3]);
  assert.deepEqual([...blocks[0]!.columns.faults.keys()], []);
  const { rawOf, contentOf } = await import("../blocks.ts");
  const raw = rawOf(shard, await contentOf(shard, "plain"), blocks[0]!, end, 0, 0);
  const { fields, faults } = await parquet.columns(raw, ["tokens"]);
  assert.deepEqual([...faults.keys()], [3]);
  assert.equal(faults.get(3)!.code, "ATH_RECORD_MALFORMED");
  assert.deepEqual(
    [0, 1, 2].map((i) => rowOf(fields.get("tokens"), i)),
    [[1n, 2n, 3n], [], null],
  );
});

test("case 24: lists in the forms of older writers", async () => {
  const { folder, expected } = caseOf("24");
  for (const [name, records] of Object.entries(expected["records"] as Record<string, Rows>)) {
    assert.deepEqual((await rowsOf(`${folder}/${name}`)).rows, records, name);
  }
});

test("case 25: the offset of the dictionary is missing, 0 or wrong; pages of several gzip members", async () => {
  const { folder, expected } = caseOf("25");
  for (const [name, records] of Object.entries(
    expected["records"] as Record<string, Rows | { n: number; first: Rows }>,
  )) {
    const { rows } = await rowsOf(`${folder}/${name}`);
    if (Array.isArray(records)) assert.deepEqual(rows, records, name);
    else assert.deepEqual([rows.length, rows.slice(0, 3)], [records.n, records.first], name);
  }
});

test("case 27: cut files, a wrong footer length, an encrypted footer, a hole: what it is, and where", async () => {
  const { folder, expected } = caseOf("27");
  const codes: Record<string, [code: string, message: RegExp]> = {
    "cut-in-data.parquet": ["ATH_RECORD_TRUNCATED", /no PAR1 at the end.*37139 bytes/],
    "cut-in-footer.parquet": ["ATH_RECORD_TRUNCATED", /no PAR1 at the end/],
    "only-magic.parquet": ["ATH_RECORD_TRUNCATED", /4 bytes is too small for Parquet/],
    "zero-bytes.parquet": ["ATH_RECORD_TRUNCATED", /empty \(0 bytes\)/],
    "footer-length-too-big.parquet": ["ATH_RECORD_MALFORMED", /footer length 297116 is larger than the file \(74279/],
    "encrypted-footer.parquet": ["ATH_FORMAT_UNSUPPORTED", /encrypted \(PARE\)/],
    "hole-in-middle.parquet": ["ATH_RECORD_MALFORMED", /row group 0, column "text": .*reaches past the data/],
  };
  for (const { file, byte_offset } of expected["error"] as { file: string; byte_offset?: number }[]) {
    const shard = load(`${folder}/${file}`);
    assert.equal(detectFormat(shard.files[0]!.bytes.subarray(0, 4096), file)?.format, parquet, file);
    const error = await scanShard(parquet, shard).then(
      () => undefined,
      (thrown: unknown) => thrown,
    );
    assert.ok(error instanceof AthanorError, file);
    const [code, message] = codes[file]!;
    assert.equal(error.code, code, file);
    assert.match(error.message, message);
    if (byte_offset !== undefined) assert.equal(error.where.byteOffset, byte_offset, file);
  }
});

test("a flipped bit in a page with a checksum names column and byte; records before it are given", async () => {
  const bytes = Uint8Array.from(readFileSync(`${FOLDER}/v2-plain-zstd.parquet`));
  const { blocks } = await scanShard(TINY, shardOf("a.parquet", bytes));
  const segment = blocks.at(-1)!.segments.find(({ field }) => field === 2)!;
  bytes[segment.offset + segment.length - 1]! ^= 4;
  const given: number[] = [];
  const { shardFiles } = await import("../blocks.ts");
  const scan = TINY.scan(await shardFiles(shardOf("a.parquet", bytes)), { kernels: undefined as never });
  const error = await (async () => {
    for await (const block of scan) given.push(block.records);
  })().then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  assert.ok(error instanceof AthanorError && error.code === "ATH_RECORD_CRC", String(error));
  assert.match(error.message, /row group 0, column "input_ids.list.element": the page has CRC32/);
  const sum = given.reduce((a, b) => a + b, 0);
  assert.ok(sum > 100 && sum < 200, `${sum} records`);
  assert.ok(error.where.record! >= sum && error.where.byteOffset! >= segment.offset);
});

test("the progress of a scan ends at all its bytes", async () => {
  const told: number[] = [];
  const shard = load(`${FOLDER}/plain.parquet`);
  await scanShard(parquet, shard, { progress: (bytes) => told.push(bytes) });
  assert.deepEqual(
    told,
    told.toSorted((a, b) => a - b),
  );
  const size = shard.files[0]!.bytes.length;
  assert.ok(told.at(-1)! > size / 2 && told.at(-1)! < size, `${told.at(-1)} of ${size}`);
});

test("damaged files are read or refused", async () => {
  const report = await hostile(TINY, hostileShards(), 300, { seed: 5 });
  assert.ok(report.read > 10 && report.refused > 100, JSON.stringify(report));
});

test("a page header without sizes says so", () => {
  const place = { file: "a.parquet", column: "x", byteOffset: 4 };
  assert.throws(() => readHead(new Uint8Array(8), 0, place), /the page header names no size/);
});
