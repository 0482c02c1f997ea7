// Whole reports of `athanor doctor` over recorded nodes: a healthy Lustre, ones in trouble, other versions, other networks, none at all.
import assert from "node:assert/strict";
import { test } from "node:test";
import { diagnose } from "../../src/doctor/diagnose.ts";
import { WELL, replay } from "../lustre/replay.ts";
import { Node, TOOLS, TREE, golden, limits, port, recorded, sampled, treeOf } from "./scene.ts";

const IB_MOUNT = "lustre 10.0.8.11@o2ib,10.1.8.11@o2ib1:10.0.8.12@o2ib:/trainfs rw,checksum,flock,lazystatfs";
const over = (tree: Record<string, string>, nid: string): Record<string, string> =>
  Object.fromEntries(
    Object.entries(tree).map(([path, text]) => [path, path.endsWith("ost_conn_uuid") ? `${nid}\n` : text]),
  );

/** The recorded connections without those of one OST. */
const othersOf = (name: string): string =>
  recorded("get_param-osc.import.txt")
    .split(/^(?=osc\.)/m)
    .filter((block) => !block.startsWith(`osc.${name}-`))
    .join("");

test("the recorded Lustre as root: nothing is wrong, values to try", async (t) => {
  const node = new Node(t, {});
  golden("healthy", await node.report());
  golden("healthy-site-config", await node.siteConfig());
});

test("the same as nobody: what only root sees is named", async (t) => {
  const lfs = {
    ...TOOLS,
    "lnetctl net show -v": { stderr: recorded("as-nobody-lnetctl.stderr.txt"), status: 234 },
    "lctl list_nids": { status: 1 },
    "lctl get_param osc.*.stats": { status: 2 },
    "lctl get_param osc.*.import": { status: 2 },
    dmesg: { stderr: "dmesg: read kernel buffer failed: Operation not permitted\n", status: 1 },
  };
  golden("nobody", await new Node(t, { lfs }).report());
});

test("TCP with idle InfiniBand: the lines that would change it", async (t) => {
  const host = {
    ...port("mlx5_0", { net: "ib0" }),
    ...port("mlx5_1", { net: "ib1" }),
    ...port("mlx5_2", { state: "1: DOWN", net: "ib2" }),
  };
  const node = new Node(t, { host, sys: over(TREE, "10.0.2.15@tcp") });
  const report = await node.report();
  golden("idle-infiniband", report);
  assert.match(report, /warning: InfiniBand is here and active, and Lustre goes over TCP/);
  golden("idle-infiniband-site-config", await node.siteConfig());
});

test("TCP with idle EFA and Slingshot, and a RoCE card that may not do more", async (t) => {
  const sys = over(TREE, "10.0.2.15@tcp");
  const efa = {
    ...port("rdmap36s0", { driver: "efa", layer: "Unspecified" }),
    ...port("rdmap42s0", { driver: "efa", layer: "Unspecified" }),
  };
  const fsx = "lustre 172.31.14.250@tcp:/lustre rw,noatime,flock,lazystatfs";
  golden("idle-efa-site-config", await new Node(t, { host: efa, sys, system: fsx }).siteConfig());
  const cxi = {
    "sys/class/cxi/cxi0/device/uevent": "DRIVER=cxi_ss1\n",
    "sys/class/cxi/cxi0/device/net/hsn0/operstate": "up\n",
  };
  golden("idle-slingshot-site-config", await new Node(t, { host: cxi, sys }).siteConfig());
  const roce = await new Node(t, { host: port("mlx5_0", { layer: "Ethernet", net: "eth1" }), sys }).report();
  golden("idle-roce", roce);
  assert.match(roce, /hint: mlx5_0 could do RDMA, and Lustre goes over TCP/);
  assert.match(roce, /0 problems, 0 warnings/);
});

