import assert from "node:assert/strict";
import {
  existsSync,
  openSync,
  closeSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  statSync,
  writeSync,
  writeFileSync,
} from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { layout } from "../../src/agent/layout.ts";
import { remove, writeShards } from "../feed/rig.ts";
import { AgentProcess, closeAgents, pause } from "./rig.ts";
import type { Line } from "./rig.ts";

const NONCE = "00112233445566778899aabbccddeeff";
let folder = "";
before(() => {
  folder = writeShards([60, 40], 100);
});
after(async () => {
  await closeAgents();
  remove(folder);
});

function hello(change: Record<string, unknown> = {}, order: Record<string, unknown> = {}): Record<string, unknown> {
  return {
    type: "hello",
    protocol: layout.protocol,
    version: "0.1.0",
    job: "test",
    rank: 0,
    world: 1,
    local_rank: 0,
    here: [0],
    pid: process.pid,
    mode: "stream",
    batch_size: 8,
    state: null,
    view: { source: folder, index_dir: null, columns: null, max_length: 4, pad_id: 0, strict: false },
    order: {
      seed: "1",
      shuffle: "window",
      shuffle_memory: null,
      lanes: null,
      window: null,
      unit: "extent",
      last: "carry",
      global_batch: 8,
      ...order,
    },
    ...change,
  };
}

/** A named segment in the run directory, as a client without /proc access makes one. */
function segment(
  agent: AgentProcess,
  slotBytes: number,
  slots: number,
  change: { magic?: string; version?: number } = {},
): string {
  const name = `segment-${Math.random().toString(16).slice(2)}`;
  const bytes = Buffer.alloc(layout.headerBytes + slots * slotBytes);
  bytes.write(change.magic ?? layout.magic, 0, "latin1");
  bytes.writeUInt32LE(change.version ?? layout.layoutVersion, layout.header.layoutVersion);
  bytes.writeUInt32LE(slots, layout.header.slots);
  Buffer.from(NONCE, "hex").copy(bytes, layout.header.nonce);
  bytes.writeBigUInt64LE(BigInt(slotBytes), layout.header.slotBytes);
  writeFileSync(join(agent.runDir, name), bytes, { mode: 0o600 });
  return name;
}

async function opened(agent: AgentProcess, message = hello()): Promise<{ line: Line; slotBytes: number }> {
  const line = await agent.connect();
  line.send(message);
  const view = await line.next("view");
  return { line, slotBytes: Number(view["slot_bytes"]) };
}

test("a session: view, segment, batches, release, seek, and the agent leaves when it is over", async () => {
  const agent = new AgentProcess("--grace", "200ms");
  const { line, slotBytes } = await opened(agent);
  const path = segment(agent, slotBytes, 2);
  line.send({ type: "segment", pid: process.pid, path, nonce: NONCE, slots: 2 });
  const { session } = await line.next("ready");
  const bell = await agent.socket();
  bell.write(`${JSON.stringify({ type: "bell", session })}\n`);
  const file = join(agent.runDir, path);
  const u64 = (at: number): number => Number(readFileSync(file).readBigUInt64LE(at));
  const slot = (n: number): number => layout.headerBytes + (n % 2) * slotBytes;
  const until = async (what: string, ok: () => boolean): Promise<void> => {
    for (let k = 0; k < 2000 && !ok(); k++) await pause(5);
    assert.ok(ok(), what);
  };
  await until("two batches fill both slots", () => u64(slot(0)) === 1 && u64(slot(1)) === 2);
  assert.equal(u64(slot(1) + layout.slot.position), 8);
  await pause(50);
  assert.equal(u64(slot(0)), 1, "no slot is written again before it is released");

  const fd = openSync(file, "r+");
  const put = (at: number, value: number): void => {
    const bytes = Buffer.alloc(8);
    bytes.writeBigUInt64LE(BigInt(value));
    writeSync(fd, bytes, 0, 8, at);
  };
  put(slot(0) + layout.slot.released, 1);
  put(slot(1) + layout.slot.released, 2);
  bell.write("b");
  await until("released slots are filled again after a ring", () => u64(slot(0)) === 3 && u64(slot(1)) === 4);

  line.send({ type: "seek", position: "40" });
  assert.deepEqual((await line.next("seeked"))["seq"], 5);
  put(slot(0) + layout.slot.released, 3);
  put(slot(1) + layout.slot.released, 4);
  bell.write("b");
  await until(
    "batches after a seek begin at its position",
    () => u64(slot(0)) === 5 && u64(slot(0) + layout.slot.position) === 40,
  );

  // A client that sleeps is woken (again by each ring of its own, which costs nothing).
  let rings = 0;
  bell.on("data", (bytes: Buffer) => (rings += bytes.length));
  put(layout.header.waiting, 7);
  put(slot(0) + layout.slot.released, 5);
  put(slot(1) + layout.slot.released, 6);
  bell.write("b");
  await until("the sleeper is woken", () => rings >= 1);
  closeSync(fd);
  line.socket.destroy();
  await agent.gone();
  assert.deepEqual(readdirSync(agent.runDir), [path], "nothing of the agent stays");
  await agent.close();
});

