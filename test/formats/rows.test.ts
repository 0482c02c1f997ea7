/** Rows out of typed columns, against a plain reading of the contract; and nothing written outside them. */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { storeRows } from "../../src/formats/rows.ts";
import { ROW_HEADER_BYTES, type BlockColumns, type Column, type StoredColumn } from "../../src/formats/types.ts";

const MAX = 5;
const ROWS_AT = 64;
const FIRST_ROW = 1024;
const ROW_BYTES = 192;

const stored = (name: string, storage: StoredColumn["storage"], rowOffset: number, bytes: number): StoredColumn => ({
  name,
  feature: name,
  storage,
  maxLength: MAX,
  pad: storage === "f32" ? "0.5" : "-7",
  rowOffset,
  rowBytes: bytes,
});
const COLUMNS = [
  stored("a", "i32", ROW_HEADER_BYTES, 24),
  stored("b", "i64", ROW_HEADER_BYTES + 24, 40),
  stored("c", "f32", ROW_HEADER_BYTES + 64, 24),
  { ...stored("m", "prefix", ROW_HEADER_BYTES + 88, 4), pad: "0" },
  { ...stored("n", "length", ROW_HEADER_BYTES + 96, 4), feature: "a", pad: "0" },
];

function column<T>(kind: Column["kind"], lists: T[][], make: (flat: T[]) => Column["values"]): Column {
  let end = 0;
  return { kind, values: make(lists.flat()), ends: Uint32Array.from(lists, (list) => (end += list.length)) };
}

/** The same lists with other values between them; masks as bytes. */
function apart([name, { kind, values, ends }]: [string, Column]): [string, Column] {
  const Type = (name === "m" ? Int8Array : values.constructor) as new (length: number) => Int32Array;
  const spread = new Type(values.length + 3 * ends.length).fill(
    (kind === "int64" && values instanceof BigInt64Array ? 7n : 7) as number,
  );
  const starts = ends.map((_, i) => (i === 0 ? 0 : ends[i - 1]!) + 3 * (i + 1));
  for (const [i, start] of starts.entries()) {
    spread.set(values.subarray(i === 0 ? 0 : ends[i - 1], ends[i]) as Int32Array, start);
  }
  return [name, { kind, values: spread, starts, ends: ends.map((end, i) => end + 3 * (i + 1)) }];
}

const list = <T>(of: fc.Arbitrary<T>): fc.Arbitrary<T[]> => fc.array(of, { maxLength: MAX + 3 });
const int = fc.integer({ min: -(2 ** 31), max: 2 ** 31 - 1 });
const records = fc.array(
  fc.record({
    a: list(int),
    b: list(fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n })),
    c: list(fc.float({ noNaN: true })),
    mask: fc.record({ ones: fc.nat({ max: 6 }), zeros: fc.nat({ max: 3 }) }),
    wanted: fc.boolean(),
  }),
  { minLength: 1, maxLength: 12 },
);

