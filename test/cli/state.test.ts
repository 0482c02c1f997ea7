import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { Order } from "../../src/order/order.ts";
import { ProofSum, shardKey } from "../../src/order/proof.ts";
import { resolveOrder } from "../../src/order/resolve.ts";
import { stateOf } from "../../src/order/state.ts";
import { extentsOf } from "../order/vectors.ts";
import { writeShards } from "../feed/rig.ts";

const main = fileURLToPath(new URL("../../src/cli/main.js", import.meta.url));
const counts = [30, 50, 20];
const data = writeShards(counts, 50);
const run = join(data, "..", `${data.split("/").at(-1)}-run`);
after(() => {
  for (const folder of [data, run]) rmSync(folder, { recursive: true, force: true });
});

function athanor(...args: string[]) {
  const { status, stdout, stderr } = spawnSync(process.execPath, [main, ...args], {
    encoding: "utf8",
    timeout: 50_000,
  });
  return { status, stdout, stderr };
}

const view = {
  fingerprint: "0123456789abcdef0123456789abcdef",
  samples: 100,
  bytes: 10_000,
  blocks: 3,
  largestBlock: 50,
  rowBytes: 64,
};
const resolved = resolveOrder(view, { seed: 77n, globalBatch: 12, lanes: 2, window: 30 });
const order = new Order(view, extentsOf(counts), resolved);
const state = stateOf(resolved, 0, { name: "source", view: view.fingerprint, samples: 100 });

/** The proof files of two ranks; steps of 12 from `start`. */
function write(start: number, steps: number, time: number): void {
  mkdirSync(join(run, "proof"), { recursive: true });
  for (const rank of [0, 1]) {
    const lines = [
      JSON.stringify({ version: 1, rank, world: 2, start: String(start), time, view: view.fingerprint, state }),
    ];
    for (let at = start; at < start + 12 * steps; at += 12) {
      const sum = new ProofSum();
      for (const position of order.deal(at, 12, 2, rank).positions) {
        const sample = order.sampleAt(position);
        const shard = sample < 30 ? 0 : sample < 80 ? 1 : 2;
        sum.add(position, shardKey("source", `s00${shard}.tfrecord`), sample - [0, 30, 80][shard]!, 0);
      }
      lines.push(JSON.stringify({ position: String(at), rows: 6, sum: String(sum.value) }));
    }
    writeFileSync(join(run, "proof", `${rank}-${time}.jsonl`), `${lines.join("\n")}\n`);
  }
}

test("state verify recomputes a run over an epoch border and a resume from the index", () => {
  assert.equal(athanor("index", data).status, 0);
  write(0, 9, 1000);
  write(72, 6, 2000);
  const { status, stdout, stderr } = athanor("state", "verify", run, "--data", data, "--json");
  assert.equal(status, 0, stderr);
  assert.deepEqual(JSON.parse(stdout), {
    steps: 12,
    rows: 144,
    incomplete: 0,
    sessions: 2,
    supersededLines: 6,
    gaps: [],
    tornLines: 0,
  });
  assert.match(
    athanor("state", "verify", join(run, "proof"), "--data", data).stdout,
    /12 steps, 144 samples: each was served as the order says/,
  );
});

test("state verify names the first step that differs, a hole, and another view", () => {
  const file = join(run, "proof", readdirSync(join(run, "proof")).sort()[0]!);
  const good = readFileSync(file, "utf8");
  const fails = (text: string, code: string, message: RegExp) => {
    writeFileSync(file, text);
    const { status, stderr } = athanor("state", "verify", run, "--data", data, "--json");
    const { error } = JSON.parse(stderr) as { error: { code: string; message: string } };
    assert.deepEqual([status, error.code], [1, code]);
    assert.match(error.message, message);
  };
  fails(
    good.replace(/("position":"36","rows":6,"sum":")\d+/, "$11"),
    "ATH_PROOF_MISMATCH",
    /position 36: the sum over all ranks differs/,
  );
  fails(good.replace(/{"position":"36"[^\n]*\n/, ""), "ATH_PROOF_MISMATCH", /no proof for positions 36 to 47/);
  fails(good.replace(`"view":"0123`, `"view":"f123`), "ATH_PROOF_MISMATCH", /another view/);
  fails(good.replace('"seed":"77"', '"seed":"78"'), "ATH_PROOF_MISMATCH", /2 different orders/);
  fails(good.replace('"position":"36"', '"position":36'), "ATH_PROOF_INVALID", /position/);
  writeFileSync(file, good);
  const { stderr } = athanor("state", "verify", data, "--data", data, "--json");
  assert.match(stderr, /ATH_PROOF_INVALID.*there is no proof/);
});

test("state show says a state in words", () => {
  const file = join(run, "state.json");
  writeFileSync(file, JSON.stringify({ ...state, position: "117" }));
  const { status, stdout } = athanor("state", "show", file);
  assert.equal(status, 0);
  assert.match(stdout, /117 samples delivered, seed 77\n/);
  assert.match(stdout, /2 lanes, windows of 30 samples/);
  assert.match(stdout, /epoch 1, 0 of 8 optimizer batches done and 9 samples of the next/);
  assert.deepEqual(JSON.parse(athanor("state", "show", file, "--json").stdout), { ...state, position: "117" });
  writeFileSync(file, '{"version":3}');
  assert.match(athanor("state", "show", file).stderr, /found 3, expected 1/);
});
