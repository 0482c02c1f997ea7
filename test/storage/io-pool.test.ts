// Which calls get a thread, with threads that answer when they are told to: one slow or lost OST beside others.
import assert from "node:assert/strict";
import { EventEmitter } from "node:events";
import { mock, test } from "node:test";
import type { Worker } from "node:worker_threads";
import { IoPool, hungText } from "../../src/storage/io-pool.ts";
import type { HungRequest, IoPoolOptions, Targets } from "../../src/storage/io-pool.ts";
import type { IoReply, IoRequest } from "../../src/storage/io-thread.ts";

interface UnderWay {
  path: string;
  finish: () => void;
  fail: () => void;
}

/** A pool of which no call returns before the test says so. */
function held(options: Partial<IoPoolOptions> = {}) {
  const underWay: UnderWay[] = [];
  let threads = 0;
  const startThread = (): Worker => {
    threads++;
    const emitter = new EventEmitter();
    const postMessage = (request: IoRequest): void => {
      const answer = (reply: IoReply): void => {
        underWay.splice(underWay.indexOf(call), 1);
        emitter.emit("message", reply);
      };
      const call: UnderWay = {
        path: request.path,
        finish: () => answer({ value: { bytes: 8, changed: undefined } }),
        fail: () => answer({ fault: { code: "EIO", message: "i/o error", path: request.path, byteOffset: 0 } }),
      };
      underWay.push(call);
    };
    const rest = { ref: () => undefined, unref: () => undefined, terminate: () => Promise.resolve(0) };
    return Object.assign(emitter, { postMessage, ...rest }) as unknown as Worker;
  };
  const pool = new IoPool(
    { threads: 4, perTarget: 4, perNode: 64, hangAfterMs: 10_000, onHang: undefined, ...options },
    startThread,
  );
  const read = (path: string, targets: Targets): Promise<unknown> => {
    const buffer = new SharedArrayBuffer(8);
    const place = { fd: 1, buffer, byteOffset: 0, offset: 0, length: 8 };
    return pool.run({ op: "read", path, ...place }, targets).catch(() => undefined);
  };
  const paths = (): string[] => underWay.map(({ path }) => path).sort();
  return { pool, read, paths, underWay, threads: () => threads };
}

const on = (...osts: number[]): Targets => ({ names: osts.map((ost) => `x-OST000${ost}`), known: true });

test("an OST whose reads take all threads leaves one to every other OST", async () => {
  const { pool, read, paths, underWay } = held();
  for (let k = 0; k < 8; k++) void read(`slow-${k}`, on(0));
  assert.deepEqual(paths(), ["slow-0", "slow-1", "slow-2", "slow-3"]);
  for (let ost = 1; ost < 8; ost++) for (const k of [0, 1]) void read(`${ost}-${k}`, on(ost));
  const firsts = [1, 2, 3, 4, 5, 6, 7].map((ost) => `${ost}-0`);
  assert.deepEqual(paths(), [...firsts, "slow-0", "slow-1", "slow-2", "slow-3"]);
  // They go on at their own pace, while none of the slow ones returns.
  const others = (): UnderWay[] => underWay.filter(({ path }) => !path.startsWith("slow"));
  for (let round = 0; round < 2; round++) for (const call of others()) call.finish();
  await new Promise(setImmediate);
  assert.deepEqual(paths(), ["slow-0", "slow-1", "slow-2", "slow-3"]);
  await pool.close(0);
});

test("opens, and reads over several OSTs, have their turn while many OSTs are read from", async () => {
  const { pool, read, paths, underWay } = held({ perNode: 16 });
  let over = false;
  const again = async (ost: number, k: number): Promise<void> => {
    while (!over) await read(`${ost}-${k}`, on(ost));
  };
  for (let ost = 0; ost < 8; ost++) for (const k of [0, 1]) void again(ost, k);
  assert.equal(paths().length, 10);
  const late = [
    read("open", { names: ["folder /d"], known: false }),
    read("wide", on(0, 1, 2)),
    read("list", { names: ["folder /e"], known: false }),
  ];
  // Every call returns, one after the other, and its reader asks for the next.
  for (let turn = 0; turn < 24; turn++) {
    underWay[0]!.finish();
    await new Promise(setImmediate);
    assert.ok(paths().length <= 12, "four at work, and one beyond for each OST");
  }
  for (const path of ["open", "wide", "list"]) assert.ok(!paths().includes(path), `${path} has been served`);
  await Promise.all(late);
  over = true;
  await pool.close(0);
});

