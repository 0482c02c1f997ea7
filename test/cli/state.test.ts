import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { viewFingerprint } from "../../src/dataset/fingerprint.ts";
import { planSingle } from "../../src/order/job.ts";
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
const order = Order.single(view, extentsOf(counts), resolved);
const plan = planSingle("source", view, { seed: 77n, globalBatch: 12, lanes: 2, window: 30 });
const state = stateOf(plan, 0);

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

test("state verify names the first step that differs, a hole, another view, and other data", () => {
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
  const other = "f".repeat(32);
  const named = good.replace(`"state":`, `"data":{"${view.fingerprint}":"${other}"},"state":`);
  fails(
    named,
    "ATH_PROOF_MISMATCH",
    new RegExp(`other data of source source: found fingerprint \\w{32}, expected ${other}`),
  );
  assert.equal(athanor("state", "verify", run, "--data", data, "--other-data").status, 0);
  const { fingerprint } = JSON.parse(readFileSync(join(data, ".athanor", "manifest.json"), "utf8")) as {
    fingerprint: string;
  };
  writeFileSync(file, named.replace(other, fingerprint));
  assert.equal(athanor("state", "verify", run, "--data", data).status, 0);
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

function fails(code: string, message: RegExp, ...args: string[]): void {
  const { stderr, status } = athanor("state", ...args, "--json");
  const { error } = JSON.parse(stderr) as { error: { code: string; message: string; remedy?: string } };
  assert.equal(error.code, code, stderr);
  assert.match(`${error.message} ${error.remedy ?? ""}`, message);
  assert.ok(status! > 0 && status! < 4);
}

test("a state is found in a file, in a checkpoint and in a run, and what is missing is said", () => {
  const home = join(run, "found");
  const checkpoint = join(home, "checkpoint-9");
  mkdirSync(checkpoint, { recursive: true });
  writeFileSync(join(checkpoint, "loader_state.json"), JSON.stringify({ ...state, position: "108" }));
  for (const path of [join(checkpoint, "loader_state.json"), checkpoint])
    assert.match(athanor("state", "show", path).stdout, /^108 samples delivered/);
  fails("ATH_STATE_INVALID", /found neither loader_state\.json nor latest/, "show", home);
  writeFileSync(join(home, "latest"), "checkpoint-9\n");
  assert.match(athanor("state", "show", home).stdout, /^108 samples delivered/);
  writeFileSync(join(home, "latest"), "../found/checkpoint-9");
  fails("ATH_STATE_INVALID", /newest checkpoint .* holds no loader_state\.json/, "show", home);
  fails("ATH_STATE_INVALID", /cannot be read: there is no such file or folder/, "show", join(home, "nowhere"));
  writeFileSync(join(home, "mp_rank_00_model_states.pt"), Buffer.alloc(2 ** 20 + 1));
  fails("ATH_STATE_INVALID", /not the JSON of a state/, "show", join(home, "mp_rank_00_model_states.pt"));
});

test("state diff says what differs and whether B may be loaded", () => {
  const a = join(run, "a.json");
  const b = join(run, "b.json");
  const diff = (other: object) => {
    writeFileSync(a, JSON.stringify(state));
    writeFileSync(b, JSON.stringify(other));
    return athanor("state", "diff", a, b);
  };
  assert.equal(diff(state).stdout, "A and B are the same state\n");
  const moved = diff({ ...state, position: "117" });
  assert.match(moved.stdout, /position +0 +117\nepoch +0 +1\nB may be loaded .* 117 samples further on/);
  assert.equal(moved.status, 0);
  const refused = diff({ ...state, seed: "78" });
  assert.match(refused.stdout, /seed +77 +78\nB may not be loaded/);
  assert.match(refused.stderr, /differ in seed .*ATH_STATE_MISMATCH/);
  assert.equal(refused.status, 1);
});

test("state skip writes a new state, never over the old one unasked, and verify takes the hole when told", () => {
  const old = join(run, "old.json");
  const out = join(run, "new.json");
  const text = JSON.stringify({ ...state, position: "108" });
  writeFileSync(old, text);
  const { stdout, status } = athanor("state", "skip", old, "--samples", "20", "--out", out);
  assert.equal(status, 0);
  for (const part of [
    /optimizer steps 10 to 11 left out: 24 samples, positions 108 to 131/,
    /4 samples more than asked for/,
    /--skipped 108:132/,
    /132 samples delivered/,
  ])
    assert.match(stdout, part);
  assert.deepEqual(JSON.parse(readFileSync(out, "utf8")), { ...state, position: "132" });
  fails("ATH_USAGE", /--out names the state that was given/, "skip", old, "--batches", "1", "--out", old);
  fails("ATH_USAGE", /one of --out FILE and --in-place/, "skip", old, "--batches", "1");
  fails("ATH_USAGE", /one of --batches N/, "skip", old, "--batches", "1", "--samples", "1", "--out", out);
  fails("ATH_USAGE", /one of --batches N/, "skip", old, "--from-step", "1", "--out", out);
  fails("ATH_STATE_WRITE", /no such file or folder/, "skip", old, "--batches", "1", "--out", join(run, "no", "x"));
  assert.equal(readFileSync(old, "utf8"), text);
  assert.equal(athanor("state", "skip", old, "--from-step", "10", "--to-step", "11", "--in-place").status, 0);
  assert.deepEqual(JSON.parse(readFileSync(old, "utf8")), { ...state, position: "132" });

  // Two sessions before (positions 0 to 143); the third goes on behind what was left out.
  rmSync(join(run, "proof"), { recursive: true });
  write(0, 9, 1000);
  write(132, 3, 2000);
  fails("ATH_PROOF_MISMATCH", /no proof for positions 108 to 131.*--skipped/, "verify", run, "--data", data);
  fails("ATH_PROOF_MISMATCH", /no proof/, "verify", run, "--data", data, "--skipped", "109:132");
  const told = athanor("state", "verify", run, "--data", data, "--skipped", "108:132");
  assert.match(told.stdout, /12 steps, 144 samples: .*\n.*\npositions 108 to 131: left out by the run/);
  assert.equal(told.status, 0);
});

test("state from-consumed makes the state that a loader with these arguments would have there", () => {
  const out = join(run, "consumed.json");
  const args = ["--data", data, "--global-batch-size", "12", "--seed", "77", "--lanes", "2", "--window", "30"];
  const made = athanor("state", "from-consumed", ...args, "--consumed-samples", "30", "--out", out);
  assert.equal(made.status, 0, made.stderr);
  assert.match(made.stdout, /36 samples delivered, seed 77[^]*6 samples more than consumed[^]*not Megatron's/);
  const found = JSON.parse(readFileSync(out, "utf8")) as typeof state;
  const { fingerprint } = JSON.parse(athanor("inspect", data, "--json").stdout) as { fingerprint: string };
  const columns = (athanor("inspect", data).stdout.match(/^ {2}\w+ +int64/gm) ?? []).map(
    (row) => row.trim().split(" ")[0]!,
  );
  const spec = { columns: [...columns, ...(columns.includes("attention_mask") ? [] : ["attention_mask"])] };
  const expected = viewFingerprint(fingerprint, { ...spec, max_length: 512, sample_rule: "record", tokenizer: null });
  assert.deepEqual(found.sources, [{ ...state.sources[0], name: "data", view: expected }]);
  assert.deepEqual(found.segments, state.segments);
  fails("ATH_USAGE", /consumed-samples/, "from-consumed", ...args, "--consumed-samples", "-1", "--out", out);
  fails("ATH_USAGE", /required option/, "from-consumed", ...args, "--consumed-samples", "1");
});
