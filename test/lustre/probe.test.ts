import assert from "node:assert/strict";
import { mkdtempSync, rmSync, symlinkSync, truncateSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { decodeLov } from "../../src/lustre/lov.ts";
import { probeOsts, secondsOf } from "../../src/lustre/probe.ts";
import type { Probe } from "../../src/lustre/probe.ts";
import { plainLov } from "./replay.ts";

const MIB = 2 ** 20;

test("one OST and several, by files on one OST each and by stripes; else the reason", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "athanor-probe-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const placed = (name: string, osts: readonly number[], size: number) => {
    writeFileSync(join(folder, name), "");
    truncateSync(join(folder, name), size);
    return { path: name, size, layout: decodeLov(plainLov(osts), name) };
  };
  const narrow = [0, 1, 2, 3, 4].map((ost) => placed(`${ost}`, [ost], 96 * MIB));
  const probe = (await probeOsts(folder, narrow, [0, 1, 2, 3, 4])) as Probe;
  assert.equal(probe.several?.osts, 4, JSON.stringify(probe));
  assert.equal(probe.bytes, 240 * MIB, "what was told beforehand, and no more");
  assert.ok(probe.one > 0 && probe.several.rate > 0);
  const wide = [placed("wide", [2, 3], 256 * MIB)];
  assert.equal(((await probeOsts(folder, wide, [0, 1, 2, 3])) as Probe).several.osts, 2);
  // An OST that does not work is left alone.
  assert.match((await probeOsts(folder, narrow, [3])) as string, /only one OST holds 96 MiB of these files/);
  assert.match((await probeOsts(folder, [], [0, 1])) as string, /no OST holds/);
  assert.match((await probeOsts(folder, narrow, [0, 1], "/no/python")) as string, /no Python here/);
  // A read that fails: what the others gave is no measurement.
  symlinkSync("/proc/self/mem", join(folder, "mem"));
  const unread = { ...narrow[1]!, path: "mem" };
  assert.match((await probeOsts(folder, [narrow[0]!, unread], [0, 1])) as string, /did not return|no Python/);
  rmSync(join(folder, "1"));
  assert.match((await probeOsts(folder, narrow, [0, 1])) as string, /did not return|no Python/);
});

test("times between what was measured, and never beyond", () => {
  const probe: Probe = { one: 100, several: { osts: 4, rate: 250 }, bytes: 1, seconds: 1 };
  assert.deepEqual(
    [0.5, 1, 2.5, 4, 40].map((parallel) => secondsOf(probe, 1000, parallel)),
    [10, 10, 1000 / 175, 4, 4],
  );
});