test("an agent that others keep looking in on leaves all the same", async () => {
  const agent = new AgentProcess("--grace", "2s");
  const { line } = await opened(agent);
  line.socket.destroy();
  const looking = setInterval(() => {
    const socket = connect(agent.socketPath, () => socket.destroy());
    socket.on("error", () => undefined);
  }, 100);
  try {
    await agent.gone();
  } finally {
    clearInterval(looking);
  }
  await agent.close();
});

test("two versions: another protocol is refused with both versions named", async () => {
  const agent = new AgentProcess();
  const line = await agent.connect();
  line.send({ ...hello(), protocol: 99, version: "9.9.9", view: "another shape" });
  const error = await line.error();
  assert.equal(error.code, "ATH_PROTOCOL_MISMATCH");
  assert.match(error.message, /99 .*9\.9\.9.*protocol 1/);
  await agent.close();
});

test("refused, and the agent goes on: garbage, wrong turns, impossible numbers, foreign segments", async () => {
  const agent = new AgentProcess();
  for (const [first, code] of [
    ["not json", "ATH_PROTOCOL_MESSAGE"],
    ["[1]", "ATH_PROTOCOL_MESSAGE"],
    [{ type: "seek", position: "0" }, "ATH_PROTOCOL_MESSAGE"],
    [{ type: "bell", session: "nobody" }, "ATH_PROTOCOL_MESSAGE"],
    [hello({ rank: 3 }), "ATH_BATCH_ARITHMETIC"],
    [hello({ here: [1] }), "ATH_BATCH_ARITHMETIC"],
    [hello({ here: [0, 1] }), "ATH_BATCH_ARITHMETIC"],
    [hello({}, { global_batch: 12 }), "ATH_BATCH_ARITHMETIC"],
    [hello({}, { seed: "-1" }), "ATH_PROTOCOL_MESSAGE"],
    [hello({ state: { version: 7 } }), "ATH_STATE_INVALID"],
    [
      hello({
        view: { source: "/nonexistent", index_dir: null, columns: null, max_length: 4, pad_id: 0, strict: false },
      }),
      undefined,
    ],
    [
      hello({ view: { source: folder, index_dir: null, columns: ["text"], max_length: 4, pad_id: 0, strict: false } }),
      "ATH_COLUMN_UNKNOWN",
    ],
    [
      hello({ view: { source: folder, index_dir: null, columns: ["nope"], max_length: 4, pad_id: 0, strict: false } }),
      "ATH_COLUMN_UNKNOWN",
    ],
  ] as const) {
    const line = await agent.connect();
    line.send(first);
    const error = await line.error();
    if (code !== undefined) assert.equal(error.code, code, JSON.stringify(first));
  }
  for (const [change, nonce, pattern] of [
    [{ magic: "NOTMINE!" }, NONCE, /begins with/],
    [{ version: 9 }, NONCE, /layout version 9/],
    [{}, "f".repeat(32), /nonce/],
  ] as const) {
    const { line, slotBytes } = await opened(agent);
    line.send({ type: "segment", pid: process.pid, path: segment(agent, slotBytes, 2, change), nonce, slots: 2 });
    const error = await line.error();
    assert.equal(error.code, "ATH_SEGMENT_REFUSED");
    assert.match(error.message, pattern);
  }
  const { line } = await opened(agent);
  line.send({ type: "segment", pid: process.pid, path: "../../etc/passwd", nonce: NONCE, slots: 2 });
  assert.equal((await line.error()).code, "ATH_SEGMENT_REFUSED");
  await opened(agent);
  await agent.close();
});

test("ranks that disagree: the second one is refused and both are named", async () => {
  const agent = new AgentProcess();
  await opened(agent, hello({ world: 2, here: [0, 1], rank: 0 }, { global_batch: 16 }));
  const line = await agent.connect();
  line.send(hello({ world: 2, here: [0, 1], rank: 1, local_rank: 1 }, { global_batch: 16, seed: "2" }));
  const error = await line.error();
  assert.equal(error.code, "ATH_SESSION_DISAGREES");
  assert.match(error.message, /rank 1 .* rank 0 .*seed is 2, not 1/);
  const peer = await agent.connect();
  peer.send(hello({ world: 2, here: [0, 0, 1, 1], rank: 0, local_rank: 1 }, { global_batch: 16, seed: "2" }));
  assert.match((await peer.error()).message, /rank 0 \(local rank 1\) .* rank 0 \(local rank 0\) .*seed is 2/);
  await opened(agent, hello({ world: 2, here: [0, 1], rank: 0 }, { global_batch: 16, seed: "2" }));
  await agent.close();
});