test("InfiniBand in use: a sick rail, a port too few, small credits", async (t) => {
  const host = {
    ...port("mlx5_0", { net: "ib0" }),
    ...port("mlx5_1", { net: "ib1" }),
    ...port("mlx5_2", { net: "ib2" }),
    "sys/module/ko2iblnd/parameters/peer_credits": "8\n",
    "sys/module/lnet/parameters/lnet_peer_discovery_disabled": "1\n",
    "sys/module/lnet/parameters/lnet_health_sensitivity": "0\n",
  };
  const sys = {
    ...treeOf(sampled("lctl-get_param-osc.txt"), sampled("lctl-get_param-llite-2.15.txt")),
    "osc/trainfs-OST0000-osc-ff4e8a7c0b1d2000/ost_conn_uuid": "10.0.8.21@o2ib\n",
  };
  const lfs = {
    ...TOOLS,
    "lnetctl net show -v": { stdout: sampled("lnetctl-net-show-v.yaml") },
    "osts /mnt/lustre": { stdout: sampled("lfs-osts.txt") },
    "df /mnt/lustre": { stdout: sampled("lfs-df.txt").replaceAll("/lustre/trainfs", "/mnt/lustre") },
    "check osts": { stdout: "" },
  };
  const node = new Node(t, { host, sys, lfs, system: IB_MOUNT, version: "2.15.5" });
  golden("infiniband", await node.report());
  golden("infiniband-site-config", await node.siteConfig());
});

test("an OST that is full, one that is switched off, one that is lost", async (t) => {
  const full = { ...TOOLS, "df /mnt/lustre": { stdout: recorded("enospc-lfs-df-v.txt") } };
  const filled = await new Node(t, { lfs: full }).report();
  golden("full-ost", filled);
  assert.match(filled, /problem: lustre-OST0003 is full.*ENOSPC/);
  const inactive = {
    ...TOOLS,
    "osts /mnt/lustre": { stdout: recorded("fail-inactive-lfs-osts.txt") },
    "df /mnt/lustre": { stdout: recorded("fail-inactive-lfs-df.txt") },
    "check osts": {
      stdout: recorded("fail-inactive-lfs-check.txt"),
      stderr: recorded("fail-inactive-lfs-check.stderr.txt"),
    },
    "lctl get_param osc.*.import": { stdout: othersOf("lustre-OST0001") + recorded("fail-inactive-osc-import.txt") },
  };
  const off = await new Node(t, { lfs: inactive }).report();
  golden("inactive-ost", off);
  assert.match(off, /problem: lustre-OST0001 is switched off here.*EIO/);
  const lost = {
    ...TOOLS,
    "df /mnt/lustre": { stdout: recorded("failout-lfs-df.txt"), hang: true },
    "df -i /mnt/lustre": { hang: true },
    "check osts": { stdout: recorded("failout-lfs-check.txt"), stderr: recorded("failout-lfs-check.stderr.txt") },
    "lctl get_param osc.*.import": { stdout: othersOf("lustre-OST0002") + recorded("failout-osc-import.txt") },
  };
  const began = Date.now();
  const report = await new Node(t, { lfs: lost }).report({}, { timeoutMs: 5000 });
  golden("lost-ost", report);
  assert.ok(Date.now() - began < 60_000, "a call that hangs costs its time limit and no more");
});

test("clients of 2.12 and 2.16: values that are the default of their line are no finding", async (t) => {
  const params = treeOf(sampled("lctl-get_param-osc.txt"), sampled("lctl-get_param-llite-2.15.txt"));
  // `lfs` of other lines prints as that of 2.15 does; what only 2.17 tells is not there.
  const lfs = {
    ...TOOLS,
    "lnetctl net show -v": { stdout: sampled("lnetctl-net-show-v.yaml") },
    "lctl list_nids": { stdout: "10.0.8.101@o2ib\n10.0.8.102@o2ib\n" },
    "lctl get_param osc.*.stats": { status: 2 },
    "lctl get_param osc.*.import": { stdout: sampled("lctl-get_param-osc-import.txt") },
    "osts /mnt/lustre": { stdout: sampled("lfs-osts.txt") },
    "df /mnt/lustre": { stdout: sampled("lfs-df.txt").replaceAll("/lustre/trainfs", "/mnt/lustre") },
    "df -i /mnt/lustre": { stdout: sampled("lfs-df-i.txt").replaceAll("/lustre/trainfs", "/mnt/lustre") },
    "check osts": { stdout: "" },
  };
  const host = { ...port("mlx5_0", { net: "ib0" }), ...port("mlx5_1", { net: "ib1" }) };
  const old = "lustre: 2.12.3_ddn39\nkernel: patchless_client\nbuild:  2.12.3_ddn39";
  golden("client-2.12", await new Node(t, { host, sys: params, lfs, system: IB_MOUNT, version: old }).report());
  const off = { ...params, ...treeOf("llite.trainfs-ff4e8a7c0b1d2000.hybrid_io=0") };
  const report = await new Node(t, { host, sys: off, lfs, system: IB_MOUNT, version: "2.16.1" }).report();
  golden("client-2.16", report);
  assert.doesNotMatch(report, /tunable-hybrid-io/);
});

