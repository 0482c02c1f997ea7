// What the index learns of long packed lists: the kernel looks at 64 bytes at a time, the twin at each value.
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import {
  STATS_HEADER,
  STATS_MAX,
  STATS_MIN,
  STATS_PREFIX,
  STATS_STAMP,
  STATS_VALUES,
} from "../../src/kernels/assembly/layout.ts";
import { TABLE_BYTES, type Kernels } from "../../src/kernels/kernels.ts";
import { createKernels } from "../../src/kernels/load.ts";
import { concat, delimited, entry, statsTable, varint } from "./examples.ts";

const wasm = createKernels(1 << 22, "wasm");
const twin = createKernels(1 << 22, "twin");

/** A varint with more bytes than its value takes. */
function overlong(value: bigint, bytes: number): Uint8Array {
  const short = varint(value);
  if (bytes === 0) return short;
  const out = new Uint8Array(short.length + bytes).fill(0x80);
  out.set(short);
  out[short.length - 1]! |= 0x80;
  out[out.length - 1] = 0;
  return out;
}

/** Records of one feature `x`, whose packed list is these bytes. */
function survey(kernels: Kernels, lists: readonly Uint8Array[]): { scan: unknown; table: Uint8Array; view: DataView } {
  const records = lists.map((list) => delimited(1, entry("x", delimited(3, delimited(1, list)))));
  const memory = new Uint8Array(kernels.memory.buffer);
  const view = new DataView(kernels.memory.buffer);
  const table = kernels.tables + TABLE_BYTES;
  const offsets = table + 4096;
  const lengths = offsets + 4096;
  const from = lengths + 4096;
  const at = table + STATS_HEADER;
  memory.fill(0, table, from);
  memory.set(statsTable(["x"]), table);
  let behind = from;
  for (const [i, record] of records.entries()) {
    behind += 12; // of a frame, where faults say that the record begins
    memory.set(record, behind);
    view.setUint32(offsets + i * 4, behind - from, true);
    view.setUint32(lengths + i * 4, record.length, true);
    behind += record.length;
  }
  // What lies behind a record must not count: bytes that go on, then ends.
  memory.fill(0xff, behind, behind + 32);
  memory.fill(0x7f, behind + 32, behind + 64);
  const scan = kernels.statsExamples(from, offsets, lengths, records.length, table);
  return { scan, table: memory.slice(at, at + STATS_STAMP), view: new DataView(memory.slice(at, at + 64).buffer) };
}

function same(lists: readonly Uint8Array[]): DataView {
  const found = survey(wasm, lists);
  const expected = survey(twin, lists);
  assert.deepEqual(found.scan, expected.scan);
  assert.deepEqual(found.table, expected.table);
  return found.view;
}

const borders = [0n, 1n, 127n, 128n, 16383n, 16384n, 102399n, 2n ** 21n - 1n, 2n ** 21n, 2n ** 63n - 1n, -1n];
const value = fc.oneof(
  { weight: 6, arbitrary: fc.bigInt({ min: 0n, max: 130_000n }) },
  { weight: 3, arbitrary: fc.bigInt({ min: 0n, max: 300n }) },
  { weight: 1, arbitrary: fc.constantFrom(...borders) },
);
const one = fc.tuple(value, fc.constantFrom(0, 0, 0, 0, 0, 0, 0, 1, 2, 4)).map(([n, more]) => overlong(n, more));
const stretch = fc.oneof(
  fc.array(one, { maxLength: 60 }).map((parts) => concat(...parts)),
  fc
    .tuple(one, fc.nat(200))
    .map(([part, times]) => concat(...Array.from({ length: part.length > 3 ? 1 : times }, () => part))),
  fc.array(fc.bigInt({ min: 100n, max: 102_000n }), { maxLength: 90 }).map((ids) => concat(...ids.map(varint))),
  fc.tuple(fc.nat(150), fc.nat(150)).map(([a, b]) => concat(new Uint8Array(a).fill(1), new Uint8Array(b))),
);
const list = fc.array(stretch, { maxLength: 4 }).map((parts) => concat(...parts));

test("twin and WebAssembly learn the same of long lists, one record behind another", () => {
  fc.assert(
    fc.property(fc.array(list, { minLength: 1, maxLength: 8 }), (lists) => void same(lists)),
    { numRuns: 1500 },
  );
});

test("they find the same fault in lists that are cut or damaged", () => {
  const change = fc.tuple(fc.nat(), fc.constantFrom(0, 0x7f, 0x80, 0xff));
  fc.assert(
    fc.property(
      fc.array(list, { minLength: 1, maxLength: 4 }),
      fc.array(change, { maxLength: 6 }),
      (lists, changes) => {
        const last = lists.at(-1)!.slice();
        for (const [at, byte] of changes) if (last.length > 0) last[at % last.length] = byte;
        same([...lists.slice(0, -1), last, last.subarray(0, last.length >>> 1)]);
      },
    ),
    { numRuns: 1500 },
  );
});

test("an extreme is found at every place of a list", () => {
  const first = concat(...Array.from({ length: 300 }, (_, i) => varint(BigInt(200 + 300 * i))));
  for (let at = 0; at < 200; at++) {
    for (const extreme of [5n, 127n, 199n, 89_901n, 131_072n, 2n ** 21n, -7n]) {
      const ids = Array.from({ length: 200 }, (_, i) => BigInt(300 + 411 * i));
      ids[at] = extreme;
      const view = same([first, concat(varint(150n), first), concat(...ids.map(varint))]);
      assert.equal(view.getBigUint64(STATS_VALUES, true), 801n);
      const [least, greatest] = [150n, 89_900n];
      assert.equal(view.getBigInt64(STATS_MIN, true), extreme < least ? extreme : least);
      assert.equal(view.getBigInt64(STATS_MAX, true), extreme > greatest ? extreme : greatest);
    }
  }
});

test("a row that is filled up with the greatest id costs no more values and no other extremes", () => {
  const ids = concat(...Array.from({ length: 300 }, (_, i) => varint(BigInt(i * 400))), varint(128_001n));
  const filled = concat(ids, ...Array.from({ length: 400 }, () => varint(128_001n)));
  for (const last of [128_001n, 128_000n, 128_002n, 129_279n, 128_129n]) {
    const view = same([ids, filled, concat(filled, varint(last))]);
    assert.equal(view.getBigInt64(STATS_MAX, true), last > 128_001n ? last : 128_001n);
    assert.equal(view.getBigUint64(STATS_VALUES, true), 301n + 701n + 702n);
  }
});

test("a mask of which one value is wrong is none, at every place", () => {
  for (let at = 0; at < 200; at++) {
    const mask = new Uint8Array(200).fill(1, 0, 120);
    assert.equal(same([mask]).getUint32(STATS_PREFIX, true), 1);
    mask[at] = mask[at] === 1 ? 0 : 1;
    const still = at === 119 || at === 120;
    assert.equal(same([mask]).getUint32(STATS_PREFIX, true), still ? 1 : 0, `at ${at}`);
    mask[at] = 2;
    assert.equal(same([mask, mask]).getUint32(STATS_PREFIX, true), 0);
  }
});
