// `athanor bench storage`: real processes on real files; what it leaves behind on each way out.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, readdirSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import type { TestContext } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { benchStorage } from "../../src/bench/storage.ts";
import type { StorageOptions } from "../../src/bench/storage.ts";
import { MAIN, athanor } from "../cli/athanor.ts";
import { recorded } from "../lustre/fixtures.ts";
import { WELL, plainLov, replay } from "../lustre/replay.ts";

const MIB = 1 << 20;
const SILENT = { say: () => undefined };

function folder(t: TestContext, where = tmpdir()): string {
  const made = mkdtempSync(join(where, "athanor-bench-test-"));
  t.after(() => rmSync(made, { recursive: true, force: true }));
  return made;
}

const options = (path: string): StorageOptions => ({
  path,
  read: false,
  size: 32 * MIB,
  processes: 2,
  passes: 3,
  osts: 8,
  timeoutMs: 60_000,
});

test("all four patterns are measured, and nothing is left", async (t) => {
  const path = folder(t);
  const report = await benchStorage(options(path), SILENT);
  const named = report.rows.map(({ pattern, op, processes }) => `${pattern} ${op} ${processes}`);
  const levels = (what: string): string[] => [`${what} 1`, `${what} 2`];
  const kinds = ["shards read", "small-files write", "small-files read", "checkpoints write", "checkpoints read"];
  assert.deepEqual(named.sort(), [...kinds, "shared read"].flatMap(levels).sort());
  assert.ok(report.bytes > 28 * MIB && report.bytes <= 32 * MIB, `${report.bytes}`);
  for (const { rate, seconds, files, pattern } of report.rows) {
    assert.ok(rate.min > 0 && rate.min <= rate.median && rate.median <= rate.max && seconds > 0);
    assert.equal(files !== undefined, pattern === "small-files");
    if (files !== undefined) assert.ok(files.p50 > 0 && files.p50 <= files.p99 && files.p99 <= files.max);
  }
  assert.deepEqual(
    report.limits.map(({ about }) => about),
    ["shards", "small-files", "checkpoints", "shared"],
  );
  assert.deepEqual(readdirSync(path), []);
});

test("what memory gives is never called cold", async (t) => {
  const report = await benchStorage(options(folder(t, "/dev/shm")), SILENT);
  assert.equal(report.way, "cached");
  assert.deepEqual(
    report.rows.filter((row) => row.cold || (row.op === "read" && (row.ofBest ?? row.ofTargets) !== undefined)),
    [],
  );
  assert.equal(report.best.read, undefined);
  for (const { about, text } of report.limits) if (about !== "checkpoints") assert.match(text, /not cold/);
});

test("--read writes nothing, takes files as they are, and leaves hidden ones and links alone", (t) => {
  const path = folder(t);
  const outside = folder(t);
  writeFileSync(join(outside, "x"), Buffer.alloc(MIB, 1));
  for (const name of ["a.tar", "b.tar"])
    writeFileSync(join(path, name), Buffer.alloc(9 * MIB + 5, name), { mode: 0o400 });
  writeFileSync(join(path, ".hidden"), "no");
  symlinkSync(join(outside, "x"), join(path, "link"));
  const before = readdirSync(path).map((name) => [name, statSync(join(path, name)).mtimeMs]);
  const ran = athanor("bench", "storage", path, "--read", "--json", "--processes", "2");
  assert.equal(ran.code, 0, ran.stderr);
  const [report] = ran.lines() as { bytes: number; written: boolean; rows: { pattern: string; op: string }[] }[];
  assert.equal(report!.bytes, 2 * (9 * MIB + 5));
  assert.deepEqual(
    new Set(report!.rows.map(({ pattern, op }) => `${pattern} ${op}`)),
    new Set(["shards read", "shared read"]),
  );
  assert.deepEqual(
    readdirSync(path).map((name) => [name, statSync(join(path, name)).mtimeMs]),
    before,
  );
  assert.equal(athanor("bench", "storage", join(path, "a.tar"), "--read", "--passes", "1").code, 0);
  assert.equal(athanor("bench", "storage", folder(t), "--read", "--json").error().code, "ATH_BENCH_DATA");
});

