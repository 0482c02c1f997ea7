// Whole reports of `athanor layout` over recorded outputs: a healthy Lustre, ones in trouble, other versions, other file systems.
// ATHANOR_WRITE_GOLDEN=1 writes the reports anew; look at the difference before it is committed.
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { USES } from "../../src/lustre/advice.ts";
import { CASE_60, FIXTURES, hexOf, recorded, sampled } from "./fixtures.ts";
import { ROUND, WELL, lostOst, plainLov, replay, shards } from "./replay.ts";
import type { ReplayFile } from "./replay.ts";

const MIB = 2 ** 20;

function golden(name: string, found: string): void {
  const file = `${FIXTURES}golden/${name}.txt`;
  if (process.env["ATHANOR_WRITE_GOLDEN"] !== undefined) writeFileSync(file, found);
  assert.equal(found, readFileSync(file, "utf8"), name);
}

test("a healthy folder of shards: nothing to do", async (t) => {
  const scene = replay(t, { files: shards(ROUND), lfs: WELL });
  const shown = await scene.report("d");
  golden("healthy-show", shown);
  const advised = await scene.report("d", { advise: true });
  golden("healthy-advise", advised);
  assert.equal(await scene.report("d/train-003.tar", { advise: true }), advised, "of a file: of its folder");
  const questions = scene.calls().filter((call) => call.startsWith("getstripe"));
  assert.deepEqual(questions.slice(-2), ["getstripe -d -y /mnt/lustre/d", "getstripe -d -y /mnt/lustre"]);
  assert.equal(questions.length, 6, "a folder is asked for its default once a report");
});

test("case 60: all shards on one OST are found, and lines lay them evenly", async (t) => {
  const scene = replay(t, {
    files: shards([[3], [3], [3], [3]]),
    lfs: {
      ...WELL,
      hsm_state: {
        each: {
          "*": ": (0x00000000)",
          "/mnt/lustre/d/train-002.tar": ": (0x00000009) exists archived, archive_id:1",
        },
      },
    },
  });
  const advised = await scene.report("d", { advise: true });
  golden("one-ost-advise", advised);
  assert.match(advised, /all 4 files lie on OST 3/);
  assert.match(
    await scene.report("d", { advise: true, probe: true }),
    /probe: not measured: only one OST holds 96 MiB/,
  );
});

test("--probe: what was measured, and times made of it alone", async (t) => {
  const uneven = [[3], [3], [3], [3], [3], [3], [1], [1]];
  const scene = replay(t, { files: shards(uneven), lfs: WELL });
  const advised = await scene.report("d", { advise: true, probe: true });
  const rate = String.raw`[\d.]+[KMG]iB/s`;
  const told = new RegExp(
    `probe: ${rate} from one OST, ${rate} from 2 at once \\([\\d.]+ ×\\)\n  144MiB read in .*\n  so this node would read all of it once in some .* as it lies \\(1\\.3 OSTs at work\\)\n  and in some .* if it lay evenly \\(4\\.0 OSTs\\)\n  more OSTs than 2 were not measured`,
  );
  assert.match(advised, told);
});

test("an OST that is full", async (t) => {
  const lfs = { ...WELL, "df /mnt/lustre": { stdout: recorded("enospc-lfs-df-v.txt") } };
  const scene = replay(t, { files: shards(ROUND), lfs });
  golden("full-show", await scene.report("d"));
  golden("full-advise", await scene.report("d", { advise: true }));
});

test("an OST that is switched off", async (t) => {
  const lfs = {
    ...WELL,
    "osts /mnt/lustre": { stdout: recorded("fail-inactive-lfs-osts.txt") },
    "df /mnt/lustre": { stdout: recorded("fail-inactive-lfs-df.txt") },
  };
  const scene = replay(t, { files: shards(ROUND), lfs });
  golden("inactive-show", await scene.report("d"));
  golden("inactive-advise", await scene.report("d", { advise: true }));
});

