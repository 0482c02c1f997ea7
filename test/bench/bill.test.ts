// Real loaders on files made here: by system calls, and on a Lustre whose client's counters are recorded ones that grow with each look.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { chmod, mkdir, mkdtemp, realpath, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import { benchBill } from "../../src/bench/bill.ts";
import type { BillOptions } from "../../src/bench/bill.ts";
import { billText } from "../../src/bench/bill-table.ts";
import { meterFor } from "../../src/bench/bill-meter.ts";
import { findPython } from "../../src/bench/python.ts";
import { CLIENT, grown, recordedCounters } from "../lustre/fixtures.ts";

const run = promisify(execFile);
const LIMIT = { timeout: 600_000 };
const [SAMPLES, SHARDS] = [2000, 3];
const MIB = 2 ** 20;
let folder = "";
let options: BillOptions;

before(async () => {
  folder = await realpath(await mkdtemp(join(tmpdir(), "athanor-bill-")));
  const python = await findPython("torch", undefined);
  const source = join(folder, "data");
  const words = ["--out", source, "--n", String(SAMPLES), "--seq", "64", "--shards", String(SHARDS)];
  await run(python.path, ["-m", "athanor.bench.data", ...words], { env: python.env });
  options = { source, batch: 8, width: 64, cacheDir: join(folder, "cache"), seed: 1 };
});

after(() => rm(folder, { recursive: true, force: true }));

/** As on a node whose `lctl` prints `texts` one after the other, the last one for ever. */
async function onLustre<Result>(texts: readonly string[], work: () => Promise<Result>): Promise<Result> {
  const base = await mkdtemp(join(folder, "node-"));
  const [host, bin, calls] = ["host", "bin", "calls"].map((name) => join(base, name)) as [string, string, string];
  for (const path of [
    join(host, "proc/self"),
    join(host, `sys/fs/lustre/osc/lustre-OST0001-osc-${CLIENT}`),
    bin,
    calls,
  ]) {
    await mkdir(path, { recursive: true });
  }
  const mounts = [
    "21 1 8:1 / / rw - ext4 /dev/vda rw",
    `44 21 0:44 / ${folder} rw - lustre 10.0.2.15@tcp:/lustre rw,flock`,
  ];
  await writeFile(join(host, "proc/self/mountinfo"), `${mounts.join("\n")}\n`);
  for (const [i, text] of texts.entries()) await writeFile(join(base, `${i}.txt`), text);
  const last = texts.length - 1;
  const script = `#!/bin/sh\nn=$(ls "${calls}" | wc -l)\ntouch "${calls}/$$"\n[ "$n" -le ${last} ] || n=${last}\ncat "${base}/$n.txt"\nexit 2\n`;
  await writeFile(join(bin, "lctl"), script);
  await chmod(join(bin, "lctl"), 0o755);
  const old = { ATHANOR_HOST_ROOT: process.env["ATHANOR_HOST_ROOT"], PATH: process.env["PATH"] };
  Object.assign(process.env, { ATHANOR_HOST_ROOT: host, PATH: `${bin}${delimiter}${old.PATH}` });
  try {
    return await work();
  } finally {
    process.env["PATH"] = old.PATH;
    if (old.ATHANOR_HOST_ROOT === undefined) delete process.env["ATHANOR_HOST_ROOT"];
    else process.env["ATHANOR_HOST_ROOT"] = old.ATHANOR_HOST_ROOT;
  }
}

test(
  "requests, bytes and operations between two looks at the client's counters; what others do is said",
  LIMIT,
  async () => {
    const texts = [recordedCounters()];
    while (texts.length < 60) {
      const [osc, mdc] = [`osc.lustre-OST0001-osc-${CLIENT}`, `mdc.lustre-MDT0000-mdc-${CLIENT}`];
      const more = grown(texts.at(-1)!, osc, {
        ost_read: [3, 900],
        read_bytes: [3, 12 * MIB],
        "1024 pages": [2],
        "1 pages": [1],
      });
      texts.push(grown(more, mdc, { ldlm_ibits_enqueue: [1], mds_close: [1], obd_ping: [5] }));
    }
    const report = await onLustre(texts, () => benchBill(options, { say: () => undefined }));
    assert.equal(report.from, "client counters");
    assert.deepEqual(
      report.rows.map(({ name }) => name),
      ["athanor window", "memmap", "naive"],
    );
    for (const { name, run: span, start, end } of report.rows) {
      for (const cost of [start, span, end]) {
        assert.ok(cost.reads >= 3 && cost.reads % 3 === 0, `${name}: ${cost.reads} requests`);
        assert.equal(cost.bytes, cost.reads * 4 * MIB, name);
        assert.equal(cost.metadata, (cost.reads / 3) * 2, name);
        assert.deepEqual(
          cost.operations,
          { ldlm_ibits_enqueue: cost.metadata / 2, mds_close: cost.metadata / 2 },
          name,
        );
        assert.equal(cost.onePage, cost.reads / 3, name);
        assert.deepEqual(cost.unsure, [], name);
      }
    }
    assert.deepEqual(report.quiet, { seconds: 4, reads: 6, bytes: 24 * MIB, metadata: 4 });
    assert.deepEqual(report.bars, []);
    const text = billText(report);
    assert.match(
      text,
      /WARNING others use this file system on this node: 6 read requests \(24MiB\) and 4 metadata operations in 4 s/,
    );
    assert.match(text, /no bars: they hold for shards of 64MiB and more/);
  },
);

test("counters of which some OSTs are left out are not used, and that is said", LIMIT, async () => {
  const part = recordedCounters().replaceAll("lustre-OST0001-osc-ffff", "lustre-OST0001-osc-MDT0000-ffff");
  const meter = await onLustre([part], () => meterFor(folder));
  assert.notEqual(meter.source, "client counters");
  assert.match(meter.notes[0]!, /this is Lustre, but .* are told of some servers only \(1 missing\)/);
});

test("elsewhere calls are counted, and called so", LIMIT, async (t) => {
  const report = await benchBill(options, { say: () => undefined });
  const text = billText(report);
  assert.match(text, /has no counters of requests that Athanor knows/);
  const rows = new Map(report.rows.map((row) => [row.name, row]));
  const [ours, naive] = [rows.get("athanor window")!, rows.get("naive")!];
  assert.equal(ours.samples, SAMPLES);
  if (report.from === "/proc") {
    assert.match(text, /note: strace/);
    return t.skip("skipped: no strace that may trace here");
  }
  assert.equal(report.from, "system calls");
  assert.match(text, /counted: system calls on the data, by strace: calls, not requests/);
  // One open of each shard, one close when the agent ends; an epoch's bytes and no more than a block a lane beside them.
  assert.equal(ours.start.metadata! + ours.run.metadata!, SHARDS);
  assert.equal(ours.end.metadata, SHARDS);
  assert.ok(
    ours.run.bytes >= 0.98 * ours.needed && ours.run.bytes <= 1.1 * ours.needed,
    `${ours.run.bytes / ours.needed}`,
  );
  // An open and a close a sample, and half a shard of reads.
  assert.equal(naive.run.metadata, 2 * naive.samples);
  assert.ok(naive.run.bytes > 50 * naive.needed);
  assert.equal(rows.get("memmap")!.run.reads, 0);
});
