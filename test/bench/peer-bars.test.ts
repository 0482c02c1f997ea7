import assert from "node:assert/strict";
import { test } from "node:test";
import { bars, growth } from "../../src/bench/peer-bars.ts";
import type { PeerPass } from "../../src/bench/peer-runs.ts";
import type { Section } from "../../src/bench/peer-parts.ts";
import type { PeersReport } from "../../src/bench/peers.ts";

function pass(number: number, rate: number, more: Partial<PeerPass> = {}): PeerPass {
  return {
    pass: number,
    samplesPerSecond: rate,
    readMBps: 0,
    diskMBps: 0,
    firstSeconds: 0.5,
    firstRunningSeconds: 0.1,
    trainerCpuPerM: 0.4,
    allCpuPerM: 4,
    longestStallSeconds: 0,
    samples: 1000,
    ...more,
  };
}

function section(part: Section["part"], ranks: number, batch: number, rows: Record<string, PeerPass[]>): Section {
  return { part, ranks, batch, passes: 1, results: Object.entries(rows).map(([name, passes]) => ({ name, passes })) };
}

function report(sections: Section[]): PeersReport {
  return {
    version: 1,
    machine: {
      cpu: "",
      cores: 2,
      memoryBytes: 0,
      kernel: "",
      loadBefore: 0,
      node: "",
      python: "",
      numpy: "",
      torch: "",
    },
    options: {
      cacheDir: "",
      samples: 100,
      width: 8,
      seed: 1,
      contenders: "all",
      batches: [32, 256],
      ranks: [1, 8],
      passes: 2,
      otherPasses: 1,
      seconds: 1,
      settleSeconds: 0,
      rate: 1,
      parts: ["warm"],
    },
    data: { source: "", samples: 100, bytes: 100_000, fileSystem: { type: "", mount: "", device: "" } },
    contenders: [],
    left: [],
    notes: [],
    sections,
    start: undefined,
    opens: [],
    // 1 GB/s of samples of 1 000 bytes: 10^6 samples/s.
    limits: [
      {
        name: "cold read, 4 MiB a read",
        wall: { median: 1, min: 1, max: 1 },
        cpu: undefined,
        cold: 0,
        unsupported: undefined,
      },
    ],
    minutes: 1,
  };
}

test("ratios are formed inside a pass, and a bar that is missed says so", () => {
  const found = bars(
    report([
      section("warm", 1, 32, {
        memmap_batch: [pass(0, 1000), pass(1, 100), pass(2, 500)],
        "athanor window": [pass(0, 700), pass(1, 90), pass(2, 350)],
        litdata: [pass(0, 100, { allCpuPerM: 40 }), pass(1, 10, { allCpuPerM: 40 }), pass(2, 50, { allCpuPerM: 44 })],
      }),
    ]),
  );
  const bar = (what: string) => found.find((each) => each.what.includes(what))!;
  assert.deepEqual(
    [bar("memmap_batch").value, bar("memmap_batch").met, bar("litdata").value, bar("litdata").met],
    [0.7, false, 7, true],
  );
  assert.equal(bar("litdata").cpuRatio, 10);
  assert.equal(bar("CPU s/M of the trainer, batch 32").met, true);
  assert.equal(bar("agent started").value, 0.5);
  // Batch 256, many ranks and cold files were not measured.
  assert.equal(found.length, 5);
});

test("eight ranks against one: agent CPU, and memory over ranks that load nothing", () => {
  const over = (bytes: number) => ({ over: { bytes, mapped: 0 }, memory: { bytes: 10 * bytes, mapped: 0 } });
  const whole = report([
    section("rate", 1, 32, { "athanor window": [pass(0, 100, { agentCpuPerM: 2, ...over(100) })] }),
    section("rate", 8, 32, { "athanor window": [pass(0, 100, { agentCpuPerM: 2.2, ...over(150) })] }),
  ]);
  const [ours] = growth(whole);
  assert.ok(Math.abs(ours!.agentCpu! - 1.1) < 1e-9 && Math.abs(ours!.memory! - 1.5) < 1e-9);
  assert.deepEqual(
    bars(whole).map(({ met }) => met),
    [true, false],
  );
});

test("cold is held to the smaller of sequential reading and the own warm rate", () => {
  const cold = (rate: number, warm: number) =>
    bars(
      report([section("cold", 1, 256, { "athanor window": [pass(0, rate)], "athanor window, warm": [pass(0, warm)] })]),
    );
  assert.equal(cold(950_000, 2_000_000)[0]!.value, 0.95);
  assert.equal(cold(400_000, 500_000)[0]!.met, false);
});
