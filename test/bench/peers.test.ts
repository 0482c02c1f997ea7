// A tiny run of the real thing, without the peers: forked ranks, agent, all parts, on data made here.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { limitsText, benchLimits } from "../../src/bench/limits.ts";
import { countCalls } from "../../src/bench/peer-opens.ts";
import { peerContenders } from "../../src/bench/peer-list.ts";
import { peersMarkdown, peersText } from "../../src/bench/peer-table.ts";
import type { PeersOptions } from "../../src/bench/peer-parts.ts";
import { benchPeers } from "../../src/bench/peers.ts";
import { findPython } from "../../src/bench/python.ts";

const LIMIT = { timeout: 600_000 };
const noStrace = spawnSync("strace", ["-V"]).status !== 0 && "skipped: strace is not installed";
let folder = "";
let options: PeersOptions;

before(async () => {
  folder = await mkdtemp(join(tmpdir(), "athanor-bench-peers-"));
  options = {
    cacheDir: folder,
    samples: 1200,
    width: 32,
    seed: 1,
    contenders: "memmap_batch,megatron,athanor window,tfdata",
    batches: [8],
    ranks: [1, 2],
    passes: 1,
    otherPasses: 1,
    seconds: 0.2,
    settleSeconds: 0.02,
    rate: 2000,
    parts: ["warm", "cold", "rate", "start"],
  };
});

after(() => rm(folder, { recursive: true, force: true }));

test("contenders on the same data: rates, memory, cold files, many ranks; who is missing is said", LIMIT, async () => {
  const report = await benchPeers(options, { say: () => undefined });
  assert.deepEqual(
    report.contenders.map(({ name }) => name),
    ["memmap_batch", "athanor window", "megatron"],
  );
  assert.deepEqual(
    report.left.map(({ name, why }) => [name, /TensorFlow/.test(why)]),
    [["tfdata", true]],
  );
  const section = (part: string, ranks: number) => {
    const found = report.sections.find((each) => each.part === part && each.ranks === ranks)!;
    return new Map(found.results.map(({ name, passes }) => [name, passes]));
  };
  for (const ranks of [1, 2]) {
    const rows = section("warm", ranks);
    assert.deepEqual([...rows.keys()], ["memmap_batch", "athanor window", "megatron"]);
    for (const [name, passes] of rows) {
      assert.equal(passes.length, 1, name);
      for (const pass of passes) {
        assert.ok(pass.samplesPerSecond > 0 && pass.firstSeconds > 0, name);
        assert.ok(pass.allCpuPerM >= pass.trainerCpuPerM, name);
      }
    }
    const ours = rows.get("athanor window")![0]!;
    assert.equal(ours.order!.shuffle, "window");
    assert.ok(ours.agentPssBytes! > 2 ** 20 && ours.over!.bytes > ours.agentPssBytes! / 2);
  }
  for (const [name, passes] of section("cold", 1)) {
    if (name.endsWith(", warm")) assert.equal(passes[0]!.resident, undefined);
    else assert.ok(passes[0]!.resident! <= 0.05, name);
    // It ends within the first epoch.
    assert.ok(passes[0]!.samples < 1200, name);
  }
  // One rate, whatever the number of ranks; a busy machine gives less, never more.
  for (const ranks of [1, 2]) {
    for (const [name, [pass]] of section("rate", ranks)) assert.ok(pass!.samplesPerSecond < 2600, name);
  }
  assert.deepEqual(
    report.start!.resume.map(({ at, running }) => [at, running.median > 0]),
    [0.01, 0.5, 0.99].map((at) => [at, true]),
  );
  assert.ok(report.start!.indexPerCpu.median > 0);
  const { load } = report.start!;
  assert.deepEqual([load.blocks, load.wall.median > 0, load.cpu.median > 0], [10_000, true, true]);
  assert.match(peersText(report), /not measured: tfdata/);
  assert.match(peersMarkdown(report, "npm run x"), /\n\| loader \| samples\/s/);
});

test("opens and stats of the data alone are counted", { ...LIMIT, skip: noStrace }, async () => {
  const parts = ["opens"] as const;
  const report = await benchPeers(
    { ...options, contenders: "megatron,athanor window", parts },
    { say: () => undefined },
  );
  const [ours, megatron] = report.opens;
  assert.equal(ours!.name, "athanor window");
  assert.ok(ours!.start.opens > 0);
  // Ten pairs of files, each opened for its index's head, its arrays and its map, none behind the first batch.
  assert.ok(megatron!.start.opens >= 30, `${megatron!.start.opens}`);
  assert.equal(megatron!.run.opens, 0);
});

test("limits: every one is a rate, cold reads find nothing in the cache", LIMIT, async () => {
  const python = await findPython("numpy", undefined);
  const paths = [join(folder, "formats-1200x32-seed1", "tfrecord")];
  const report = await benchLimits({ paths, passes: 1, shm: "/dev/shm", mib: 2 }, python);
  assert.ok(report.limits.length >= 14);
  for (const { name, wall, cold, unsupported } of report.limits) {
    assert.ok(unsupported !== undefined || wall!.median > 0, name);
    if (name.startsWith("cold")) assert.ok(cold! <= 0.05, name);
  }
  assert.match(limitsText(report), /memcpy, 2 threads/);
});

test("a call counts when its path or its file lies in the data", () => {
  const trace = [
    '71 openat(AT_FDCWD</home>, "/d/x/000.tar", O_RDONLY|O_CLOEXEC) = 17</d/x/000.tar>',
    '71 openat(AT_FDCWD</home>, "/usr/lib/x.so", O_RDONLY|O_CLOEXEC) = 18</usr/lib/x.so>',
    '71 newfstatat(17</d/x/000.tar>, "", {st_mode=S_IFREG}, AT_EMPTY_PATH) = 0',
    '72 access("/d/x/none", F_OK) = -1 ENOENT (No such file or directory)',
    '72 openat(AT_FDCWD</home>, "/d/x/001.tar", O_RDONLY <unfinished ...>',
    "72 <... openat resumed>) = 19</d/x/001.tar>",
  ].join("\n");
  assert.deepEqual(countCalls(trace, "/d/x"), { opens: 2, stats: 2 });
});

test("contenders by name or by loader; an unknown one is named", () => {
  const names = (list: string) => peerContenders(list).map(({ name }) => name);
  assert.deepEqual(names("webdataset:2,athanor"), ["athanor window", "athanor global", "webdataset:2"]);
  assert.deepEqual(names("webdataset"), ["webdataset"]);
  assert.ok(names("all").length >= 15);
  assert.throws(() => peerContenders("ffcv"), /"ffcv"/);
});
