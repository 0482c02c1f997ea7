// A tiny run of the real thing: rank processes, agent, shared memory, all contenders on files made here.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import { compareRanks } from "../../src/bench/compare-ranks.ts";
import { findPython } from "../../src/bench/python.ts";
import { benchTrain, type TrainOptions } from "../../src/bench/train.ts";

const run = promisify(execFile);
const LIMIT = { timeout: 300_000 };
let folder = "";
let options: TrainOptions;

before(async () => {
  folder = await mkdtemp(join(tmpdir(), "athanor-bench-"));
  const python = await findPython("torch", undefined);
  const source = join(folder, "data");
  await run(python.path, ["-m", "athanor.bench.data", "--out", source, "--n", "2000", "--seq", "64", "--shards", "3"], {
    env: python.env,
  });
  options = {
    source,
    batches: [8],
    ranks: 1,
    stepMs: 2,
    seconds: 0.5,
    passes: 1,
    width: 64,
    contenders: "naive,memmap,athanor",
    mode: "window",
    client: "torch",
    cacheDir: join(folder, "cache"),
    cold: false,
    seed: 1,
  };
});

after(() => rm(folder, { recursive: true, force: true }));

test("a table of real loaders: rates, utilisation, first batch, agent", LIMIT, async () => {
  const said: string[] = [];
  const report = await benchTrain(options, { say: (line) => said.push(line) });
  const rows = new Map(report.tables[0]!.rows.map((row) => [row.name, row]));
  assert.deepEqual([...rows.keys()], ["naive", "memmap", "athanor window"]);
  for (const [name, row] of rows) {
    assert.ok(row.samplesPerSecond.median > 0, name);
    assert.ok(row.au!.median > 0 && row.au!.median <= 100, `${name}: AU ${row.au!.median}`);
    assert.ok(row.firstSeconds.median > 0, name);
    // A step of 2 ms allows at most 500 steps of 8 samples a second.
    assert.ok(row.samplesPerSecond.max <= 4001, `${name}: ${row.samplesPerSecond.max} samples/s`);
  }
  const athanor = rows.get("athanor window")!;
  assert.equal(athanor.order!.shuffle, "window");
  assert.ok(athanor.agentPssBytes! > 2 ** 20);
  assert.equal(rows.get("naive")!.scaledFrom, 16);
  assert.equal(report.data.samples, 2000);
  assert.match(report.notes[0]!, /lowered/);
});

test("ranks are compared with numpy clients", LIMIT, async () => {
  const compared = await compareRanks(
    { ...options, batch: 8, mode: "window", worlds: [1, 2] },
    { say: () => undefined },
  );
  assert.deepEqual(
    compared.worlds.map((world) => world.ranks),
    [1, 2],
  );
  assert.ok(compared.agentMemory.median > 0.5);
});

test("a rank that fails is an error with its cause, and nothing stays behind", LIMIT, async () => {
  const batches = [4000];
  await assert.rejects(
    benchTrain({ ...options, batches, contenders: "memmap" }, { say: () => undefined }),
    (error: Error) => {
      assert.equal(error.name, "ATH_BENCH_RANK");
      assert.match(error.message, /fewer than one batch of 4000/);
      return true;
    },
  );
});
