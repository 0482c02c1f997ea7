import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { Ledger } from "../../src/feed/ledger.ts";
import type { LedgerEntry } from "../../src/order/ledger.ts";

function entry(record: number): LedgerEntry {
  const replacement = { shard: "a.tfrecord", record: record + 1 };
  return { source: "data", shard: "a.tfrecord", record, byteOffset: 0, code: "ATH_RECORD_CRC", replacement };
}

test("a full disk cuts a line of the ledger short: what is written later makes no damaged line of it", async (t) => {
  // The folder is not read again within a second.
  t.mock.timers.enable({ apis: ["Date"], now: 1e12 });
  const folder = mkdtempSync(join(tmpdir(), "athanor-ledger-"));
  try {
    const ledger = await Ledger.open(folder, 10);
    await ledger.add([entry(1)], "a.tfrecord");
    const [name] = readdirSync(folder);
    const file = join(folder, name!);
    const text = readFileSync(file, "utf8");
    rmSync(file);
    mkdirSync(file); // cannot be written
    await assert.rejects(ledger.add([entry(2)], "a.tfrecord"), { code: "ATH_LEDGER_WRITE" });
    rmdirSync(file);
    writeFileSync(file, `${text}${text.slice(0, 20)}`);
    await ledger.add([entry(2)], "a.tfrecord");
    assert.equal((await Ledger.open(folder, 10)).distinct, 2);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