test("clients of other lines, and what is known of them", async (t) => {
  const facts = await new Node(t, { sys: {}, lfs: { ...TOOLS, "lctl get_param osc.*.import": { status: 2 } } }).facts();
  const told = (version: string, kernel: string, sys: Record<string, string>): string[] => {
    const files = new Map(facts.files);
    files.set("sys/fs/lustre/version", version).set("proc/sys/kernel/osrelease", kernel);
    for (const [path, text] of Object.entries(sys)) files.set(`sys/fs/lustre/${path}`, text.trim());
    const { findings } = diagnose({ ...facts, files });
    return findings.map(({ id }) => id).filter((id) => id.startsWith("client-"));
  };
  const none = {};
  const hybrid = treeOf(sampled("lctl-get_param-llite-2.17.txt").replaceAll("trainfs", "lustre"));
  assert.deepEqual(told("lustre: 2.12.3_ddn39\nkernel: patchless", "3.10.0-1160.el7.x86_64", none), [
    "client-old",
    "client-no-hybrid-io",
  ]);
  assert.deepEqual(told("2.15.5", "4.18.0-553.el8_10.x86_64", none), ["client-no-hybrid-io"]);
  assert.deepEqual(told("2.15.5", "5.14.0-503.21.1.el9_5.x86_64", none), [
    "client-kernel-panic",
    "client-no-hybrid-io",
  ]);
  assert.deepEqual(told("2.15.7", "5.14.0-503.21.1.el9_5.x86_64", none), ["client-no-hybrid-io"]);
  assert.deepEqual(told("2.16.1", "5.14.0-427.el9_4.x86_64", none), ["client-no-hybrid-io"]);
  assert.deepEqual(told("2.17.0", "6.1.0", hybrid), ["client-hybrid-io-server", "client-hybrid-write-fault"]);
  assert.deepEqual(told("2.17.1", "6.1.0", hybrid), ["client-hybrid-io-server"]);
  assert.deepEqual(told("2.17.1", "6.1.0", none), []);
});