test("ranks that come at the same time and disagree are refused, whoever is first", async () => {
  const agent = new AgentProcess();
  const both = { world: 2, here: [0, 1] };
  const order = { global_batch: 16 };
  const [first, second, third] = [await agent.connect(), await agent.connect(), await agent.connect()];
  first.send(hello({ ...both, rank: 0 }, order));
  second.send(hello({ ...both, rank: 1, local_rank: 1, batch_size: 4 }, order));
  const view = { source: folder, index_dir: null, columns: null, max_length: 7, pad_id: 0, strict: false };
  third.send(hello({ ...both, rank: 1, local_rank: 1, view }, order));
  assert.match((await second.error()).message, /rank 1 .* rank 0 .*batch_size is 4, not 8/);
  assert.match((await third.error()).message, /rank 1 .* rank 0 .*max_length is 7, not /);
  await first.next("view");
  await agent.close();
});

test("a launch that was killed while its data was being opened does not bind the next one", async () => {
  const agent = new AgentProcess();
  const both = { world: 2, here: [0, 1] };
  for (let k = 0; k < 10; k++) {
    const killed = await agent.connect();
    killed.send(hello({ ...both, rank: 0 }, { global_batch: 16, seed: String(k) }));
    killed.socket.end(() => killed.socket.destroy());
    const next = await agent.connect();
    next.send(hello({ ...both, rank: 1, local_rank: 1, batch_size: 4 }, { global_batch: 16, seed: String(k) }));
    await next.next("view");
    next.socket.destroy();
  }
  await agent.close();
});

test("the socket and the log are of the user only", async () => {
  const agent = new AgentProcess();
  await opened(agent);
  assert.equal(statSync(agent.socketPath).mode & 0o777, 0o600);
  assert.equal(statSync(join(agent.runDir, "agent.log")).mode & 0o777, 0o600);
  agent.process.kill("SIGTERM");
  await agent.gone();
  assert.ok(!existsSync(agent.socketPath));
  await agent.close();
});

test("a thousand sessions opened and dropped leave no descriptor behind", async () => {
  const agent = new AgentProcess();
  await opened(agent);
  const descriptors = (): string[] =>
    readdirSync(`/proc/${agent.process.pid}/fd`).flatMap((fd) => {
      try {
        return [readlinkSync(`/proc/${agent.process.pid}/fd/${fd}`)];
      } catch {
        return []; // closed meanwhile
      }
    });
  const session = async (): Promise<void> => {
    const { line, slotBytes } = await opened(agent);
    line.send({ type: "segment", pid: process.pid, path: segment(agent, slotBytes, 2), nonce: NONCE, slots: 2 });
    await line.next("ready");
    line.socket.destroy();
  };
  const many = async (count: number): Promise<void> => {
    for (let k = 0; k < count; k += 25) await Promise.all(Array.from({ length: 25 }, session));
  };
  await many(100); // threads and file handles that stay are there now
  const before = descriptors();
  await many(900);
  for (let k = 0; k < 500 && descriptors().length > before.length + 4; k++) await pause(20);
  const left = descriptors();
  assert.ok(left.length <= before.length + 4, `${before.length} descriptors before, now ${left.join(" ")}`);
  await agent.close();
});

test("a loader that fails to open does not end the agent of the others", async () => {
  const bad = writeShards([50], 100);
  const shard = join(bad, "s000.tfrecord");
  const bytes = readFileSync(shard);
  bytes.writeUInt8((bytes.readUInt8(500) ^ 255) & 255, 500);
  writeFileSync(shard, bytes);
  const agent = new AgentProcess();
  const { line } = await opened(agent);
  for (let k = 0; k < 5; k++) {
    const failing = await agent.connect();
    failing.send(hello({ view: { ...(hello()["view"] as object), source: bad } }));
    const other = await opened(agent);
    other.line.socket.destroy();
    assert.match((await failing.error()).code, /ATH_/);
  }
  line.send({ type: "stats" });
  await line.next("stats");
  await agent.close();
  remove(bad);
});

test("a rank that may build the index comes behind one that may not: the index is made", async () => {
  const fresh = writeShards([60, 40], 100);
  const agent = new AgentProcess();
  const view = { ...(hello()["view"] as object), source: fresh };
  const open = async (rank: number): Promise<Line> => {
    const line = await agent.connect();
    line.send(hello({ rank, here: [rank], build_index: rank === 0, world: 2, view }, { global_batch: 32 }));
    return line;
  };
  const second = await open(1);
  assert.equal((await second.next("progress"))["stage"], "wait for index");
  const first = await open(0);
  for (const line of [first, second]) assert.equal((await line.next("view"))["samples"], "100");
  await agent.close();
  remove(fresh);
});

test("ranks that wait for an index all hear how far it is", async () => {
  const fresh = writeShards([60, 40], 100);
  const agent = new AgentProcess();
  const lines = await Promise.all(
    [2, 3].map(async (rank) => {
      const line = await agent.connect();
      const view = { ...(hello()["view"] as object), source: fresh };
      line.send(
        hello({ rank, local_rank: rank - 2, here: [2, 3], build_index: false, world: 4, view }, { global_batch: 32 }),
      );
      return line;
    }),
  );
  for (const line of lines) assert.equal((await line.next("progress"))["stage"], "wait for index");
  await agent.close();
  remove(fresh);
});
