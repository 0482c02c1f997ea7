// An agent's look at the client's counters: in the background, rarely, and summed over looks.
import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { ClientCounters } from "../../src/lustre/client-counters.ts";
import { CLIENT, grown, recordedCounters } from "./fixtures.ts";
import { replay } from "./replay.ts";
import type { Recording } from "./replay.ts";

const ASKED = "lctl get_param llite.*.stats osc.*.stats osc.*.rpc_stats mdc.*.stats";
const OSC = `osc.lustre-OST0001-osc-${CLIENT}`;
const SYS = { [`osc/${OSC.slice(4)}/active`]: "1\n" };
const MIB = 1 << 20;

/** One answer after the other, the last one for ever. */
function series([first, ...rest]: string[]): Recording {
  return { stdout: first!, ...(rest.length === 0 ? {} : { next: { [ASKED]: series(rest) } }) };
}

async function until<Value>(what: () => Value | undefined): Promise<Value> {
  for (const end = Date.now() + 60_000; ; await sleep(20)) {
    const found = what();
    if (found !== undefined) return found;
    assert.ok(Date.now() < end, "did not come to pass");
  }
}

test("reads since the beginning, over counters that were cleared in between", async (t) => {
  const texts = [recordedCounters()];
  texts.push(grown(texts[0]!, OSC, { ost_read: [4, 8000], read_bytes: [4, 16 * MIB] }));
  texts.push(
    texts[1]!
      .replace(/(ost_read +)33( samples \[usecs\] )\d+ \d+ \d+ /, "$12$29 9 1000 ")
      .replace(/(read_bytes +)33( samples \[bytes\] )\d+ \d+ \d+ /, "$12$24 4 8192 "),
  );
  const node = replay(t, { sys: SYS, lfs: { [ASKED]: series(texts) } });
  await node.inside(async () => {
    const counters = new ClientCounters({ everyMs: 0 });
    assert.equal(counters.told(), undefined);
    counters.begin("lustre");
    counters.begin("lustre");
    const first = await until(() => counters.told()?.get("lustre-OST0001"));
    assert.deepEqual(first, { requests: 4, bytes: 16 * MIB, ms: 8 });
    const later = await until(() => [counters.told()?.get("lustre-OST0001")].find((reads) => reads?.requests !== 4));
    assert.deepEqual(later, { requests: 6, bytes: 16 * MIB + 8192, ms: 9 });
  });
});

test("asked for when somebody asks, not more often than once in ten seconds, and not at all where they cannot be read", async (t) => {
  const node = replay(t, { sys: SYS, lfs: { [ASKED]: { stdout: recordedCounters() } } });
  await node.inside(async () => {
    const counters = new ClientCounters();
    counters.begin("lustre");
    await until(() => counters.told());
    for (let i = 0; i < 50; i++, await sleep(2)) assert.equal(counters.told()!.size, 0);
    assert.equal(node.calls().length, 2);
    const blind = new ClientCounters({ everyMs: 0 });
    blind.begin("scratch");
    await until(() => (node.calls().length === 3 ? true : undefined));
    for (let i = 0; i < 20; i++, await sleep(5)) assert.equal(blind.told(), undefined);
    assert.equal(node.calls().length, 3);
  });
});