test("a pod in want of everything", async (t) => {
  const host = {
    "proc/self/limits": limits({
      "Max open files": "256",
      "Max address space": "8589934592",
      "Max processes": "512",
      "Max locked memory": "65536",
    }),
    "proc/self/status": "Cpus_allowed_list:\t0\n",
    "proc/self/cgroup": "0::/kubepods/pod1\n",
    "sys/fs/cgroup/kubepods/pod1/memory.max": "max\n",
    "sys/fs/cgroup/kubepods/memory.max": "2147483648\n",
    "sys/fs/cgroup/kubepods/memory.stat": "anon 1073741824\nfile 9999\nshmem 268435456\n",
    "sys/fs/cgroup/kubepods/pod1/cpu.max": "150000 100000\n",
    "sys/fs/cgroup/kubepods/pod1/cpu.stat": "usage_usec 1\nnr_periods 1000\nnr_throttled 421\n",
    "sys/fs/cgroup/kubepods/pod1/pids.max": "300\n",
    "sys/fs/lustre/health_check": "device lustre-OST0000-osc reported unhealthy\nNOT HEALTHY\n",
    "sys/fs/cgroup/kubepods/pod1/cpuset.cpus.effective": "0-3\n",
    "sys/devices/system/node/node1/cpulist": "8-15\n",
    "sys/bus/pci/drivers/nvidia/0000:17:00.0/numa_node": "0\n",
    "sys/bus/pci/drivers/nvidia/0000:97:00.0/numa_node": "1\n",
    "proc/driver/nvidia/version": "NVRM version: 580\n",
    "proc/driver/nvidia-fs/stats": sampled("gds-nvidia-fs-stats.txt").replace("True", "False"),
    "proc/cmdline": "root=/dev/vda intel_iommu=on\n",
    "sys/class/bdi/lustre-ffff888110d00000/read_ahead_kb": "4096\n",
  };
  const lfs = {
    ...TOOLS,
    "quota -u 0 /mnt/lustre": { stdout: "" },
    "project -d /mnt/lustre": { stdout: " 4242 P /mnt/lustre\n" },
    quota: { stdout: sampled("lfs-quota-p.txt") },
    dmesg: { stdout: sampled("dmesg-lustre.txt").replace(/^.*restored.*\n/m, "") },
  };
  const sys = {
    ...TREE,
    ...treeOf(
      "llite.lustre-ffff888110d00000.lazystatfs=0",
      "llite.lustre-ffff888110d00000.opencache_threshold_count=0",
      "llite.lustre-ffff888110d00000.hybrid_io=0",
      "osc.lustre-OST0002-osc-ffff888110d00000.max_pages_per_rpc=256",
      "osc.lustre-OST0002-osc-ffff888110d00000.checksums=0",
    ),
  };
  const system = "lustre 10.0.2.15@tcp:/lustre ro,localflock,network=tcp1";
  const node = new Node(t, { host, lfs, sys, system });
  const small = { total: 64 * 2 ** 20, available: 64 * 2 ** 20 };
  const spaces = new Map([
    [node.replay.folder, { total: 2 ** 40, available: 2 ** 39 }],
    ["/dev/shm", small],
  ]);
  const report = await node.report(
    {
      spaces,
      python: { command: "python3", version: "3.8.10", packages: { athanor: "0.0.9" } },
      env: { DEEPSPEED_TIMEOUT: "5" },
      runDir: {
        path: node.replay.folder,
        found: { own: { folder: true, uid: 1000, mode: 0o40700 }, real: node.replay.folder },
      },
      node: "18.20.0",
    },
    { path: node.replay.folder },
  );
  golden("pod", report);
});

test("a mount that does not answer, and one that refuses", async (t) => {
  const node = new Node(t, {});
  const spaces = (space: { silent: true } | { code: string }) => new Map([[node.replay.folder, space]]);
  const silent = await node.report({ spaces: spaces({ silent: true }) });
  assert.match(silent, /problem: \/mnt\/lustre does not answer \[mount-silent\]/);
  assert.match(silent, /warning: \/dev\/shm is not there/);
  assert.match(await node.report({ spaces: spaces({ code: "EAGAIN" }) }), /problem: \/mnt\/lustre answers with EAGAIN/);
});

test("another rank of the job leaves the targets to rank 0", async (t) => {
  const node = new Node(t, {});
  process.env["SLURM_PROCID"] = "3";
  try {
    const report = await node.report();
    assert.match(report, /rank 0 of the job asks for them/);
    assert.ok(!node.replay.calls().some((call) => /^(osts|df)/.test(call)));
    assert.match(await node.report({}, { always: true }), /4 OSTs/);
  } finally {
    delete process.env["SLURM_PROCID"];
  }
});

test("without Lustre: no word of it, and what was looked at", async (t) => {
  const none = new Node(t, { system: "ext4 /dev/vdb rw", lfs: undefined });
  const report = await none.report();
  golden("no-lustre", report);
  assert.doesNotMatch(report.replace("no Lustre, MooseFS", ""), /Lustre|OST|LNet/);
  const nfs = new Node(t, { system: "nfs4 10.0.0.5:/export rw,nconnect=1,rsize=65536", lfs: undefined });
  golden("nfs", await nfs.report());
});

test("OSTs that lfs does not name are not known, with what it printed", (t) => {
  const garbage = { stdout: "what\n" };
  const scene = replay(t, { lfs: { ...WELL, "osts /mnt/lustre": garbage, "df /mnt/lustre": garbage } });
  const { stdout } = scene.athanor("doctor", scene.folder);
  assert.match(stdout, /\/mnt\/lustre: OSTs not known\n/);
  assert.match(stdout, /could not be told[^]*`lfs osts` names no OST: "what"/);
});