test("too large, too small, no folder, a file: refused, and nothing is left", (t) => {
  const path = folder(t);
  const refused = (...args: string[]) => athanor("bench", "storage", ...args, "--json").error();
  assert.equal(refused(path, "--size", "1PiB").code, "ATH_BENCH_ROOM");
  assert.equal(refused(path, "--size", "1MiB").code, "ATH_USAGE");
  assert.deepEqual(readdirSync(path), []);
  assert.equal(refused(join(path, "none")).code, "ATH_NOT_FOUND");
  writeFileSync(join(path, "file"), "x");
  assert.equal(refused(join(path, "file")).code, "ATH_NOT_FOUND");
});

for (const signal of ["SIGINT", "SIGTERM", "SIGKILL"] as const) {
  test(`${signal} in the middle: ends by it, and the folder is removed`, async (t) => {
    const path = folder(t);
    const child = spawn(process.execPath, [MAIN, "bench", "storage", path, "--size", "64MiB", "--passes", "1000"], {
      stdio: ["ignore", "ignore", "pipe"],
    });
    const ended = new Promise<NodeJS.Signals | null>((resolve) => child.on("exit", (_, by) => resolve(by)));
    let said = "";
    child.stderr.on("data", (text) => (said += text));
    await until(() => said.includes("pass 1 of"));
    assert.equal(readdirSync(path).length, 1);
    assert.equal(statSync(join(path, readdirSync(path)[0]!)).mode & 0o777, 0o700);
    child.kill(signal);
    assert.equal(await ended, signal);
    // Killed, it leaves that to the process that made the folder.
    if (signal === "SIGKILL") await until(() => readdirSync(path).length === 0);
    assert.deepEqual(readdirSync(path), []);
    await until(() => processesIn(path).length === 0);
  });
}

test("a process of it that is killed is an error, and the folder is removed", async (t) => {
  const path = folder(t);
  let killed = 0;
  const say = (line: string): void => {
    if (killed > 0 || !line.includes("pass 2")) return;
    // The one that holds the folder is the first.
    killed = children().at(-1)!;
    process.kill(killed, "SIGKILL");
  };
  await assert.rejects(benchStorage(options(path), { say }), { code: "ATH_BENCH_RANK" });
  assert.ok(killed > 0);
  assert.deepEqual(readdirSync(path), []);
});

/** As `lfs quota` prints it, KiB. */
const QUOTA = (used: number, limit: number): string =>
  `Disk quotas for usr u (uid 0):\n      Filesystem  kbytes  bquota  blimit  bgrace   files  iquota  ilimit  igrace\n     /mnt/lustre   ${used}       0  ${limit}       -      10       0       0       -\n`;

test("Lustre: a file on each OST that works, each measured by itself; layouts are set under the own folder only", (t) => {
  const inactive = {
    "osts /mnt/lustre": { stdout: recorded("fail-inactive-lfs-osts.txt") },
    "df /mnt/lustre": { stdout: recorded("fail-inactive-lfs-df.txt") },
  };
  const scene = replay(t, {
    lfs: {
      ...WELL,
      ...inactive,
      setstripe: {},
      project: { stdout: "    0 - /mnt/lustre\n" },
      quota: { stdout: QUOTA(0, 0) },
      "lctl list_nids": { stdout: "127.0.0.1@tcp\n" },
    },
    host: { "sys/class/net/lo/speed": "100000\n" },
  });
  const ran = scene.athanor(
    "bench",
    "storage",
    scene.folder,
    "--size",
    "32MiB",
    "--processes",
    "1",
    "--passes",
    "1",
    "--json",
  );
  assert.equal(ran.code, 0, ran.stderr);
  const report = JSON.parse(ran.stdout) as Awaited<ReturnType<typeof benchStorage>>;
  assert.deepEqual(
    report.targets.map(({ name, read, write }) => [name, (read?.median ?? 0) > 0, (write?.median ?? 0) > 0]),
    [0, 2, 3].map((ost) => [`lustre-OST000${ost}`, true, true]),
  );
  assert.equal(report.targetsInAll, 4);
  assert.match(report.notes.join(), /left out: lustre-OST0001 \(inactive\)/);
  assert.deepEqual(report.network, { bytesPerSecond: 12.5e9, text: "lo: 100 Gbit/s" });
  const read = report.rows.find(({ pattern, cold }) => pattern === "shards" && cold);
  if (read !== undefined) assert.ok(read.ofTargets! > 0 && read.ofNetwork! > 0);
  const laid = scene.calls().filter((call) => call.startsWith("setstripe"));
  assert.equal(laid.length, 3);
  for (const [i, call] of laid.entries())
    assert.match(call, new RegExp(`^setstripe -c 1 -i ${[0, 2, 3][i]} /mnt/lustre/\\.athanor-bench-\\w+/shard-${i}$`));
  assert.deepEqual(readdirSync(scene.folder), []);
});

