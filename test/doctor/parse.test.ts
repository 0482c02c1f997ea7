// Quotas, control groups, limits, read times: texts of the kernel and of lfs.
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { groupFiles, groupLimits } from "../../src/doctor/cgroup.ts";
import { diagnose } from "../../src/doctor/diagnose.ts";
import { cpuList } from "../../src/doctor/facts.ts";
import { parseImports } from "../../src/doctor/imports.ts";
import { parseLimits } from "../../src/doctor/limits.ts";
import { parseQuota } from "../../src/lustre/quota.ts";
import { parseReadTimes, slowTargets } from "../../src/doctor/target-stats.ts";
import { diagnosisJson, diagnosisText, siteConfig } from "../../src/doctor/text.ts";
import { parseMountinfo } from "../../src/storage/mounts.ts";
import { hostileTools } from "./hostile.ts";
import { NODE, TREE, factsOf, limits, recorded, sampled } from "./scene.ts";

test("lfs quota: over the hard limit, a long name on a line of its own, servers that did not tell", () => {
  const over = parseQuota(sampled("lfs-quota-p.txt"));
  assert.deepEqual(over, {
    bytes: { used: 10737418240 * 1024, soft: 10000000000 * 1024, hard: 10737418240 * 1024, over: true },
    files: { used: 912345, soft: 0, hard: 1000000, over: false },
  });
  const head =
    "Disk quotas for usr 1000 (uid 1000):\n      Filesystem  kbytes  bquota  blimit  bgrace   files  iquota  ilimit  igrace\n";
  const wrapped = `${head}/a/very/long/name/of/a/mount\n                 [5]*      0       0       -      [7]       0       0       -\n`;
  assert.deepEqual(parseQuota(wrapped)?.bytes, { used: 5 * 1024, soft: 0, hard: 0, over: true });
  assert.equal(parseQuota(wrapped)?.files.used, 7);
  assert.equal(parseQuota("Unexpected quotactl error: Operation not supported\n"), undefined);
});

test("control groups of version 2: the least limit of the group and those above it", () => {
  const files = groupFiles("0::/kubepods/pod1\n");
  assert.deepEqual(
    files.filter((file) => file.endsWith("memory.max")),
    ["sys/fs/cgroup/kubepods/pod1/memory.max", "sys/fs/cgroup/kubepods/memory.max", "sys/fs/cgroup/memory.max"],
  );
  const limits = groupLimits(
    new Map([
      ["sys/fs/cgroup/kubepods/pod1/memory.max", "max"],
      ["sys/fs/cgroup/kubepods/memory.max", "1000"],
      ["sys/fs/cgroup/kubepods/memory.stat", "anon 10\nshmem 5\nfile 900"],
      ["sys/fs/cgroup/memory.max", "2000"],
      ["sys/fs/cgroup/kubepods/pod1/pids.max", "max"],
      ["sys/fs/cgroup/kubepods/pids.max", "100"],
      ["sys/fs/cgroup/kubepods/pod1/cpu.max", "max 100000"],
      ["sys/fs/cgroup/kubepods/cpu.max", "250000 100000"],
      ["sys/fs/cgroup/kubepods/pod1/cpu.stat", "nr_periods 10\nnr_throttled 9"],
    ]),
  );
  assert.deepEqual(limits, { memory: 1000, used: 15, cpus: 2.5, throttled: undefined, cpuset: undefined, pids: 100 });
});