test("released files", async (t) => {
  const files = {
    ...shards(ROUND),
    "d/train-016.tar": { size: 32 * MIB, lov: hexOf(recorded("hsm-real-copytool.txt")) },
  };
  const scene = replay(t, { files, lfs: WELL });
  const shown = await scene.report("d");
  golden("released-show", shown);
  golden("released-advise", await scene.report("d", { advise: true }));
  assert.match(shown, /the first read of one waits until it is restored.*hsm_restore/);
});

test("single files: PFL, DoM, mirrors, overstriped, a pool", async (t) => {
  const files: Record<string, ReplayFile> = {
    "f/pfl": { size: 128 * MIB, lov: hexOf(recorded("getfattr-pfl.txt")) },
    "f/dom": { size: 3 * MIB, lov: hexOf(recorded("getfattr-dom.txt")) },
    "f/mirror": { size: 8 * MIB, lov: hexOf(sampled("xattr-lov-comp-flr.hex")) },
    "f/over": { size: 16 * MIB, lov: hexOf(recorded("getfattr-over.txt")) },
    "f/pooled": { size: 4 * MIB, lov: hexOf(recorded("getfattr-pool.txt")) },
    "f/none": { size: 0 },
  };
  const scene = replay(t, { files, lfs: WELL });
  const shown: string[] = [];
  // oxlint-disable-next-line no-await-in-loop -- the environment is the process's
  for (const name of Object.keys(files)) shown.push(await scene.report(name));
  golden("files-show", shown.join("\n"));
});

test("without Python: lfs of 2.15 is asked file by file", async (t) => {
  const files = { "d/a.bin": { size: 2 * 2 ** 30 }, "d/b.bin": { size: MIB } };
  const lfs = {
    ...WELL,
    "getstripe -y /mnt/lustre/d/a.bin": { stdout: sampled("getstripe-y-pfl-2.15minus.yaml") },
    "getstripe -y /mnt/lustre/d/b.bin": { stdout: sampled("getstripe-y-hsm-released.yaml") },
    "osts /mnt/lustre": { stdout: sampled("lfs-osts.txt") },
    "df /mnt/lustre": { stdout: sampled("lfs-df.txt") },
    "check osts": { stdout: "" },
  };
  const scene = replay(t, { files, lfs, version: "2.15.5", python: false });
  golden("lfs-2.15-show", await scene.report("d"));
});

test("without Python: layouts as lfs of 2.16 and later prints them, one of each kind, in a folder with a progressive default", async (t) => {
  const printed = {
    pfl: sampled("getstripe-y-pfl-2.16plus.yaml"),
    sel: recorded("getstripe-y-sel.txt"),
    dom: recorded("getstripe-y-dom.txt"),
    mirror: recorded("getstripe-y-mirror.txt"),
    "pool-in-pfl": recorded("getstripe-y-pfl-pool.txt"),
  };
  const lfs = {
    ...WELL,
    ...Object.fromEntries(
      Object.entries(printed).map(([name, stdout]) => [`getstripe -y /mnt/lustre/d/${name}`, { stdout }]),
    ),
    "getstripe -d -y /mnt/lustre/d": { stdout: recorded("getstripe-y-pfl-dir.txt") },
    "osts /mnt/lustre": { stdout: sampled("lfs-osts.txt") },
    "df /mnt/lustre": { stdout: sampled("lfs-df.txt").replaceAll("/lustre/trainfs", "/mnt/lustre") },
    "check osts": { stdout: "" },
  };
  const files = Object.fromEntries(Object.keys(printed).map((name) => [`d/${name}`, { size: 64 * MIB }]));
  const scene = replay(t, { files, lfs, version: "2.16.1", python: false });
  golden("lfs-2.16-show", await scene.report("d"));
});