test("Lustre: a quota that would not hold it is named", (t) => {
  const quota = replay(t, { lfs: { ...WELL, setstripe: {}, quota: { stdout: QUOTA(900_000, 1_000_000) } } });
  const ran = quota.athanor("bench", "storage", quota.folder, "--size", "64MiB", "--json");
  const { error } = JSON.parse(ran.stderr) as { error: { code: string; message: string } };
  assert.equal(error.code, "ATH_BENCH_ROOM");
  assert.match(error.message, /^quota of user \d+: 97\.7MiB left, 12\d(\.\d)?MiB needed/);
  assert.deepEqual(readdirSync(quota.folder), []);
});

test("Lustre, --read: files on one OST tell of it; a released one is not read", (t) => {
  const files = Object.fromEntries(
    [[0], [1], [1], [0, 2], [3]].map((osts, i) => {
      const released = { pattern: i === 4 ? 0x8000_0001 : 1 };
      return [`d/${i}.tar`, { size: 8 * MIB, lov: plainLov(osts, released) }];
    }),
  );
  const scene = replay(t, { files, lfs: { ...WELL, setstripe: {} } });
  // A sparse file looks like a released one.
  for (const name of Object.keys(files))
    writeFileSync(join(scene.folder, name), Buffer.alloc(8 * MIB, 7), { flag: "r+" });
  const ran = scene.athanor(
    "bench",
    "storage",
    `${scene.folder}/d`,
    "--read",
    "--processes",
    "1",
    "--passes",
    "1",
    "--json",
  );
  assert.equal(ran.code, 0, ran.stderr);
  const report = JSON.parse(ran.stdout) as Awaited<ReturnType<typeof benchStorage>>;
  assert.deepEqual(
    report.targets.map(({ name, write }) => [name, write]),
    [0, 1].map((ost) => [`lustre-OST000${ost}`, undefined]),
  );
  assert.equal(report.bytes, 4 * 8 * MIB);
  assert.match(report.notes.join(), /1 file left out: released to HSM/);
  assert.deepEqual(
    scene.calls().filter((call) => call.startsWith("setstripe")),
    [],
  );
});

/** Processes of the benchmark that this one started, the first one first. */
function children(): number[] {
  return pids().filter((pid) => text(pid, "cmdline").includes("storage-process.js") && parent(pid) === process.pid);
}

function processesIn(path: string): number[] {
  return pids().filter((pid) => text(pid, "cmdline").includes(path));
}

const pids = (): number[] =>
  readdirSync("/proc")
    .flatMap((name) => (/^\d+$/.test(name) ? [Number(name)] : []))
    .sort((a, b) => a - b);

const parent = (pid: number): number => Number(/^PPid:\s*(\d+)/m.exec(text(pid, "status"))?.[1]);

function text(pid: number, file: string): string {
  try {
    return readFileSync(`/proc/${pid}/${file}`, "utf8");
  } catch {
    return "";
  }
}

async function until(holds: () => boolean): Promise<void> {
  for (const begun = Date.now(); !holds();) {
    assert.ok(Date.now() - begun < 30_000, "not within 30 s");
    // oxlint-disable-next-line no-await-in-loop -- polled
    await sleep(20);
  }
}
