import assert from "node:assert/strict";
import { test } from "node:test";
import { ledgerLine, readLedger, withLedger } from "../../src/order/ledger.ts";
import type { LedgerEntry } from "../../src/order/ledger.ts";
import { Order } from "../../src/order/order.ts";
import { expectedSum, identities, ProofSum, shardKey } from "../../src/order/proof.ts";
import { extentsOf, resolvedOf, vectors, viewOf } from "./vectors.ts";

const counts = vectors().order[0]!.extents;
const order = Order.single(viewOf(counts), extentsOf(counts), resolvedOf(vectors().order[0]!.options));
const own = identities([{ path: "a", records: counts.reduce((sum, n) => sum + n, 0) }], "data");

const entry = (record: number, instead: number, source = "data"): LedgerEntry => ({
  source,
  shard: "a",
  record,
  byteOffset: 16 * record,
  code: "ATH_RECORD_CRC",
  replacement: { shard: "a", record: instead },
});

test("lines are read as they were written, a torn last one is left out, damage names file and line", () => {
  const entries = [entry(1, 2), entry(7, 8)];
  const text = entries.map(ledgerLine).join("");
  assert.deepEqual(readLedger([{ name: "x", text: text + text.slice(0, 20) }]), entries);
  assert.throws(
    () => readLedger([{ name: "x", text: text.replace('"record":7', '"record":-7') }]),
    (error: { code: string; where: object; message: string }) => {
      assert.equal(error.code, "ATH_LEDGER_INVALID");
      assert.deepEqual(error.where, { file: "x", line: 2 });
      assert.match(error.message, /record/);
      return true;
    },
  );
});

/** What is summed when `records` of the first 24 positions were served by others. */
function served(instead: ReadonlyMap<number, number>): bigint {
  const sum = new ProofSum();
  for (let position = 0; position < 24; position++) {
    const record = order.locate(position).sample;
    sum.add(position, shardKey("data", "a"), instead.get(record) ?? record, 0);
  }
  return sum.value;
}

const bad = Array.from({ length: 24 }, (_, position) => order.locate(position).sample).filter((_, i) => i % 5 === 0);

test("a step is proved with what stood in, with the records themselves, and with any mixture, but with nothing else", () => {
  const newest = new Map(bad.map((record) => [record, record + 1]));
  const older = new Map(bad.map((record) => [record, record + 2]));
  const entries = bad.flatMap((record) => [
    entry(record, record + 2),
    entry(record, record + 1),
    entry(record, record + 1),
  ]);
  const identify = withLedger(own, [...entries, entry(bad[0]!, 0, "another source")]);
  const check = (sum: bigint) => expectedSum(order, 0, 24, (_source, sample) => identify(sample), sum);
  const mixed = new Map([...newest].filter((_, i) => i % 2 === 0));
  mixed.set(bad[1]!, older.get(bad[1]!)!);
  for (const instead of [newest, older, new Map<number, number>(), mixed])
    assert.deepEqual(check(served(instead)), { sum: served(instead), replaced: bad.length });
  const wrong = served(new Map(newest).set(bad[0]!, bad[0]! + 3));
  assert.deepEqual(check(wrong), { sum: served(newest), replaced: bad.length });
});