test("rows hold the first values of each list, padded; cut lists are counted; no byte outside the rows is written", () => {
  fc.assert(
    fc.property(records, fc.boolean(), fc.boolean(), (all, wide, scattered) => {
      const packed: BlockColumns = {
        faults: new Map(),
        fields: new Map([
          [
            "a",
            column<number>(
              "int64",
              all.map(({ a }) => a),
              (flat) => (wide ? BigInt64Array.from(flat, BigInt) : Int32Array.from(flat)),
            ),
          ],
          [
            "b",
            column(
              "int64",
              all.map(({ b }) => b),
              (flat) => BigInt64Array.from(flat),
            ),
          ],
          [
            "c",
            column(
              "float",
              all.map(({ c }) => c),
              (flat) => Float32Array.from(flat),
            ),
          ],
          [
            "m",
            column(
              "int64",
              all.map(({ mask }) => [...Array(mask.ones).fill(1), ...Array(mask.zeros).fill(0)] as number[]),
              (flat) => Int32Array.from(flat),
            ),
          ],
        ]),
      };
      const block = scattered ? { ...packed, fields: new Map([...packed.fields].map(apart)) } : packed;
      const buffer = new ArrayBuffer(FIRST_ROW + ROW_BYTES * (all.length + 1));
      const bytes = new Uint8Array(buffer).fill(0xee);
      const addresses = all.map(({ wanted }, i) => (wanted ? FIRST_ROW + i * ROW_BYTES : 0));
      new Uint32Array(buffer, ROWS_AT, all.length).set(addresses);
      const request = { rows: ROWS_AT, records: all.length, firstRecord: 40, shardKey: 2n ** 63n + 5n, file: "f" };
      const report = storeRows(buffer, COLUMNS, block, request);
      assert.equal(report.faults.size, 0);
      const isCut = ({ a, b, c, mask }: (typeof all)[number]): boolean =>
        [a, b, c].some((values) => values.length > MAX) || mask.ones + mask.zeros > MAX;
      assert.equal(report.rows, all.filter(({ wanted }) => wanted).length);
      assert.equal(report.truncated, all.filter((row) => row.wanted && isCut(row)).length);
      const view = new DataView(buffer);
      all.forEach((row, i) => {
        const at = FIRST_ROW + i * ROW_BYTES;
        if (!row.wanted) return assert.ok(bytes.subarray(at, at + ROW_BYTES).every((byte) => byte === 0xee));
        assert.equal(view.getBigUint64(at, true), 2n ** 63n + 5n);
        assert.equal(view.getBigUint64(at + 8, true), BigInt(40 + i));
        assert.equal(view.getUint32(at + 16, true), 0);
        assert.equal(view.getUint32(at + 20, true), isCut(row) ? 1 : 0);
        const padded = <T>(values: T[], pad: T): T[] => Array.from({ length: MAX }, (_, k) => values[k] ?? pad);
        assert.deepEqual([...new Int32Array(buffer, at + 32, MAX)], padded(row.a, -7));
        assert.deepEqual([...new BigInt64Array(buffer, at + 56, MAX)], padded(row.b, -7n));
        assert.deepEqual([...new Float32Array(buffer, at + 96, MAX)], padded(row.c, 0.5));
        assert.equal(view.getUint32(at + 120, true), Math.min(row.mask.ones, MAX));
        assert.equal(view.getUint32(at + 128, true), Math.min(row.a.length, MAX));
        assert.ok(bytes.subarray(at + 136, at + ROW_BYTES).every((byte) => byte === 0xee));
      });
    }),
    { numRuns: 200 },
  );
});

test("a value that its column cannot hold, and a record with a fault, are told of; the others are stored", () => {
  const wide = (lists: bigint[][]): Column => column("int64", lists, (flat) => BigInt64Array.from(flat));
  const fields = new Map([
    ["a", wide([[1n], [2n ** 31n], [3n], [4n]])],
    ["m", column("int64", [[1], [1], [1, 0, 1], [1, 0]], (flat) => Int32Array.from(flat))],
  ]);
  const buffer = new ArrayBuffer(4096);
  new Uint32Array(buffer, ROWS_AT, 4).set([1024, 1280, 1536, 1792]);
  const report = storeRows(
    buffer,
    [COLUMNS[0]!, COLUMNS[3]!],
    { fields, faults: new Map() },
    {
      rows: ROWS_AT,
      records: 4,
      firstRecord: 7,
      shardKey: 1n,
      file: "f",
    },
  );
  assert.deepEqual([report.rows, [...report.faults.keys()]], [2, [1, 2]]);
  assert.match(report.faults.get(1)!.message, /value 2147483648 does not fit int32/);
  assert.deepEqual(report.faults.get(2)!.where, { file: "f", record: 9 });
  assert.match(report.faults.get(2)!.message, /breaks the mask/);
  assert.equal(report.faults.get(1)!.code, "ATH_VALUE_RANGE");
});

test("a field that the shard does not have gives empty lists", () => {
  const buffer = new ArrayBuffer(4096);
  new Uint32Array(buffer, ROWS_AT, 1).set([1024]);
  const request = { rows: ROWS_AT, records: 1, firstRecord: 0, shardKey: 1n, file: "f" };
  assert.equal(storeRows(buffer, COLUMNS, { fields: new Map(), faults: new Map() }, request).rows, 1);
  assert.deepEqual([...new Int32Array(buffer, 1024 + 32, MAX)], Array(MAX).fill(-7));
  assert.equal(new Uint32Array(buffer)[(1024 + 128) / 4], 0);
});
