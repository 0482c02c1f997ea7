// Caps on what a file system is asked: how they are written, shared among nodes, and kept by the pool of I/O threads.
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { CAPS, NO_CAPS, Polite, capsHere, parsePolite } from "../../src/storage/polite.ts";
import { createPosixStorage } from "../../src/storage/posix.ts";

test("caps as they are written", () => {
  assert.deepEqual(parsePolite("off"), NO_CAPS);
  assert.deepEqual(parsePolite("opens=50,stats=off"), { ...CAPS, opens: 50, stats: Infinity });
  assert.deepEqual(parsePolite("opens=50, stats=5 "), { ...CAPS, opens: 50, stats: 5 });
  for (const wrong of [
    "",
    "on",
    "opens",
    "opens=0",
    "opens=-1",
    "opens=many",
    "reads=5",
    "opens=5;stats=5",
    "opens=5,opens=6",
  ])
    assert.throws(() => parsePolite(wrong, "--polite"), {
      code: "ATH_USAGE",
      message: /--polite must be off, or some/,
    });
});

test("caps are on where a file system is shared, and where somebody asks for them", () => {
  const root = mkdtempSync(join(tmpdir(), "athanor-polite-"));
  const before = { ...process.env };
  const here = (line: string, asked?: string) => {
    mkdirSync(join(root, "proc/self"), { recursive: true });
    writeFileSync(
      join(root, "proc/self/mountinfo"),
      `21 1 8:1 / / rw - ext4 /dev/vda rw\n44 21 0:44 / /d rw - ${line}\n`,
    );
    return capsHere(asked);
  };
  try {
    process.env["ATHANOR_HOST_ROOT"] = root;
    delete process.env["ATHANOR_POLITE"];
    assert.deepEqual(here("lustre 10.0.2.15@tcp:/fs rw"), CAPS);
    assert.deepEqual(here("fuse.juicefs JuiceFS:x rw"), CAPS);
    assert.deepEqual(here("fusectl fusectl rw"), NO_CAPS);
    assert.deepEqual(here("xfs /dev/nvme0n1 rw"), NO_CAPS);
    assert.deepEqual(here("xfs /dev/nvme0n1 rw", "stats=5"), { ...CAPS, stats: 5 });
    assert.deepEqual(here("lustre 10.0.2.15@tcp:/fs rw", "off"), NO_CAPS);
  } finally {
    process.env = before;
    rmSync(root, { recursive: true });
  }
});

test("a node has its share, and a burst that no start exceeds", () => {
  let now = 0;
  const polite = new Polite(CAPS, () => now);
  polite.spread(128);
  polite.spread(1); // an evaluation on one node lifts nothing
  assert.equal(polite.stats().nodes, 128);
  assert.equal(polite.stats().opens!.perSecond, 1000 / 128);
  for (let k = 0; k < 256; k++) {
    assert.equal(polite.waitMs("opens"), 0);
    polite.take("opens");
  }
  assert.equal(polite.waitMs("opens"), 128);
  assert.equal(polite.note(), undefined);
  const done = polite.waits("opens");
  assert.match(
    polite.note()!,
    /^1 opens wait for this node's share, 7.8 a second of 1000 for 128 nodes \(ATHANOR_POLITE/,
  );
  now = 128;
  done(128);
  assert.deepEqual(polite.stats().opens, { perSecond: 1000 / 128, waiting: 0, waited: 1, waitedSeconds: 0.128 });
  // Who asks one by one is told how many at once; what is owed comes first.
  assert.deepEqual(polite.pace("stats", 300), { atOnce: 256, perSecond: 2000 / 128 });
  assert.deepEqual(polite.pace("stats", 1), { atOnce: -44, perSecond: 2000 / 128 });
  assert.equal(new Polite(NO_CAPS).pace("stats", 1e6), undefined);
});

test("storage keeps the caps: opens, stats and folders wait, reads do not, and the time is told", async () => {
  const folder = mkdtempSync(join(tmpdir(), "athanor-polite-"));
  const storage = createPosixStorage({ polite: new Polite(parsePolite("opens=100,stats=100")), handles: 1000 });
  try {
    for (let k = 0; k < 40; k++) {
      mkdirSync(join(folder, `${k}`));
      writeFileSync(join(folder, `${k}/a`), "12345678");
    }
    const path = (k: number): string => join(folder, `${k % 40}/a`);
    const began = performance.now();
    const took = (): number => performance.now() - began;
    // A burst of 256: 300 stats, and 40 folders with a stat and a listing each, owe 125, that is 1.25 s.
    assert.equal((await storage.names(folder)).length, 40);
    const stats = Promise.all(Array.from({ length: 299 }, (_, k) => storage.stat(path(k))));
    const object = await storage.open(path(0));
    const reads = Array.from({ length: 300 }, () => object.readInto(new Uint8Array(8), 0));
    await Promise.all(reads);
    assert.equal(storage.stats().polite.opens!.waited, 0);
    await stats;
    assert.ok(took() > 1240, `300 stats and 41 folders in ${took()} ms`);
    const { stats: told } = storage.stats().polite;
    assert.ok(told!.waited > 10 && told!.waitedSeconds > 1, JSON.stringify(told));
    assert.equal(told!.waiting, 0);
    // What waits for a cap when storage is closed is told at once.
    const late = Array.from({ length: 50 }, (_, k) => storage.stat(path(k)));
    const ends = Promise.allSettled(late);
    assert.equal(await storage.close(), true);
    assert.ok((await ends).filter(({ status }) => status === "rejected").length > 40);
  } finally {
    await storage.close();
    rmSync(folder, { recursive: true });
  }
});
