// The harness for damaged shards finds what it is there to find: a toy format, and the same with planted defects.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { test } from "node:test";
import { RecordMalformed } from "../../src/formats/errors.ts";
import { checkShard } from "./blocks.ts";
import { hostile } from "./hostile.ts";
import { bytesAsInts, shard, toy, type Decode } from "./toy.ts";

test("damaged shards of a sound format are read or refused, the same way for the same seed", async () => {
  const report = await hostile(toy(bytesAsInts), [shard], 200, { seed: 7 });
  assert.ok(report.read > 50 && report.refused > 5, JSON.stringify(report));
  assert.equal(report.read + report.refused, 200);
  assert.deepEqual(Object.keys(report.codes), ["ATH_RECORD_MALFORMED"]);
  assert.deepEqual(await hostile(toy(bytesAsInts), [shard], 200, { seed: 7 }), report);
});

test("an exception without a code is found, and named by seed and mutation", async () => {
  const crash: Decode = (bytes, records) => {
    if (bytes.includes(0xfe)) throw new RangeError("Invalid typed array length");
    return bytesAsInts(bytes, records);
  };
  await assert.rejects(
    hostile(toy(crash), [shard], 200, { seed: 7 }),
    /toy seed 7 mutation \d+: .*\n*.*RangeError: Invalid typed/,
  );
});

test("columns() that differ from scan() are found, in a whole block and in a span", async () => {
  const other: Decode = (bytes, records) => {
    const block = bytesAsInts(bytes, records);
    block.fields.get("n")!.values[records - 1] = 1000;
    return block;
  };
  await assert.rejects(checkShard(toy(bytesAsInts, other), shard), /record 199, field n/);
  const inSpans: Decode = (bytes, records) => (records === 200 ? bytesAsInts : other)(bytes, records);
  await assert.rejects(checkShard(toy(bytesAsInts, inSpans), shard), /records \d+ to \d+/);
});

test("memory over the bound is found", async () => {
  const hoard: Decode = (bytes, records) => {
    if (bytes.length !== 200) new Uint8Array(768 * 1024 * 1024).fill(1);
    return bytesAsInts(bytes, records);
  };
  await assert.rejects(hostile(toy(hoard), [shard], 50, { seed: 7 }), /memory grew by/);
});

test("CPU time over the bound is found", async () => {
  const slow: Decode = (bytes, records) => {
    const { user } = process.cpuUsage();
    while (bytes.length !== 200 && process.cpuUsage().user - user < 300_000) {}
    return bytesAsInts(bytes, records);
  };
  await assert.rejects(hostile(toy(slow), [shard], 50, { seed: 7, cpuMs: 250 }), /ms of CPU time/);
});

test("a parser that never returns ends the process, and is named", () => {
  const toyed = fileURLToPath(new URL("hostile-hang.js", import.meta.url));
  const { signal, stderr } = spawnSync(process.execPath, [toyed], { encoding: "utf8", timeout: 60_000 });
  assert.equal(signal, "SIGKILL");
  assert.match(stderr, /hangs: toy seed 7 mutation \d+/);
});

test("a shard that the index takes and scan() refuses is found", async () => {
  const picky: Decode = (bytes, records) => {
    if (bytes.includes(0xfe)) throw new RecordMalformed("0xfe");
    return bytesAsInts(bytes, records);
  };
  const format = { ...toy(picky), index: toy(bytesAsInts).index };
  await assert.rejects(hostile(format, [shard], 200, { seed: 7 }), /verify takes what scan\(\) refuses/);
});
