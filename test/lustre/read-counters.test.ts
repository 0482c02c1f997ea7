// The counters over the replayed Lustre: by the tool, by files where there is none, and whether they are all there.
import assert from "node:assert/strict";
import { test } from "node:test";
import { readsOf } from "../../src/lustre/counters.ts";
import { readCounters } from "../../src/lustre/read-counters.ts";
import { CLIENT, recorded, recordedCounters } from "./fixtures.ts";
import { replay } from "./replay.ts";

const OSTS = [0, 1, 2, 3].map((ost) => `lustre-OST000${ost}-osc-${CLIENT}`);
const ASKED = "lctl get_param llite.*.stats osc.*.stats osc.*.rpc_stats mdc.*.stats";
/** Names that any user may list. */
const SYS = Object.fromEntries([...OSTS, "lustre-OST0000-osc-MDT0000"].map((name) => [`osc/${name}/active`, "1\n"]));

test("what the tool printed counts, not its status; other file systems are left out", async (t) => {
  const other = recordedCounters().replaceAll("lustre-", "scratch-");
  const node = replay(t, { sys: SYS, lfs: { [ASKED]: { stdout: recordedCounters() + other, status: 2 } } });
  const snapshot = await node.inside(() => readCounters("lustre"));
  assert.deepEqual(snapshot!.missing, []);
  assert.equal(snapshot!.devices.length, 6);
});

test("an OST that the tool leaves out is missing, and a file system that it does not tell of is unknown", async (t) => {
  const part = recorded("get_param-osc.stats.txt").replaceAll(OSTS[2]!, "lustre-OST0002-osc-MDT0000");
  const node = replay(t, { sys: SYS, lfs: { [ASKED]: { stdout: part, status: 2 } } });
  await node.inside(async () => {
    assert.deepEqual((await readCounters("lustre"))!.missing, [`osc.${OSTS[2]}`]);
    assert.equal(await readCounters("scratch"), undefined);
  });
});

test("without the tool its files are read: those of /proc, or root's of /sys/kernel/debug", async (t) => {
  const parts = recordedCounters().split(/^(?=\w+\.\S+=$)/m);
  for (const folder of ["proc/fs/lustre", "sys/kernel/debug/lustre"]) {
    const files = parts.map((part) => {
      const [head, ...lines] = part.split("\n");
      const [kind, name, parameter] = head!.slice(0, -1).split(".");
      return [`${folder}/${kind}/${name}/${parameter}`, lines.join("\n")];
    });
    const node = replay(t, { sys: SYS, lfs: {}, host: Object.fromEntries(files) as Record<string, string> });
    const snapshot = await node.inside(() => readCounters("lustre"));
    assert.deepEqual(snapshot?.missing, [], folder);
    const first = snapshot.devices.find(({ target }) => target === "lustre-OST0000")!;
    assert.equal(readsOf(first).requests, 13);
    assert.deepEqual([...first.readPages!], [[1024, 13]]);
  }
});

test("a tool that hangs costs its time limit", async (t) => {
  const node = replay(t, { sys: SYS, lfs: { [ASKED]: { hang: true } } });
  const began = Date.now();
  assert.equal(await node.inside(() => readCounters("lustre", { timeoutMs: 300 })), undefined);
  assert.ok(Date.now() - began < 30_000);
});