test("without places the device is one target: four reads at a time", async () => {
  const { pool, read, paths } = held();
  const device: Targets = { names: ["device 5"], known: false };
  for (let k = 0; k < 8; k++) void read(`${k}`, device);
  for (let k = 8; k < 10; k++) void read(`${k}`, { names: ["device 6"], known: false });
  assert.deepEqual(paths(), ["0", "1", "2", "3"]);
  await pool.close(0);
});

test("a read over several OSTs counts for each of them", async () => {
  const { pool, read, paths, underWay } = held({ perTarget: 1 });
  void read("wide", on(0, 1, 2));
  for (let ost = 0; ost < 4; ost++) void read(`${ost}`, on(ost));
  assert.deepEqual(paths(), ["3", "wide"]);
  underWay[0]!.finish();
  await new Promise(setImmediate);
  assert.deepEqual(paths(), ["0", "1", "2", "3"]);
  await pool.close(0);
});

test("a lost OST costs four threads, however many files lie there and whatever is read beside it", async (t) => {
  mock.timers.enable({ apis: ["setInterval"] });
  t.after(() => mock.timers.reset());
  let now = 0;
  t.mock.method(performance, "now", () => now);
  const hung: HungRequest[] = [];
  const { pool, read, paths, underWay, threads } = held({ onHang: (request) => hung.push(request) });
  const pass = (ms: number): void => {
    for (let step = 0; step < ms; step += 1000) {
      now += 1000;
      mock.timers.tick(1000);
    }
  };
  for (let k = 0; k < 40; k++) void read(`lost-${k}`, on(0));
  void read("wide", on(0, 1));
  pass(60_000);
  assert.deepEqual(paths(), ["lost-0", "lost-1", "lost-2", "lost-3"]);
  assert.deepEqual(
    hung.map(({ path, target, sinceMs }) => [path, target, sinceMs]),
    [0, 1, 2, 3].map((k) => [`lost-${k}`, "x-OST0000", 10_000]),
  );
  for (let k = 0; k < 20; k++) {
    void read(`fine-${k}`, on(1 + (k % 3)));
    underWay.findLast(({ path }) => path.startsWith("fine"))!.finish();
    await new Promise(setImmediate);
  }
  assert.ok(threads() <= 8, `${threads()} threads`);
  assert.equal(pool.stats().queued, 37);
  // It is back: all go on.
  while (underWay.length > 0) underWay[0]!.finish();
  assert.equal(pool.stats().queued, 0);
  assert.equal(pool.stats().requests, 61);
  await pool.close(0);
});

test("where the target is not known, or is one of several, a stuck read leaves its place to other files", async (t) => {
  mock.timers.enable({ apis: ["setInterval"] });
  t.after(() => mock.timers.reset());
  let now = 0;
  t.mock.method(performance, "now", () => now);
  const { pool, read, paths } = held();
  for (let k = 0; k < 4; k++) void read(`wide-${k}`, on(0, 1));
  void read("other", on(1));
  void read("wide-0", on(0));
  assert.equal(paths().length, 4);
  for (let step = 0; step < 4; step++) {
    now += 1000;
    mock.timers.tick(1000);
  }
  // `other` has its turn; a second read of a stuck file has not.
  assert.deepEqual(paths(), ["other", "wide-0", "wide-1", "wide-2", "wide-3"]);
  await pool.close(0);
});

test("a call that hangs is told in words, with a byte if it reads", () => {
  assert.equal(hungText({ op: "read", path: "/d/a", offset: 8 }), "read of /d/a at byte 8");
  assert.equal(hungText({ op: "open", path: "/d/a", offset: 0 }), "open of /d/a");
  assert.equal(hungText({ op: "names", path: "/d", offset: 0 }), "listing of /d");
});

test("a read that failed has brought no byte", async () => {
  const { pool, read, underWay } = held();
  for (const how of ["fail", "finish", "fail"] as const) {
    const done = read("a", on(0));
    underWay[0]![how]();
    // oxlint-disable-next-line no-await-in-loop -- one after the other
    await done;
  }
  const [clock] = pool.stats().targets;
  assert.deepEqual([clock!.reads, clock!.bytes], [3, 8]);
  await pool.close(0);
});
