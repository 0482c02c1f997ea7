import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import type { Plan } from "../../src/order/plan.ts";
import { writeShards } from "../feed/rig.ts";

const main = fileURLToPath(new URL("../../src/cli/main.js", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "athanor-plan-"));
after(() => rmSync(folder, { recursive: true, force: true }));

function athanor(args: readonly string[]) {
  const { status, stdout, stderr } = spawnSync(process.execPath, ["--max-old-space-size=512", main, ...args], {
    encoding: "utf8",
    timeout: 50_000,
  });
  return { status, stdout, stderr };
}

function plan(args: readonly string[]): Plan {
  const { status, stdout, stderr } = athanor(["plan", ...args, "--json"]);
  assert.equal(status, 0, stderr);
  return JSON.parse(stdout) as Plan;
}

function description(value: unknown): string {
  const file = join(folder, `${Math.random().toString(36).slice(2)}.json`);
  writeFileSync(file, JSON.stringify(value));
  return file;
}

test("a set of 1 PiB is planned from its description alone", () => {
  const file = description({
    shards: 1_000_000,
    shard_bytes: 2 ** 30,
    record_bytes: 1340,
    max_length: 512,
    columns: 2,
  });
  const started = performance.now();
  const found = plan([file, "--ranks", "1024", "--nodes", "128", "--batch", "8", "--step-ms", "250"]);
  const seconds = (performance.now() - started) / 1000;
  // 5 s on a machine of its own; ten times as much where the tests share it.
  assert.ok(seconds < 50, `${seconds} s`);
  assert.equal(found.data.samples, 801_299_000_000);
  assert.equal(found.order.extents, 4_000_000);
  assert.equal(found.order.shuffleWindow, 64 * 4096);
  assert.equal(found.betterLanes?.lanes, 128);
  assert.ok(found.storage.readers > 1.9 && found.storage.readers <= 2.01, "64 lanes over 128 nodes");
  assert.equal(found.epoch?.samplesPerSecond, 32_768);
  assert.ok(found.storage.firstPercent.shards <= found.data.shards / 20);
});

test("nodes alone: a rank each", () => {
  const file = description({ shards: 200, shard_bytes: 1 << 26, record_bytes: 2048 });
  assert.deepEqual(plan([file, "--nodes", "128"]), plan([file, "--nodes", "128", "--ranks", "128"]));
});

test("the plan of a set of 1 TiB on 16 nodes: steps, memory, opens, reads", () => {
  const file = description([{ shards: 1000, shard_bytes: 2 ** 30, record_bytes: 1340 }]);
  const { order, node, storage, betterLanes } = plan([
    file,
    "--ranks",
    "128",
    "--nodes",
    "16",
    "--batch",
    "8",
    "--grad-accum",
    "4",
  ]);
  assert.deepEqual(
    [order.steps, order.optimizerSteps, order.globalBatch],
    [4 * Math.ceil(801_299_000 / 4096), Math.ceil(801_299_000 / 4096), 4096],
  );
  assert.equal(node.lanes, 4);
  assert.ok(storage.readers <= 1.2 && node.mergedShare >= 0.9 && storage.firstPercent.extents <= 128);
  // Four lanes of 4096 + 3131 rows of 4160 bytes, four reads of three blocks, and some hundred rows on their way.
  const rows = 4 * (4096 + 3131) + 12 * 3131;
  assert.ok(Math.abs(node.memory.rows - rows * 4160) < 1500 * 4160, String(node.memory.rows));
  assert.ok(node.opens > 200 && node.opens < 270, "a sixteenth of 4000 extents, in some 230 shards");
  assert.equal(betterLanes, undefined);
});

test("steps of 48 get a better lane count; other modes say what they cost", () => {
  const file = description({ shards: 1000, shard_bytes: 2 ** 30, record_bytes: 1340 });
  assert.equal(plan([file, "--ranks", "48", "--nodes", "6", "--batch", "1"]).betterLanes?.lanes, 48);
  const random = plan([file, "--shuffle", "global", "--ranks", "16", "--nodes", "2"]);
  assert.ok(random.node.reads > 1e8 && random.node.mergedShare === 0);
  const text = athanor(["plan", file, "--shuffle", "global", "--ranks", "16", "--nodes", "2"]).stdout;
  assert.match(text, /note: shuffle="global" reads each sample alone/);
});

