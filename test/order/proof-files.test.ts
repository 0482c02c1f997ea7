import assert from "node:assert/strict";
import { test } from "node:test";
import { Order } from "../../src/order/order.ts";
import { compareProof, readProof, type ProofText } from "../../src/order/proof-files.ts";
import { ProofSum } from "../../src/order/proof.ts";
import { extentsOf, resolvedOf, vectors, viewOf } from "./vectors.ts";

const counts = vectors().order[0]!.extents;
const order = Order.single(viewOf(counts), extentsOf(counts), resolvedOf(vectors().order[0]!.options));
const identify = (_source: number, sample: number) => ({
  shardKey: BigInt(sample >> 4),
  record: sample & 15,
  token: 0,
});

/** What `world` ranks write from position `start` for some steps each; `clock` in ms. */
function served(world: number, step: number, start: number, steps: number | number[], clock: number): ProofText[] {
  return Array.from({ length: world }, (_, rank) => {
    const header = { version: 1, rank, world, start: String(start), time: clock + rank, view: "v" };
    const lines = [JSON.stringify(header)];
    const count = typeof steps === "number" ? steps : steps[rank]!;
    for (let at = start; at < start + count * step; at += step) lines.push(line(world, step, at, rank));
    return { name: `${rank}-${clock + rank}.jsonl`, text: `${lines.join("\n")}\n` };
  });
}

function line(world: number, step: number, at: number, rank: number): string {
  const sum = new ProofSum();
  const { positions, valid } = order.deal(at, step, world, rank);
  for (const position of positions.subarray(0, valid)) {
    const { shardKey, record, token } = identify(0, order.sampleAt(position));
    sum.add(position, shardKey, record, token);
  }
  return JSON.stringify({ position: String(at), rows: valid, sum: String(sum.value) });
}

const check = (files: ProofText[]) => compareProof(readProof(files), order, identify);

test("an unbroken run is proved, over an epoch border", () => {
  const report = check(served(4, 24, 0, 10, 1000));
  assert.deepEqual(
    { ...report, gaps: report.gaps.length },
    { steps: 10, rows: 240, incomplete: 0, sessions: 1, supersededLines: 0, gaps: 0 },
  );
});

test("killed, then resumed twice at other world sizes: later lines supersede, nothing is lost or repeated", () => {
  const files = [
    ...served(4, 24, 0, [5, 6, 5, 5], 1000),
    ...served(2, 12, 96, [4, 4], 2000),
    ...served(8, 24, 120, 4, 3000),
  ];
  // In any order of reading.
  for (const list of [files, files.toReversed()]) {
    const report = check(list);
    assert.equal(report.difference, undefined);
    assert.deepEqual(report.gaps, []);
    assert.equal(report.rows, 216);
    assert.equal(report.sessions, 3);
    assert.equal(report.supersededLines, 5 + 4, "positions 96 and 120 of the first session, 120 and 132 of the second");
  }
});

test("launches from the same place that a kill cut short: the last one counts, whichever ranks the others had", () => {
  const cut = (files: ProofText[], ranks: number[]) => files.filter((_, rank) => ranks.includes(rank));
  const again = served(4, 24, 48, 3, 5000);
  for (const files of [
    [...served(4, 24, 0, 3, 1000), ...cut(served(4, 24, 48, 2, 2000), [1, 2]), ...again],
    [
      ...served(4, 24, 0, 3, 1000),
      ...cut(served(4, 24, 48, 1, 2000), [1, 2, 3]),
      ...cut(served(2, 24, 48, 1, 3000), [0]),
      ...again,
    ],
    [...served(4, 24, 0, 3, 1000), ...served(4, 24, 48, [2, 1, 1, 1], 2000), ...again],
  ]) {
    const report = check(files);
    assert.equal(report.difference, undefined);
    assert.deepEqual([report.steps, report.rows, report.incomplete, report.gaps], [5, 120, 0, []]);
  }
});