test("without lfs: the xattr and /sys are enough to tell the balance", async (t) => {
  const names = [0, 1, 2, 3].map((i) => `osc/lustre-OST000${i}-osc-ffff888110d00000/active`);
  const sys = Object.fromEntries(names.map((name, i) => [name, i === 1 ? "0\n" : "1\n"]));
  const scene = replay(t, {
    files: shards(ROUND),
    sys,
    version: "lustre: 2.12.3_ddn39\nkernel: patchless_client\nbuild:  2.12.3_ddn39",
  });
  golden("no-lfs-show", await scene.report("d"));
});

test("checkpoints: a growing layout in the folder's pool, the default it overrides, and the undo", async (t) => {
  const lfs = {
    ...WELL,
    "getstripe -d -y /mnt/lustre/run7/checkpoints": {
      stdout: recorded("getstripe-y-pool.txt")
        .replace("stripe_count:  2", "stripe_count:  1")
        .replaceAll("lmm_", "")
        .replace(/objects[^]*/, ""),
    },
    "pool_list lustre.flash": {
      stdout:
        "Pool: lustre.flash\nlustre-OST0000_UUID\nlustre-OST0001_UUID\nlustre-OST0002_UUID\nlustre-OST0003_UUID\n",
    },
  };
  const files = { "run7/checkpoints/step-1/rank0.pt": { size: 3 * 2 ** 30, lov: plainLov([1]) } };
  const scene = replay(t, { files, lfs });
  const advised = await scene.report("run7/checkpoints", { advise: true });
  golden("checkpoints-advise", advised);
});

