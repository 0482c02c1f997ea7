// What was asked between two recorded snapshots: cleared counters, and OSTs that come and go.
import assert from "node:assert/strict";
import { test } from "node:test";
import { parseCounters } from "../../src/lustre/counters.ts";
import type { Snapshot } from "../../src/lustre/read-counters.ts";
import { spentBetween, totalOf } from "../../src/lustre/spent.ts";
import { CLIENT, grown, recorded, recordedCounters } from "./fixtures.ts";
import { mutatedText, told } from "./hostile.ts";

const OSC = (ost: number): string => `osc.lustre-OST000${ost}-osc-${CLIENT}`;
const NAME = (ost: number): string => OSC(ost).slice("osc.".length);
const MDC = `mdc.lustre-MDT0000-mdc-${CLIENT}`;
const MIB = 1 << 20;

const snapshot = (text: string, at: number): Snapshot => ({ at, devices: parseCounters(text), missing: [] });
/** A device's paragraph taken out of `stats` and `rpc_stats`. */
const without = (text: string, device: string): string =>
  text
    .split(/^(?=\w+\.\S+=$)/m)
    .filter((part) => !part.startsWith(`${device}.`))
    .join("");

const THEN = recordedCounters();
const BEFORE = snapshot(THEN, 1_796_074_600);

test("requests, bytes and time by OST; operations of the metadata server by name; sizes", () => {
  let text = grown(THEN, OSC(1), {
    ost_read: [5, 20_000],
    read_bytes: [5, 20 * MIB],
    "1024 pages": [4],
    "1 pages": [1],
  });
  text = grown(text, OSC(2), { req_waittime: [9, 900], obd_ping: [4, 10] });
  text = grown(text, MDC, { ldlm_ibits_enqueue: [3, 3], mds_close: [2, 99], mds_statfs: [7, 7], obd_ping: [1, 1] });
  const spent = spentBetween(BEFORE, snapshot(text, 1_796_074_610));
  assert.deepEqual([...spent.reads], [["lustre-OST0001", { requests: 5, bytes: 20 * MIB, ms: 20 }]]);
  assert.equal(spent.metadata, 5);
  assert.deepEqual(
    [...spent.operations],
    [
      ["ldlm_ibits_enqueue", 3],
      ["mds_close", 2],
    ],
  );
  assert.deepEqual(
    [...spent.readPages!],
    [
      [1, 1],
      [1024, 4],
    ],
  );
  assert.deepEqual([spent.seconds, spent.reset, spent.unknown], [10, [], []]);
});

test("nothing between a snapshot and itself", () => {
  const spent = spentBetween(BEFORE, BEFORE);
  assert.deepEqual([totalOf(spent.reads), spent.metadata], [{ requests: 0, bytes: 0, ms: 0 }, 0]);
});

test("counters that somebody cleared count from zero, and are named", () => {
  const cleared = THEN.replace(/(ost_read +)29( samples \[usecs\] )\d+ \d+ \d+ /, "$12$29 9 4000 ").replace(
    /(read_bytes +)29( samples \[bytes\] )\d+ \d+ \d+ /,
    "$12$24 4 8192 ",
  );
  const spent = spentBetween(BEFORE, snapshot(cleared, 1_796_074_610));
  assert.deepEqual([...spent.reads], [["lustre-OST0001", { requests: 2, bytes: 8192, ms: 4 }]]);
  assert.deepEqual(spent.reset, [NAME(1)]);
  // A new mount of the same name that has counted more by now is told by when it began.
  const anew = spentBetween(
    BEFORE,
    snapshot(
      THEN.replaceAll("start_time                1796074370.8", "start_time                1796074605.8"),
      1_796_074_610,
    ),
  );
  assert.deepEqual(anew.reset, [NAME(1), NAME(2), NAME(3)]);
  assert.equal(anew.reads.get("lustre-OST0001")!.requests, 29);
});

test("an OST that is gone, or came without saying when it began, is not known; one that began since counts", () => {
  const gone = spentBetween(BEFORE, snapshot(without(THEN, OSC(3)), 1_796_074_610));
  assert.deepEqual([gone.unknown, gone.reads.size], [[NAME(3)], 0]);
  const earlier = snapshot(without(THEN, OSC(3)), 1_796_074_600);
  const came = spentBetween(earlier, snapshot(THEN, 1_796_074_610));
  assert.deepEqual([came.unknown, came.reads.size], [[NAME(3)], 0]);
  const fresh = snapshot(without(THEN, OSC(3)), 1_796_074_370);
  const since = spentBetween(fresh, snapshot(THEN, 1_796_074_610));
  assert.deepEqual(since.unknown, []);
  assert.equal(since.reads.get("lustre-OST0003")!.bytes, parseCounters(THEN)[4]!.counters.get("read_bytes")!.sum);
});

test("damaged outputs give numbers that can be, or nothing", () => {
  told(mutatedText([THEN, recorded("as-nobody-get_param.txt")]), 300, 7, (text) => {
    const { reads, metadata } = spentBetween(BEFORE, snapshot(text, 1_796_074_610));
    for (const { requests, bytes, ms } of reads.values()) {
      assert.ok(requests > 0 && [requests, bytes, ms].every((value) => value >= 0 && Number.isFinite(value)), text);
    }
    assert.ok(metadata >= 0 && Number.isFinite(metadata), text);
    return reads.size > 0;
  });
});

test("sizes are not known where one OST does not tell them", () => {
  const text = THEN.replace(`${OSC(2)}.rpc_stats=`, "osc.x.rpc_stats=");
  assert.equal(spentBetween(BEFORE, snapshot(text, 1_796_074_610)).readPages, undefined);
});
