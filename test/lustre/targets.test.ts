// The state of OSTs from recorded outputs of `lfs`.
import assert from "node:assert/strict";
import { test } from "node:test";
import { parseImports } from "../../src/doctor/imports.ts";
import { parseNets } from "../../src/doctor/lnet.ts";
import { parseQuota } from "../../src/lustre/quota.ts";
import { parseReadTimes } from "../../src/doctor/target-stats.ts";
import { parseCounters } from "../../src/lustre/counters.ts";
import { parseGetstripe } from "../../src/lustre/getstripe.ts";
import { fileSystemOf, parseCheck, parseDf, parseOsts, parsePool } from "../../src/lustre/targets.ts";
import { recorded, sampled } from "./fixtures.ts";
import { hostileCounters, hostileTargets } from "./hostile.ts";

test("lfs osts", () => {
  assert.deepEqual(
    [...parseOsts(recorded("fail-inactive-lfs-osts.txt"))].map(([index, { active }]) => [index, active]),
    [
      [0, true],
      [1, false],
      [2, true],
      [3, true],
    ],
  );
  assert.equal(parseOsts(sampled("lfs-osts.txt")).get(11)?.name, "trainfs-OST000b");
});

test("lfs df: bytes and letters; one that stopped in the middle tells what it had", () => {
  const whole = parseDf(recorded("lfs-df.txt"));
  assert.deepEqual(whole.get(3), { total: 954_304 * 1024, used: 1392 * 1024, available: 884_100 * 1024, flags: "" });
  assert.deepEqual([...parseDf(recorded("failout-lfs-df.txt")).keys()], [0, 1]);
  const lettered = "trainfs-OST0004_UUID 100 99 1 99% /lustre/a b[OST:4] SRf\nOST0003             : inactive device\n";
  assert.equal(parseDf(lettered).get(4)?.flags, "SRf");
  assert.equal(parseDf(sampled("lfs-df.txt")).size, 4, "metadata servers are none");
});

test("lfs check osts: our own connections only", () => {
  assert.deepEqual([...parseCheck(recorded("failout-lfs-check.stderr.txt"))], [["lustre-OST0002", 5]]);
  assert.deepEqual([...parseCheck(recorded("fail-inactive-lfs-check.stderr.txt"))], [["lustre-OST0001", 108]]);
});

test("pools, and the name of a file system", () => {
  assert.deepEqual(parsePool(recorded("pool-new.txt").split("Pool: lustre.flash")[1]!), [
    "lustre-OST0000",
    "lustre-OST0001",
  ]);
  assert.equal(fileSystemOf("10.0.8.11@o2ib,10.1.8.11@o2ib1:10.0.8.12@o2ib:/trainfs/team-a"), "trainfs");
});

test("mutated outputs: what is not known is left out, and every number is one", () => {
  const { told, refused } = hostileTargets(2000, 1);
  assert.ok(told > 1000 && refused > 50, `${told} told something, ${refused} nothing`);
  assert.ok(hostileCounters(1000, 1).told > 500);
});

test("a line of 128 KiB, whatever stands in it, takes no time", () => {
  const SIZE = 1 << 17;
  // Some took 20 s each: their expressions tried every place against every other.
  for (const piece of ["a", " ", "'", "-osc-", "1 ", "a:", "[OST:1] ", "x 1 1 1 1% [OST:1]  y z", "\n"]) {
    const began = performance.now();
    for (const text of [piece.repeat(SIZE / piece.length), `x 1 1 1 1% [OST:1]${piece.repeat(SIZE / piece.length)}z`]) {
      for (const parse of [
        parseOsts,
        parseDf,
        parseCheck,
        parsePool,
        parseNets,
        parseImports,
        parseReadTimes,
        parseCounters,
        parseQuota,
      ])
        parse(text);
      assert.throws(() => parseGetstripe(`${text}\n???`, "/f"), { code: "ATH_LAYOUT_INVALID" });
    }
    assert.ok(performance.now() - began < 5000, `${JSON.stringify(piece)} took ${performance.now() - began} ms`);
  }
});
