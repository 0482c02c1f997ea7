// What `bench storage` says of limits: only what the numbers carry.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Row, TargetRow } from "../../src/bench/storage-report.ts";
import { limitsOf } from "../../src/bench/storage-verdict.ts";

const MIB = 1 << 20;
const rate = (mib: number, swing = 0.05) => ({
  median: mib * MIB,
  min: mib * (1 - swing) * MIB,
  max: mib * (1 + swing) * MIB,
});

function row(pattern: Row["pattern"], op: Row["op"], processes: number, mib: number, more: Partial<Row> = {}): Row {
  const files = pattern === "small-files" ? { perSecond: rate(1), p50: 1.5, p90: 2, p99: 3, max: 4 } : undefined;
  const plain = {
    kept: 0,
    cpu: 0.1,
    sync: 0,
    disk: 1,
    seconds: 1,
    ofNetwork: undefined,
    ofTargets: undefined,
    ofBest: 1,
  };
  return { pattern, op, processes, rate: rate(mib), files, cold: op === "read", ...plain, ...more };
}

const target = (name: string, mib: number, slower: number | undefined, more: Partial<TargetRow> = {}): TargetRow => ({
  name,
  read: rate(mib),
  write: rate(mib),
  cold: true,
  slower,
  ...more,
});

const SEEN = { widths: { checkpoints: 1, shared: 1 }, path: "/mnt/lustre/d", written: true };
const said = (rows: Row[], targets: TargetRow[] = [], kind = "lustre"): string[] =>
  limitsOf({ ...SEEN, rows, targets, mount: { kind, type: kind, point: "/", source: "x" } }).map(
    ({ about, text }) => `${about}: ${text}`,
  );

test("shards: the network, the processors, the targets, nothing yet, not known, not cold", () => {
  const of = (one: number, two: number, more: Partial<Row> = {}, targets: TargetRow[] = []): string =>
    said([row("shards", "read", 1, one), row("shards", "read", 2, two, more)], targets)[0]!;
  assert.equal(
    of(900, 1000, { ofNetwork: 0.86 }),
    "shards: the network of this node: 1000MiB/s by 2 processes, 86 % of it",
  );
  assert.match(of(900, 1000, { cpu: 0.9 }), /the processors of this node: .* to 90 %/);
  const four = [1, 2, 3, 4].map((i) => target(`t${i}`, 260, 1));
  assert.match(of(900, 1000, { ofTargets: 0.96 }, four), /the targets: .*96 % of what the 4 of them gave one by one/);
  assert.match(of(500, 1000), /nothing yet: 1000MiB\/s by 2 processes, 2\.0 x that of 1; --processes 4/);
  assert.match(of(900, 1000), /not clearly more than by 1; neither .* were seen to limit it/);
  assert.match(of(1000, 900), /^shards: 1000MiB\/s by 1 process, 2 processes gave no more; neither/);
  // Twice the median, but a pass of the one was as good as a pass of the other.
  assert.doesNotMatch(of(500, 1000, { rate: { ...rate(1000), min: 400 * MIB } }), /nothing yet/);
  assert.equal(of(900, 5000, { cold: false, ofNetwork: 4 }), "shards: nothing can be said: the reads were not cold");
});

test("a slow target is named, in words and numbers; not when its passes reach the others', nor when it was cached", () => {
  const rows = [row("shards", "read", 1, 300), row("shards", "read", 2, 310)];
  const others = [1, 2, 3].map((i) => target(`fs-OST000${i}`, 1000, 1));
  const [slow, shards] = said(rows, [target("fs-OST0000", 100, 10), ...others]);
  assert.match(slow!, /^targets: fs-OST0000 gives 100MiB\/s, the others 10\.0 x as much \(median\), in every pass/);
  assert.match(shards!, /^shards: .*files on fs-OST0000 hold the others up/);
  const wild = { read: { ...rate(100), max: 1100 * MIB } };
  for (const more of [wild, { cold: false }, { slower: undefined }])
    assert.equal(said(rows, [target("fs-OST0000", 100, 10, more), ...others]).length, 1);
});

test("small files: requests where shards are clearly faster, else not", () => {
  const of = (small: number): string =>
    said([
      row("shards", "read", 2, 1000),
      row("small-files", "write", 2, 10),
      row("small-files", "read", 2, small),
    ])[1]!;
  assert.equal(
    of(100),
    "small-files: requests, not bytes: 1.50 ms to open, read and close one (median); in shards the same bytes come 10.0 x as fast: pack them",
  );
  assert.match(of(900), /about as fast as shards/);
});

test("checkpoints and the one shard: one OST a file is said with the advice for it, on Lustre only", () => {
  const targets = [1, 2, 3, 4].map((i) => target(`t${i}`, 250, 1));
  const rows = [
    row("shards", "read", 1, 250),
    row("shards", "read", 2, 1000),
    row("checkpoints", "write", 1, 240),
    row("checkpoints", "write", 2, 260, { sync: 0.7 }),
    row("shared", "read", 1, 250),
    row("shared", "read", 2, 255),
  ];
  const [, checkpoints, shared] = said(rows, targets);
  assert.match(checkpoints!, /one OST a file: .* `athanor layout advise \/mnt\/lustre\/d --for checkpoints`/);
  assert.match(shared!, /the one OST it lies on: 250MiB\/s, shards on all give 1000MiB\/s; .* --for shared`/);
  const [, elsewhere, other] = said(rows, targets, "nfs");
  assert.match(elsewhere!, /; 70 % of the time is fsync$/);
  assert.doesNotMatch(`${elsewhere} ${other}`, /OST/);
});
