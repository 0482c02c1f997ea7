import assert from "node:assert/strict";
import { test } from "node:test";
import { escapeHtml, reportHtml } from "../../src/bench/html.ts";
import type { PassResult } from "../../src/bench/measure.ts";
import { type Report, rowOf, storyOf } from "../../src/bench/report.ts";
import { reportText } from "../../src/bench/table.ts";
import { contenders } from "../../src/bench/contenders.ts";

function passes(speeds: number[], more: Partial<PassResult> = {}): PassResult[] {
  return speeds.map((samplesPerSecond, pass) => ({
    pass,
    samplesPerSecond,
    readMBps: 1,
    diskMBps: 0,
    firstSeconds: 0.2,
    trainerCpuPerM: 2,
    allCpuPerM: 8,
    longestStallSeconds: 0.01,
    samples: samplesPerSecond * 5,
    ...more,
  }));
}

const results = new Map([
  ["naive", passes([200, 210, 190], { scaledFrom: 16, samples: 32 })],
  ["memmap", passes([100_000, 50_000, 100_000])],
  [
    "athanor window",
    passes([200_000, 100_000, 190_000], { agentPssBytes: 1e8, agentCpuPerM: 6, firstRunningSeconds: 0.1 }),
  ],
]);
const list = contenders("naive,memmap,athanor", "window");
const rows = list.map(({ name }) => rowOf(name, results.get(name)!, 100_000, results));
const report: Report = {
  version: 1,
  data: {
    source: "/data/<script>alert(1)</script>&\"'",
    samples: 100_000,
    bytes: 134e6,
    shards: 10,
    width: 512,
    fileSystem: { type: "ext4", mount: "/", device: "/dev/sda1" },
  },
  machine: {
    cpu: "x",
    cores: 2,
    memoryBytes: 2 ** 34,
    kernel: "6",
    loadBefore: 0,
    node: "20",
    python: "3.11",
    numpy: "2",
    torch: "2",
  },
  cache: "warm",
  client: "torch",
  ranks: 1,
  passes: 3,
  notes: [],
  tables: [
    {
      setting: { batch: 32, stepMs: 0, seconds: 5 },
      rows,
      story: storyOf(new Map(rows.map((row) => [row.name, row.samplesPerSecond.median])), list, 32, 100_000),
    },
  ],
};

test("rows: medians, ratios inside a pass, measured against extrapolated", () => {
  const [naive, memmap, athanor] = rows;
  assert.equal(athanor!.samplesPerSecond.median, 190_000);
  assert.deepEqual(athanor!.toMemmap, { median: 2, min: 1.9, max: 2 });
  assert.equal(athanor!.toNaive!.median.toFixed(0), "1000");
  assert.deepEqual([naive!.epochMeasured, memmap!.epochMeasured], [false, true]);
  assert.equal(athanor!.epochMinutes.toFixed(5), (100_000 / 190_000 / 60).toFixed(5));
});

test("the story's two ratios", () => {
  const { story } = report.tables[0]!;
  assert.equal(story.bound.toFixed(2), "1.54");
  assert.equal((story.naiveEpochMinutes! / story.athanorEpochMinutes!).toFixed(2), "3.43");
});

test("everything from outside is escaped, nothing is loaded from outside", () => {
  assert.equal(escapeHtml(`<a href="x">'&</a>`), "&lt;a href=&quot;x&quot;&gt;&#39;&amp;&lt;/a&gt;");
  const html = reportHtml(report);
  assert.ok(!html.includes("<script"));
  assert.ok(!/\b(src|href)=|url\(|@import/.test(html));
  assert.ok(html.includes("&lt;script&gt;alert(1)&lt;/script&gt;"));
  assert.equal(html.split("<rect").length - 1, 3);
});

test("the text names scaled and extrapolated numbers", () => {
  const text = reportText(report);
  assert.match(text, /^naive \(scaled\) .* x /m);
  assert.match(text, /^athanor window .* m /m);
  assert.match(text, /file system: ext4 at \//);
});
