// Moves by `lfs migrate` over a Lustre out of recordings, whose `lfs` really lays files elsewhere, fails, hangs, or is killed half way.
import assert from "node:assert/strict";
import { closeSync, copyFileSync, existsSync, openSync, readFileSync, writeFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { after, test } from "node:test";
import type { TestContext } from "node:test";
import { layout } from "../../src/agent/layout.ts";
import type { AthanorError } from "../../src/base/errors.ts";
import { Files } from "../../src/staging/files.ts";
import { MOVES_JOURNAL, moveFiles } from "../../src/staging/moves.ts";
import type { MoveResult, MoveRun } from "../../src/staging/moves.ts";
import { createPosixStorage } from "../../src/storage/posix.ts";
import { AgentProcess, closeAgents } from "../agent/rig.ts";
import { remove, writeShards } from "../feed/rig.ts";
import { recorded } from "../lustre/fixtures.ts";
import { WELL, plainLov, replay, shards } from "../lustre/replay.ts";
import type { Recording, Replay, ReplayFile } from "../lustre/replay.ts";

after(() => closeAgents());

/** Four shards of 64 MiB on OST 3 of four. */
const FILES = shards([[3], [3], [3], [3]]);
const NAMES = Object.keys(FILES);
const ARCHIVED = {
  "*": ": (0x00000000)",
  "/mnt/lustre/d/train-002.tar": ": (0x00000009) exists archived, archive_id:1",
};

function scene(t: TestContext, lfs: Record<string, Recording>, files: Record<string, ReplayFile> = FILES): Replay {
  return replay(t, { files, lfs: { ...WELL, migrate: { migrates: "well" }, ...lfs } });
}

/** In this process. */
async function move(here: Replay, options: Partial<MoveRun> = {}): Promise<MoveResult> {
  const files = new Files();
  const storage = createPosixStorage();
  try {
    const run = { files, storage, verify: false, ...options };
    return (await here.inside(() => moveFiles(join(here.folder, "d"), run))) as MoveResult;
  } finally {
    await files.close();
    await storage.close();
  }
}

test("it says what it would do, does it, and each file lies where it should with its bytes", (t) => {
  const here = scene(t, {
    hsm_state: { each: ARCHIVED },
    "migrate --help": { stderr: "usage: migrate … [--bandwidth|-W BANDWIDTH_MB[MG]]\n", status: 1 },
  });
  const would = here.run("apply", "d", "--migrate");
  const line = (from: number, ost: number): string =>
    `lfs migrate --non-block -c 1 -S 4M -o ${ost} /mnt/lustre/d/train-00${from}.tar`;
  const [a, b, c] = [0, 1, 3].map(
    (k) => new RegExp(`${line(k, 0).replace("-o 0", "-o (\\d)")}\n`).exec(would.stdout)?.[1],
  );
  assert.deepEqual(new Set([a, b, c]), new Set(["0", "1", "2"]), would.stdout);
  assert.match(would.stdout, /^would move 3 files, 192MiB, .*\n.*\n {4}undo: lfs migrate --non-block -c 1 -S 4M -o 3 /);
  assert.deepEqual(here.ostsOf(NAMES), [3, 3, 3, 3]);
  const done = here.run("apply", "d", "--migrate", "--apply", "--bandwidth", "1GiB");
  assert.equal(done.code, 0, done.stderr + done.stdout);
  assert.match(
    done.stdout,
    /^moved 3 files, 192MiB of \/mnt\/lustre\/d\n[^]*? {2}train-000\.tar: OST 3 to OST \d\n {4}undo: /,
  );
  assert.deepEqual(here.ostsOf(NAMES), [Number(a), Number(b), 3, Number(c)]);
  const calls = here.calls().filter((call) => call.startsWith("migrate --non-block"));
  assert.equal(calls.length, 3);
  assert.ok(calls.every((call) => call.startsWith("migrate --non-block --bandwidth 1024M -c 1 -S 4M -o ")));
  const journal = readFileSync(join(here.folder, "d", MOVES_JOURNAL), "utf8")
    .trimEnd()
    .split("\n");
  assert.deepEqual(
    journal.slice(1).map((text) => (JSON.parse(text) as { state: string }).state),
    ["begin", "moved", "begin", "moved", "begin", "moved"],
  );
  assert.match(here.run("apply", "d", "--migrate").stdout, /nothing to move/);
  for (const flags of [["--migrate", "--copy-to", "e"], ["--bandwidth", "1MiB"], ["--no-verify"]])
    assert.equal(here.run("apply", "d", ...flags).code, 2, flags.join(" "));
});

test("what stays is told: refusals of lfs, no room, no quota", async (t) => {
  const busy = { stderr: "lfs migrate: cannot get lease: Device or resource busy\n", status: 16 };
  const refused = await move(scene(t, { migrate: busy }));
  assert.deepEqual(refused.moved, []);
  assert.equal(refused.stayed.length, 3, "three failures in a row are enough");
  assert.match(refused.stayed[0]!.why, /`lfs migrate`: .*resource busy/);
  assert.match(refused.notes.join(), /3 failures/);
  const limit =
    "Disk quotas for x:\n      Filesystem  kbytes  bquota  blimit  bgrace   files  iquota  ilimit  igrace\n" +
    "     /mnt/lustre   90000       0  100000       -      10       0       0       -\n";
  const poor = scene(t, { [`quota -u ${process.getuid!()} /mnt/lustre`]: { stdout: limit } });
  assert.match(
    (await move(poor)).stayed[0]!.why,
    /no room for a second copy: quota of user \d+: 9\.77MiB left, 64MiB needed/,
  );
  assert.ok(!poor.calls().some((call) => call.startsWith("migrate --non-block")));
});

for (const [how, lfs, code, text] of [
  ["other bytes", { migrate: { migrates: "bytes" } }, "ATH_COPY_DIFFERS", /holds other bytes than before the move/],
  ["written meanwhile", { migrate: { migrates: "mtime" } }, "ATH_COPY_SOURCE_CHANGED", /changed while it was moved/],
  ["laid elsewhere", { migrate: { migrates: "elsewhere" } }, "ATH_LAYOUT_NOT_MOVED", /lies on OST \d, expected OST/],
  ["no answer", { migrate: { hang: true } }, "ATH_LAYOUT_NOT_MOVED", /has not ended for .* given up/],
] as const)
  test(`${how}: the first file ends it, with its name`, async (t) => {
    // As small as is worth moving. `hsm_state` without a Python, whose start takes longer than the time limit where that has to pass.
    const files = Object.fromEntries(NAMES.map((name) => [name, { ...FILES[name]!, size: 16 << 20 }]));
    const stdout = NAMES.map((name) => `/mnt/lustre/${name}: (0x00000000)\n`).join("");
    const here = scene(t, { hsm_state: { stdout }, ...lfs }, files);
    const verify = code === "ATH_COPY_DIFFERS";
    const timeoutMs = how === "no answer" ? 2000 : 10_000;
    await assert.rejects(move(here, { verify, timeoutMs }), (error: AthanorError) => {
      assert.equal(error.code, code, error.message);
      assert.match(error.message, /train-00\d\.tar/);
      assert.match(error.message, text);
      return true;
    });
    assert.equal(here.calls().filter((call) => call.startsWith("migrate --non-block")).length, 1);
  });

test("killed in the middle of a move: the next run looks whether that file is whole, and goes on", async (t) => {
  const here = scene(t, { migrate: { migrates: "well", after: 2 } });
  const running = here.start("apply", "d", "--migrate", "--apply");
  const journal = join(here.folder, "d", MOVES_JOURNAL);
  for (const end = Date.now() + 60_000; !here.calls().some((call) => call.startsWith("migrate --non-block"));) {
    if (Date.now() > end) throw new Error("no move begins");
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  process.kill(-running.pid!, "SIGKILL"); // `lfs` with it
  await new Promise((resolve) => running.once("close", resolve));
  assert.match(readFileSync(journal, "utf8"), /"state":"begin".*\n$/);
  assert.deepEqual(here.ostsOf(NAMES), [3, 3, 3, 3]);
  const done = here.run("apply", "d", "--migrate", "--apply", "--json");
  assert.equal(done.code, 0, done.stderr);
  const { moved, notes } = JSON.parse(done.stdout) as MoveResult;
  assert.match(notes.join(), /train-00\d\.tar was being moved when the last run ended: every byte is as before/);
  assert.equal(moved.length, 3);
  assert.deepEqual(new Set(here.ostsOf(NAMES)), new Set([0, 1, 2, 3]));
});

test("a file that was removed after a kill met its move keeps none of the others", (t) => {
  const here = scene(t, { migrate: { migrates: "well" } });
  const folder = join(here.folder, "d");
  const begin = { state: "begin", path: "gone.tar", from: 3, to: 0, undo: "", size: 1, mtimeNs: "1", crc32c: null };
  const lines = [{ athanor: "moves", version: 1, from: folder }, begin].map((line) => `${JSON.stringify(line)}\n`);
  writeFileSync(join(folder, MOVES_JOURNAL), lines.join(""));
  const done = here.run("apply", "d", "--migrate", "--apply", "--json");
  assert.equal(done.code, 0, done.stderr);
  const { moved, notes } = JSON.parse(done.stdout) as MoveResult;
  assert.match(notes.join(), /gone\.tar was being moved when the last run ended: it is gone/);
  assert.equal(moved.length, 3);
});

test("files that a session of a real agent reads stay, and so does one that a process has open", async (t) => {
  // 26 records of 1 MiB a shard: more than the 64 MiB from which on moving is worth it.
  const made = writeShards([26, 26, 26], 1 << 20);
  t.after(() => remove(made));
  const names = readdirSync(made).filter((name) => name.endsWith(".tfrecord"));
  const here = scene(t, {}, Object.fromEntries(names.map((name) => [`d/${name}`, { size: 0, lov: plainLov([3]) }])));
  for (const name of names) copyFileSync(join(made, name), join(here.folder, "d", name));
  const agent = new AgentProcess();
  const line = await agent.connect();
  const view = {
    source: join(here.folder, "d"),
    index_dir: null,
    columns: null,
    max_length: 4,
    pad_id: 0,
    strict: false,
  };
  const order = {
    seed: "1",
    shuffle: "window",
    shuffle_memory: null,
    lanes: null,
    window: null,
    unit: "extent",
    last: "carry",
    global_batch: 8,
  };
  const who = { job: "test", rank: 0, world: 1, local_rank: 0, here: [0], pid: process.pid };
  line.send({
    type: "hello",
    protocol: layout.protocol,
    version: "0.1.0",
    ...who,
    mode: "stream",
    batch_size: 8,
    state: null,
    view,
    order,
  });
  await line.next("view", 60_000);
  const used = here.run("apply", "d", "--migrate", "--apply");
  assert.equal(used.code, 1, used.stderr);
  assert.match(
    used.stdout,
    /^moved 0 files[^]*\n {2}stays: .*: a session of the agent with pid \d+ reads \/mnt\/lustre\/d\n/,
  );
  assert.deepEqual(here.ostsOf(names.map((name) => `d/${name}`)), [3, 3, 3]);
  assert.ok(!existsSync(join(here.folder, "d", MOVES_JOURNAL)));
  await agent.close();
  const descriptors = names.map((name) => openSync(join(here.folder, "d", name), "r"));
  const open = here.run("apply", "d", "--migrate", "--apply");
  assert.match(open.stdout, new RegExp(`stays: .*: process ${process.pid} \\(.*\\) has it open`));
  descriptors.forEach((fd) => closeSync(fd));
  assert.match(here.run("apply", "d", "--migrate", "--apply").stdout, /^moved 2 files/);
});

const FULL = recorded("enospc-lfs-df-v.txt");
for (const [what, df] of [
  ["is full", FULL],
  ["would become too full", FULL.replace(/( 954304 +)882100 +3392 100%/, "$1 705492 180000  80%")],
] as const)
  test(`an OST that ${what} takes no file`, async (t) => {
    const here = scene(t, { "df /mnt/lustre": { stdout: df } }, shards([[0], [0], [0], [0]]));
    const { moved, stayed } = await move(here);
    assert.deepEqual([moved.map(({ to }) => to), stayed], [[1, 2], []]);
    assert.deepEqual(
      here.ostsOf(NAMES).sort((a, b) => a - b),
      [0, 0, 1, 2],
    );
  });

test("refused: a file, whose folder would be moved, and OSTs that nobody names", (t) => {
  const here = scene(t, {});
  for (const more of [[], ["--apply"]]) {
    const ran = here.run("apply", "d/train-000.tar", "--migrate", ...more);
    assert.deepEqual(
      [ran.code, /train-000\.tar: .*a whole folder.*name \/mnt\/lustre\/d\)/.test(ran.stderr)],
      [2, true],
    );
  }
  const dumb = scene(t, {
    "osts /mnt/lustre": { status: 1, stderr: "lfs: boom\n" },
    "df /mnt/lustre": { stdout: "what\n" },
  });
  for (const flags of [["--migrate"], ["--migrate", "--apply"], [], ["--apply"]]) {
    const ran = dumb.run("apply", "d", ...flags);
    assert.deepEqual([ran.code, ran.stdout], [3, ""], flags.join(" "));
    assert.match(ran.stderr, /`lfs osts` names no OST: "lfs: boom"; `lfs df` names no OST: "what".*LAYOUT_UNREADABLE/);
  }
  const advised = dumb.run("advise", "d");
  assert.equal(advised.code, 1);
  assert.match(advised.stdout, /problem: the OSTs are not known: no advice/);
  assert.doesNotMatch(advised.stdout, /setstripe|on 1 OST/);
  for (const each of [here, dumb]) assert.ok(each.calls().every((call) => !/^(migrate|setstripe)/.test(call)));
});

test("nothing to move is said so", (t) => {
  const here = scene(t, {}, shards([[0], [1], [2], [3]]));
  const ran = here.run("apply", "d", "--migrate", "--apply");
  assert.deepEqual([ran.code, ran.stdout.startsWith("/mnt/lustre/d: nothing to move")], [0, true]);
});