test("a rank that has no line yet leaves the step uncompared", () => {
  const report = check(served(2, 24, 0, [3, 2], 1000));
  assert.deepEqual([report.steps, report.incomplete], [2, 1]);
});

test("a repeated, a lost and an exchanged sample are each found, at the first step that differs", () => {
  const good = served(2, 24, 0, 6, 1000);
  const exchange = (text: string, n: number, line: string) =>
    text
      .split("\n")
      .map((l, i) => (i === n ? line : l))
      .join("\n");
  const wrong = {
    ...good[1]!,
    text: exchange(good[1]!.text, 3, JSON.stringify({ position: "48", rows: 12, sum: "1" })),
  };
  assert.equal(check([good[0]!, wrong]).difference?.position, 48);
  assert.match(check([good[0]!, wrong]).difference!.what, /sum over all ranks differs/);
  const short = {
    ...good[1]!,
    text: exchange(good[1]!.text, 5, JSON.stringify({ position: "96", rows: 11, sum: "1" })),
  };
  assert.equal(check([good[0]!, short]).difference?.position, 96);
  const huge = {
    ...good[1]!,
    text: exchange(good[1]!.text, 2, JSON.stringify({ position: "24", rows: 1e15, sum: "1" })),
  };
  assert.match(check([good[0]!, huge]).difference!.what, /more rows/);
});

test("a hole is reported; leaving the rest of an epoch out is a skip", () => {
  const hole = check([...served(2, 24, 0, 1, 1000), ...served(2, 24, 48, 1, 2000)]);
  assert.deepEqual(hole.gaps, [{ from: 24, to: 48, skip: false }]);
  const skipped = check([...served(2, 24, 0, 1, 1000), ...served(2, 24, order.begin(1), 1, 2000)]);
  assert.deepEqual(skipped.gaps, [{ from: 24, to: order.begin(1), skip: true }]);
});

test("an epoch begun anew in the same file supersedes its first lines", () => {
  const files = [0, 1].map((rank): ProofText => {
    const header = JSON.stringify({ version: 1, rank, world: 2, start: "0", time: 1000 + rank, view: "v" });
    return {
      name: `${rank}.jsonl`,
      text: `${[header, ...[0, 24, 48, 0, 24].map((at) => line(2, 24, at, rank))].join("\n")}\n`,
    };
  });
  const report = check(files);
  assert.deepEqual([report.steps, report.rows, report.supersededLines, report.sessions], [2, 48, 6, 2]);
});

test("a torn last line is left out, any other damage is an error with file and line", () => {
  const [a, b] = served(2, 24, 0, 3, 1000) as [ProofText, ProofText];
  const torn = readProof([a, { ...b, text: b.text.slice(0, -9) }]);
  assert.equal(torn.tornLines, 1);
  assert.deepEqual(
    torn.steps.map((s) => s.missing),
    [[], [], [1]],
  );
  const lines = b.text.split("\n");
  const damage: [number, string, RegExp][] = [
    [2, "{", /1001\.jsonl, line 3: proof line is not JSON/],
    [1, '{"position":"x","rows":1,"sum":"1"}', /line 2: proof line, position/],
    [1, '{"position":"99999999999999999","rows":1,"sum":"1"}', /line 2: position .* beyond 2\^53/],
    [0, '{"version":2,"rank":0,"world":1,"start":"0","time":1,"view":"v"}', /unknown version: found 2/],
    [0, '{"version":1,"rank":3,"world":2,"start":"0","time":1,"view":"v"}', /rank 3 is not below world size 2/],
    [0, '{"version":1,"rank":3,"world":1e15,"start":"0","time":1,"view":"v"}', /world: Too big/],
    [0, '{"position":"0","rows":1,"sum":"1"}', /no header/],
    [1, "null", /line 2/],
  ];
  for (const [at, text, message] of damage) {
    const damaged = { ...b, text: lines.with(at, text).join("\n") };
    assert.throws(() => readProof([a, damaged]), { code: "ATH_PROOF_INVALID", message });
  }
});
