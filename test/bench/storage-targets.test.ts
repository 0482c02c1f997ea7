// Which targets are measured, what MooseFS tells of a file, and the network that Lustre uses.
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { networkOf } from "../../src/bench/storage-network.ts";
import { chooseTargets, homesOf, oneCopy } from "../../src/bench/storage-targets.ts";
import { parseMountinfo } from "../../src/storage/mounts.ts";
import { recorded } from "../lustre/fixtures.ts";
import { WELL, replay } from "../lustre/replay.ts";

const mountAt = (folder: string) =>
  parseMountinfo(`44 21 0:44 / ${folder} rw - lustre 10.0.2.15@tcp:/lustre rw,flock`)[0]!;
const LIMITS = { bytes: 1 << 20, root: "/", timeoutMs: 10_000 };

test("OSTs are spread over all, and those that are switched off or have no room are named", async (t) => {
  const scene = replay(t, { lfs: WELL });
  const of = (most: number, bytes = 1 << 20) =>
    scene.inside(() => chooseTargets(mountAt(scene.folder), { ...LIMITS, most, bytes }));
  const names = async (...args: Parameters<typeof of>) => (await of(...args)).targets.map(({ index }) => index);
  assert.deepEqual(await names(8), [0, 1, 2, 3]);
  assert.deepEqual(await names(2), [0, 2]);
  // The last one is the smallest.
  assert.deepEqual(await names(8, 1 << 30), [0, 1, 2]);
  assert.match((await of(8, 1 << 30)).notes.join(), /left out: lustre-OST0003 \(863MiB free\)/);
  const off = replay(t, { lfs: { ...WELL, "osts /mnt/lustre": { stdout: recorded("fail-inactive-lfs-osts.txt") } } });
  const { targets, notes } = await off.inside(() => chooseTargets(mountAt(off.folder), { ...LIMITS, most: 8 }));
  assert.equal(targets.length, 3);
  assert.match(notes.join(), /left out: lustre-OST000\d \(inactive\)/);
});

test("the network is known only where each interface of LNet tells its speed", async (t) => {
  const at = async (nids: string, speed: string) => {
    const scene = replay(t, {
      lfs: { "lctl list_nids": { stdout: nids } },
      host: { "sys/class/net/ib0/speed": speed },
    });
    const addresses = { ib0: [{ address: "10.0.0.7" }], eth0: [{ address: "10.9.0.7" }] };
    const root = scene.folder.replace(/mount$/, "root");
    return await scene.inside(() => networkOf(mountAt(scene.folder), { root, timeoutMs: 10_000, addresses }));
  };
  assert.deepEqual(await at("10.0.0.7@tcp\n10.9.0.7@o2ib\n", "200000\n"), {
    bytesPerSecond: 25e9,
    text: "ib0: 200 Gbit/s",
  });
  for (const [nids, speed] of [
    ["10.0.0.7@tcp", "-1\n"],
    ["10.0.0.8@tcp", "1000"],
    ["10.0.0.7@o2ib", "1000"],
    ["10.9.0.7@tcp", "1000"],
    ["", "1000"],
  ] as const)
    assert.equal((await at(nids, speed)).bytesPerSecond, undefined, `${nids} ${speed}`);
});

test("MooseFS: the chunk servers of a file; none where a chunk has copies on several, or there is none", () => {
  const [one, two] = ["10.77.0.1:9501", "10.77.0.1:9502"];
  assert.deepEqual(oneCopy([[one], [one], []]), [one]);
  assert.deepEqual(oneCopy([[two], [one]]), [one, two]);
  assert.equal(oneCopy([[one], [one, two]]), undefined);
  assert.equal(oneCopy([]), undefined);
});

test("MooseFS: files are asked for a part at a time, until nothing answers", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "ath-mfs-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const calls = join(folder, "calls");
  // Answers twice, then refuses.
  const tool = `#!/bin/sh
shift; echo $# >> "${calls}"; [ $(wc -l < "${calls}") -gt 2 ] && exit 1
for f; do printf '%s:\\n\\tchunk 0: 0000000000000001_00000001 / (id:1 ver:1)\\n\\t\\tcopy 1: 10.77.0.1:9501 (status:VALID)\\n' "$f"; done
`;
  writeFileSync(join(folder, "mfsfileinfo"), tool, { mode: 0o755 });
  const mount = parseMountinfo("44 21 0:44 / /m rw - fuse.mfs mfs#10.77.0.1:9421 rw")[0]!;
  assert.equal(mount.kind, "moosefs");
  const files = Array.from({ length: 1000 }, (_, i) => ({ path: `/m/-${i}`, bytes: 1 }));
  const { PATH } = process.env;
  process.env["PATH"] = `${folder}:${PATH}`;
  try {
    const homes = await homesOf(files, mount, 10_000);
    assert.equal(homes.filter(({ targets }) => targets?.[0] === "10.77.0.1:9501").length, 512);
  } finally {
    process.env["PATH"] = PATH;
  }
  assert.equal(readFileSync(calls, "utf8"), "256\n256\n256\n");
});