test("a plan of real shards agrees with their index", () => {
  const data = writeShards([30, 50, 20], 200);
  try {
    assert.equal(athanor(["plan", data, "--json"]).status, 1, "no index yet");
    assert.equal(athanor(["index", data]).status, 0);
    const held = plan([data, "--batch", "10", "--columns", "input_ids", "--max-length", "16"]);
    assert.deepEqual(
      [held.data.samples, held.data.shards, held.order.held, held.order.steps, held.node.opens],
      [100, 3, true, 10, 3],
    );
    const window = plan([data, "--batch", "10", "--shuffle-memory", "1KiB"]);
    assert.deepEqual([window.order.shuffle, window.order.window], ["window", 50]);
    assert.match(athanor(["plan", data, "--step-ms", "10"]).stdout, /100 samples/);
  } finally {
    rmSync(data, { recursive: true, force: true });
  }
});

test("what cannot be planned is refused", () => {
  const file = description({ shards: 2, shard_bytes: 100 });
  const cases: [string[], string, number][] = [
    [[file], "ATH_DESCRIPTION_INVALID", 2],
    [[join(folder, "missing.json")], "ATH_USAGE", 2],
    [
      [description({ shards: 2, shard_bytes: 1000, record_bytes: 10 }), "--ranks", "3", "--nodes", "2"],
      "ATH_ORDER_OPTION",
      2,
    ],
    [[file, "--ranks", "many"], "ATH_USAGE", 2],
    [[file, "--shuffle", "some"], "ATH_USAGE", 2],
    [
      [description({ shards: 2, shard_bytes: 100, record_bytes: 10 }), "--last", "drop", "--batch", "64"],
      "ATH_ORDER_OPTION",
      2,
    ],
  ];
  for (const [args, code, exit] of cases) {
    const { status, stderr, stdout } = athanor(["plan", ...args, "--json"]);
    assert.equal(status, exit, stderr);
    assert.equal(stdout, "");
    assert.equal((JSON.parse(stderr) as { error: { code: string } }).error.code, code);
  }
});

test("the bill: what an epoch asks of the file system, beside random access", () => {
  const file = description({ shards: 1000, shard_bytes: 2 ** 30, record_bytes: 1340, max_length: 512 });
  const job = [file, "--ranks", "128", "--nodes", "16", "--batch", "8", "--step-ms", "250"];
  const { bill, node, data, epoch } = plan(job);
  assert.deepEqual([bill.firstEpoch.opens, bill.firstEpoch.tables], [node.opens, node.opens]);
  assert.equal(bill.firstEpoch.reads, Math.ceil(node.reads));
  assert.equal(bill.laterEpochs.metadata, 0);
  // Less than one request for 1000 samples, and thousands of times fewer than one a sample.
  assert.ok(bill.readsPerThousand < 1, `${bill.readsPerThousand}`);
  assert.ok(bill.random.timesTheReads > 2000 && bill.random.reads === data.samples / 16);
  const { stdout } = athanor(["plan", ...job]);
  const perSecond = (bill.firstEpoch.metadata * 16) / epoch!.seconds;
  assert.match(
    stdout,
    new RegExp(`^bill a node +first epoch ${bill.firstEpoch.metadata} metadata calls: opens and closes`, "m"),
  );
  assert.ok(
    stdout.includes(`, ${Number(perSecond.toPrecision(3))}/s of all nodes; in the long run 0 an epoch`),
    stdout,
  );
  assert.match(
    stdout,
    /^cap +1 000 opens a second of the job, 62.5 of a node and 256 at once: a start needs \d+ for the first batch/m,
  );
  assert.match(stdout, /^1000 samples +0 metadata calls, 0\.11 reads in the long run$/m);
  assert.match(stdout, /^random access +the same samples, each read alone: 50 081 188 reads of 5\.31KiB, 9 071 times/m);
});

test("the cap on opens: a start of 128 nodes waits for nothing, a set of many shards held by all of them does", () => {
  const job = ["--ranks", "1024", "--nodes", "128", "--batch", "8"];
  const large = description({ shards: 10_000, shard_bytes: 2 ** 30, record_bytes: 1340, max_length: 512 });
  const { capped, node, bill } = plan([large, ...job]);
  assert.deepEqual([capped!.perSecond, capped!.share, capped!.burst], [1000, 1000 / 128, 256]);
  assert.deepEqual([capped!.startOpens, capped!.startSeconds], [2 * node.lanes + 3, 0]);
  assert.equal(capped!.epochSeconds, (bill.firstEpoch.opens + bill.firstEpoch.tables - 256) / (1000 / 128));
  const small = description({ shards: 500, shard_bytes: 2 ** 16, record_bytes: 1340, max_length: 512 });
  assert.equal(plan([small, ...job]).capped!.startOpens, 2 * 64 + 3);
  const { stdout } = athanor(["plan", small, ...job]);
  assert.match(stdout, /^cap .*; those of the first epoch take 1.59min or more$/m);
});