test("case 60: what lfs says of paths it cannot tell of is passed on, and the rest of the report stands", async (t) => {
  const stderr = (name: string): string => readFileSync(`${CASE_60}${name}`, "utf8");
  const lfs = {
    ...WELL,
    "getstripe -y /mnt/lustre/d/a": { stderr: stderr("not-lustre.stderr"), status: 25 },
    "getstripe -y /mnt/lustre/d/b": { stderr: stderr("missing.stderr"), status: 2 },
    "getstripe -y /mnt/lustre/d/c": { stdout: readFileSync(`${CASE_60}plain.yaml`, "utf8") },
    "getstripe -y /mnt/lustre/d/e": { stdout: "lmm_stripe_count: many\n" },
  };
  const files = Object.fromEntries(["a", "b", "c", "e"].map((name) => [`d/${name}`, { size: MIB }]));
  const scene = replay(t, { files, lfs, python: false });
  const shown = await scene.report("d");
  assert.match(shown, /3 files of which layout or size is not known \(a: layout not known: .*Inappropriate ioctl/);
  assert.match(shown, /1 file, 1MiB: -c 2 -S 4M/);
  assert.match(await scene.report("d/b"), /layout not known: .*No such file or directory \(2\)/);
  assert.match(await scene.report("d/e"), /line 1 of `lfs getstripe` has "many" where a number belongs/);
});

test("small files: on the metadata server only where the site has it", async (t) => {
  const files = Object.fromEntries(
    Array.from({ length: 120 }, (_, i) => [`s/${i}.json`, { size: 2000, lov: plainLov([i % 4]) }]),
  );
  const with1 = replay(t, {
    files,
    lfs: { ...WELL, "getstripe -d -y /mnt/lustre/s": { stdout: recorded("getstripe-y-dir-c4.txt") } },
  });
  golden("small-files-advise", await with1.report("s", { advise: true }));
  const dom = recorded("getstripe-y-dom.txt")
    .replace(/ +lmm_objects[^]*/, "")
    .replaceAll("lmm_", "")
    .replace(/lcme_id: +\d/g, "lcme_id: N/A");
  const site = replay(t, {
    files,
    lfs: {
      ...WELL,
      "getstripe -d -y /mnt/lustre/s": { stdout: recorded("getstripe-y-dir-c4.txt") },
      "getstripe -d -y /mnt/lustre": { stdout: dom },
    },
  });
  const advised = await site.report("s", { advise: true });
  assert.match(advised, /lfs setstripe -E 1M -L mdt -E -1 -c 1 -S 4M \/mnt\/lustre\/s/);
  assert.doesNotMatch(await with1.report("s", { advise: true }), /mdt/);
});

test("a default over all of many OSTs is never kept and never advised", async (t) => {
  const osts = `OBDS:\n${Array.from({ length: 48 }, (_, i) => `${i}: big-OST${i.toString(16).padStart(4, "0")}_UUID ACTIVE`).join("\n")}\n`;
  const df = Array.from(
    { length: 48 },
    (_, i) => `big-OST${i.toString(16).padStart(4, "0")}_UUID 1000000 1000 900000   1% /mnt/lustre[OST:${i}]`,
  ).join("\n");
  const lfs = {
    ...WELL,
    "osts /mnt/lustre": { stdout: osts },
    "df /mnt/lustre": { stdout: `${df}\n` },
    getstripe: { stdout: readFileSync(`${CASE_60}directory-default.txt`, "utf8").split("\n").slice(1).join("\n") },
  };
  const all = Array.from({ length: 48 }, (_, i) => i);
  const scene = replay(t, {
    files: shards(Array.from({ length: 200 }, () => all)),
    lfs,
    system: "lustre 10.0.8.11@o2ib:/big rw",
  });
  for (const use of USES) {
    // oxlint-disable-next-line no-await-in-loop -- the environment is the process's
    const advised = await scene.report("d", { advise: true, use });
    assert.match(advised, /instead of: -c -1 -S 1M/, use);
    const command = /^ {2}lfs setstripe.*$/m.exec(advised)?.[0] ?? "";
    assert.ok(command !== "" && !command.includes("-c -1"), command);
    if (use === "shards") golden("all-osts-advise", advised);
  }
});

test("other file systems: never a word of Lustre, and what fits there", async (t) => {
  for (const [system, name] of [
    ["fuse.mfs mfs#10.77.0.1:9421 rw,allow_other", "moosefs"],
    ["ceph 10.0.9.1:6789:/ rw", "cephfs"],
    ["nfs4 filer:/export rw,rsize=65536,wsize=65536", "nfs"],
    ["gpfs gpfs1 rw", "gpfs"],
    ["beegfs beegfs_nodev rw", "beegfs"],
    ["xfs /dev/nvme0n1p1 rw", "local"],
    ["fuse.juicefs JuiceFS:x rw", "other"],
  ] as const) {
    const scene = replay(t, { files: { "d/a": { size: 1 } }, system });
    // oxlint-disable-next-line no-await-in-loop -- the environment is the process's
    const report = await scene.report("d", { advise: true });
    assert.doesNotMatch(report.replaceAll("/mnt/lustre", ""), /lustre|\bOST|stripe|lfs|MDT/i);
    golden(`other-${name}`, report);
  }
});

test("an OST that is lost: nothing waits for it, it is named, sizes of its files are not known", async (t) => {
  const scene = replay(t, lostOst());
  golden("lost-show", await scene.report("d", { timeoutMs: 2000 }));
  golden("lost-advise", await scene.report("d", { timeoutMs: 2000, advise: true }));
});

test("CephFS: the layout of a file as Ceph tells it", async (t) => {
  const layout = /"(.*)"/.exec(sampled("cephfs-getfattr-layout.txt"))![1]!;
  const scene = replay(t, {
    files: { "d/a": { size: 1, xattrs: { "ceph.file.layout": layout } } },
    system: "ceph 10.0.9.1:6789:/ rw",
  });
  assert.match(
    await scene.report("d/a"),
    /layout: stripe_unit=4194304 stripe_count=1 object_size=4194304 pool=cephfs_data/,
  );
  assert.doesNotMatch(await scene.report("d"), /layout:/);
});
