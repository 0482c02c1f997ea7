// Counters of a running Lustre client, as recorded: what they are taken for, and that a server's own devices are not.
import assert from "node:assert/strict";
import { test } from "node:test";
import { operationsOf, parseCounters, readsOf, targetOf } from "../../src/lustre/counters.ts";
import { recorded, recordedCounters, sampled } from "./fixtures.ts";

test("a client's devices with requests, bytes, time and sizes; those of a server on the node are left out", () => {
  const devices = parseCounters(recordedCounters());
  assert.deepEqual(
    devices.map(({ kind, target }) => `${kind} ${target}`),
    ["llite lustre", ...["0000", "0001", "0002", "0003"].map((ost) => `osc lustre-OST${ost}`), "mdc lustre-MDT0000"],
  );
  const first = devices[1]!;
  assert.deepEqual(readsOf(first), { requests: 13, bytes: 54_525_952, ms: 789.068 });
  assert.deepEqual([...first.readPages!], [[1024, 13]]);
  assert.equal(first.since, Number("1796074370.765548170"));
  assert.equal(devices[0]!.counters.get("ioctl")!.sum, undefined);
  // Lookups and opens, attributes, closes, listings, HSM; not 9 questions for the state of the file system, nor pings, nor connections.
  const operations = operationsOf(devices.at(-1)!);
  assert.equal(operations.get("ldlm_ibits_enqueue"), 113);
  assert.equal(
    [...operations.values()].reduce((sum, count) => sum + count, 0),
    113 + 36 + 50 + 57 + 4 + 3 + 2 + 1,
  );
});

test("requests by their size, and a sum beyond 32 bits", () => {
  const [device] = parseCounters(sampled("lctl-get_param-osc-rpc_stats.txt"));
  assert.equal(device!.readPages!.get(1), 4012);
  assert.equal(
    [...device!.readPages!.values()].reduce((sum, count) => sum + count, 0),
    49_765,
  );
  // Only `stats` says that it is counted at all.
  assert.equal(device!.counted, false);
});

test("a user is told lines without their last letter, and they count as they are", () => {
  const [mount] = parseCounters(recorded("as-nobody-get_param.txt"));
  assert.deepEqual(mount!.counters.get("ioctl"), { count: 648, unit: "reqs", sum: undefined });
  assert.deepEqual(mount!.counters.get("write_bytes"), { count: 87, unit: "bytes", sum: 246_415_360 });
  assert.equal(parseCounters("osc.*.stats=\nnonsense\n").length, 0);
});

test("names of devices", () => {
  assert.equal(targetOf("osc", "my-fs-OST00ff-osc-ff4e8a7c0b1d2000"), "my-fs-OST00ff");
  assert.equal(targetOf("osc", "fs-OST0000-osc-MDT0000"), undefined);
  assert.equal(targetOf("mdc", "fs-MDT0001-mdc-ffff8881"), "fs-MDT0001");
  assert.equal(targetOf("llite", "fs-ffff8881"), "fs");
});