test("control groups of version 1, and a path out of the container's sight", () => {
  const text = "9:cpu,cpuacct:/job\n4:memory:/job\n3:cpuset:/../job\n1:name=systemd:/job\n0::/\n";
  const files = groupFiles(text);
  for (const file of [
    "cpu/job/cpu.cfs_quota_us",
    "cpu,cpuacct/job/cpu.cfs_quota_us",
    "memory/job/memory.limit_in_bytes",
    "cpuset/job/cpuset.cpus",
  ])
    assert.ok(files.includes(`sys/fs/cgroup/${file}`), file);
  assert.ok(files.every((file) => !file.includes("..")));
  const limits = groupLimits(
    new Map([
      ["sys/fs/cgroup/memory/job/memory.limit_in_bytes", "4096"],
      ["sys/fs/cgroup/memory/job/memory.stat", "total_rss 100\ntotal_shmem 20"],
      ["sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712"],
      ["sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "400000"],
      ["sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000"],
      ["sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1"],
      ["sys/fs/cgroup/cpuset/job/cpuset.cpus", "0-3"],
    ]),
  );
  assert.deepEqual(limits, { memory: 4096, used: 120, cpus: 4, throttled: undefined, cpuset: "0-3", pids: undefined });
});

test("connections to OSTs: their state, and the version of the server", () => {
  assert.deepEqual(parseImports(recorded("get_param-osc.import.txt")), [
    { name: "lustre-OST0000", state: "FULL", version: "2.17.0.0" },
    { name: "lustre-OST0001", state: "FULL", version: "2.17.0.0" },
    { name: "lustre-OST0002", state: "FULL", version: "2.17.0.0" },
    { name: "lustre-OST0003", state: "FULL", version: "2.17.0.0" },
  ]);
  const [old] = parseImports(sampled("lctl-get_param-osc-import.txt"));
  assert.deepEqual(old, { name: "trainfs-OST0002", state: "FULL", version: "2.15.5.0" });
  assert.deepEqual(parseImports(""), []);
  // A client of 2.17 with hybrid I/O before servers of 2.15, one of them lost.
  const text = sampled("lctl-get_param-osc-import.txt").replaceAll("trainfs", "lustre");
  const stdout = text + text.replaceAll("OST0002", "OST0001").replace("state: FULL", "state: DISCONN");
  const tools = new Map([
    ["lctl get_param osc.*.import", { status: 0, stdout, stderr: "", missing: false, timedOut: false }],
  ]);
  const mount = {
    point: "/mnt/lustre",
    type: "lustre",
    source: "1@tcp:/lustre",
    kind: "lustre" as const,
    options: ["flock"],
  };
  const files = { "sys/fs/lustre/version": "2.17.1", "sys/fs/lustre/llite/lustre-ff00/hybrid_io": "1" };
  const targets = new Map([["/mnt/lustre", { targets: [], notes: [] }]]);
  const ids = diagnose({ ...factsOf(files), tools, watched: [mount], targets }).findings.map(({ id }) => id);
  assert.deepEqual(
    ids.filter((id) => /^(client|target)-/.test(id)),
    ["client-hybrid-io-old-server", "target-disconnected"],
  );
});

test("lists of CPUs and limits of a process", () => {
  assert.deepEqual(cpuList("0-3,8, 10-11"), [0, 1, 2, 3, 8, 10, 11]);
  assert.deepEqual(cpuList(""), []);
  const found = parseLimits(limits({ "Max open files": "1024" }));
  assert.deepEqual([found.get("Max open files"), found.get("Max address space")], [1024, Infinity]);
});

test("an OST whose reads take longer than those of the others; connections of a server are none", () => {
  const times = parseReadTimes(recorded("get_param-osc.stats.txt"));
  assert.deepEqual(times.map(({ name, requests }) => [name, requests]).slice(0, 1), [["lustre-OST0000", 13]]);
  assert.equal(times.length, new Set(times.map(({ name }) => name)).size);
  const reads = (name: string, count: number, mean: number): string =>
    `osc.fs-${name}-osc-ff00.stats=\nost_read ${count} samples [usecs] 1 9 ${count * mean * 1000} 7\n`;
  const all = (slow: number): string =>
    reads("OST0000", 1000, 4) + reads("OST0001", 1000, 5) + reads("OST0002", 1000, slow) + reads("OST0003", 20, 900);
  assert.deepEqual(
    slowTargets(parseReadTimes(all(40))).map(({ name, mean, median }) => [name, mean, median]),
    [["fs-OST0002", 40, 5]],
  );
  assert.deepEqual(slowTargets(parseReadTimes(all(9))), []);
  assert.deepEqual(
    slowTargets(parseReadTimes(reads("OST0000", 1000, 1) + reads("OST0001", 1000, 99))),
    [],
    "two tell nothing of each other",
  );
});

test("whatever stands in the files and on the tools' outputs: a report, never an error", () => {
  const base = factsOf({
    ...NODE,
    ...Object.fromEntries(Object.entries(TREE).map(([path, text]) => [`sys/fs/lustre/${path}`, text])),
  });
  const paths = [
    ...base.files.keys(),
    "sys/fs/lustre/version",
    "proc/cmdline",
    "sys/fs/cgroup/memory.max",
    "sys/fs/cgroup/cpu.max",
    "sys/fs/cgroup/cpu.stat",
  ];
  const texts = fc.oneof(
    fc.string(),
    fc.constantFrom(
      "",
      "-1",
      "max",
      "0-99999999",
      "9".repeat(40),
      "4: ACTIVE",
      "nr_periods 0",
      recorded("get_param-osc.stats.txt"),
    ),
  );
  const lines = [
    "lnetctl net show -v",
    "lctl list_nids",
    "lctl get_param osc.*.stats",
    "dmesg",
    "lfs quota -u 0 /mnt/lustre",
    "lfs df -i /mnt/lustre",
  ];
  const sources = ["10.0.0.1@tcp:/lustre", "@:/", ":/", "a@o2ib0,b@tcp:c@kfi:/lustre/x"];
  fc.assert(
    fc.property(
      fc.dictionary(fc.constantFrom(...paths), texts),
      fc.dictionary(fc.constantFrom(...lines), texts),
      fc.constantFrom(...sources),
      (files, tools, source) => {
        const point = "/mnt/lustre";
        const mount = { point, type: "lustre", source, kind: "lustre" as const, options: ["rw"] };
        const results = Object.entries(tools).map(
          ([line, stdout]) => [line, { status: 0, stdout, stderr: "", missing: false, timedOut: false }] as const,
        );
        const found = diagnose({
          ...base,
          files: new Map([...base.files, ...Object.entries(files)]),
          tools: new Map(results),
          watched: [mount],
          targets: new Map([[point, { targets: [], notes: [] }]]),
        });
        for (const text of [diagnosisText(found), siteConfig(found)]) assert.doesNotMatch(text, /\bundefined\b|NaN/);
        JSON.stringify(diagnosisJson(found));
      },
    ),
    { numRuns: 500 },
  );
});

test("mutated outputs of lnetctl, lctl, lfs and dmesg: a report, never an error", () => {
  assert.ok(hostileTools(500, 1).told > 100);
});

test("a node short of memory is told where no control group limits it", () => {
  const told = (available: number): string[] => {
    const meminfo = `MemTotal:       24683964 kB\nMemAvailable:   ${available} kB`;
    const { findings } = diagnose(factsOf({ ...NODE, "proc/meminfo": meminfo }));
    return findings.filter(({ id }) => id === "memory-tight").map(({ evidence }) => evidence);
  };
  assert.deepEqual(told(22_000_000), []);
  assert.deepEqual(told(1_000_000), ["/proc/meminfo: MemAvailable"]);
});

test("a Python with numpy and without the client is told; one without either gets one word", () => {
  const told = (packages: Record<string, string>): string[] => {
    const python = { command: "python3", version: "3.11.7", packages };
    const ids = diagnose({ ...factsOf(NODE), python }).findings.map(({ id }) => id);
    return ids.filter((id) => /^(numpy|client|versions)-/.test(id));
  };
  assert.deepEqual(told({ numpy: "2.4.6", athanor: "0.1.0" }), []);
  assert.deepEqual(told({ numpy: "2.4.6" }), ["client-missing"]);
  assert.deepEqual(told({}), ["numpy-missing"]);
});

test("DEEPSPEED_TIMEOUT that is no number of minutes is told, and the default counts: it was passed over without a word", () => {
  const idsOf = (text: string): string[] =>
    diagnose({ ...factsOf(NODE), env: { DEEPSPEED_TIMEOUT: text } })
      .findings.map(({ id }) => id)
      .filter((id) => id.startsWith("watchdog"));
  for (const text of ["abc", "", "10.5", "30m", "0", "-5", "9".repeat(400)])
    assert.deepEqual(idsOf(text), ["watchdog-unreadable"], text);
  assert.deepEqual(idsOf(" +3_0 "), []);
  assert.deepEqual(idsOf("9"), ["watchdog-short"]);
  const facts = { ...factsOf(NODE), env: { DEEPSPEED_TIMEOUT: "abc" } };
  const { findings, areas } = diagnose(facts);
  const { evidence, fix } = findings.find(({ id }) => id === "watchdog-unreadable")!;
  assert.equal(evidence, 'DEEPSPEED_TIMEOUT="abc"');
  assert.match(fix, /unset DEEPSPEED_TIMEOUT/);
  assert.match(areas.find(({ area }) => area === "collective watchdog")!.seen[0]!, /^10min \(the default/);
});

test("what could not be told has its reason: a quota and a kernel log that nobody answered for, or no tool", () => {
  const ran = { status: undefined, stdout: "", stderr: "", missing: false, timedOut: false };
  const unknown = (how: object): string[] => {
    const [mount] = parseMountinfo("44 21 0:44 / /mnt/lustre rw - lustre 10.0.2.15@tcp:/lustre rw");
    const tools = new Map(["dmesg", "lfs quota -u 1000 /mnt/lustre"].map((line) => [line, { ...ran, ...how }]));
    return diagnose({ ...factsOf(NODE), watched: [mount!], tools }).unknown.filter((line) =>
      /^(quota|kernel)/.test(line),
    );
  };
  assert.deepEqual(unknown({ timedOut: true }), [
    "quota of user 1000 at /mnt/lustre: `lfs quota` did not answer in time",
    "kernel log: `dmesg` did not answer in time",
  ]);
  assert.deepEqual(unknown({ missing: true }), [
    "quota: `lfs` is not installed here",
    "kernel log: `dmesg` is not installed here",
  ]);
});
