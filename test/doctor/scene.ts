/** Nodes out of recordings for `athanor doctor`: trees of /proc and /sys, tools that print what was recorded, facts that are fixed. */
import { readFileSync, writeFileSync } from "node:fs";
import assert from "node:assert/strict";
import type { TestContext } from "node:test";
import { fileURLToPath } from "node:url";
import { diagnose } from "../../src/doctor/diagnose.ts";
import type { Facts, Space } from "../../src/doctor/facts.ts";
import { gather } from "../../src/doctor/gather.ts";
import type { GatherOptions } from "../../src/doctor/gather.ts";
import { diagnosisText, siteConfig } from "../../src/doctor/text.ts";
import { recorded, sampled } from "../lustre/fixtures.ts";
import { WELL, replay } from "../lustre/replay.ts";
import type { Replay, Scene } from "../lustre/replay.ts";

const GOLDEN = fileURLToPath(new URL("../../../test/fixtures/doctor/golden/", import.meta.url));
const GIB = 2 ** 30;

/** `lctl get_param` text as files of /sys/fs/lustre, below it. */
export function treeOf(...texts: readonly string[]): Record<string, string> {
  const lines = texts.join("\n").matchAll(/^(\w+)\.([^.\n]+)\.(\w+)=(.+)$/gm);
  return Object.fromEntries([...lines].map(([, kind, name, file, value]) => [`${kind}/${name}/${file}`, `${value}\n`]));
}

/** What the client of the recorded node has set. */
export const TREE = treeOf(
  ...["lazystatfs", "checksums", "max_read_ahead_mb", "max_read_ahead_per_file_mb", "hybrid_io"].map((name) =>
    recorded(`get_param-llite.${name}.txt`),
  ),
  ...["active", "checksums", "max_rpcs_in_flight", "max_pages_per_rpc", "max_dirty_mb", "ost_conn_uuid"].map((name) =>
    recorded(`get_param-osc.${name}.txt`),
  ),
  recorded("get_param-mdc.max_rpcs_in_flight.txt"),
);

/** A node without control groups and GPUs, with 8 CPUs. */
export const NODE: Record<string, string> = {
  "proc/self/limits": limits({}),
  "proc/self/status": "Name:\tnode\nCpus_allowed_list:\t0-7\n",
  "proc/self/cgroup": "0::/\n",
  "proc/meminfo": "MemTotal:       527960248 kB\nMemFree:        12345678 kB\nMemAvailable:   498765432 kB\n",
  "proc/sys/kernel/osrelease": "6.1.0-41-amd64\n",
  "sys/devices/system/cpu/online": "0-7\n",
  "sys/devices/system/node/node0/cpulist": "0-7\n",
};

export function limits(changes: Record<string, string>): string {
  const set = {
    "Max processes": "96365",
    "Max open files": "65536",
    "Max locked memory": "unlimited",
    "Max address space": "unlimited",
    ...changes,
  };
  const rows = Object.entries(set).map(
    ([name, soft]) => `${name.padEnd(26)}${soft.padEnd(21)}unlimited            units`,
  );
  return `${"Limit".padEnd(26)}${"Soft Limit".padEnd(21)}Hard Limit           Units\n${rows.join("\n")}\n`;
}

/** Of a node that has these files and no mount. */
export function factsOf(files: Readonly<Record<string, string>>): Facts {
  return {
    files: new Map(Object.entries(files).map(([path, text]) => [path, text.trim()])),
    limitsFile: "proc/self/limits",
    silentFiles: [],
    tools: new Map(),
    mounts: [],
    watched: [],
    spaces: new Map(),
    targets: undefined,
    runDir: undefined,
    env: {},
    user: { uid: 1000, gid: 1000 },
    node: "20.20.2",
    athanor: "0.1.0",
    python: PYTHON,
    loaderTimeout: 540,
  };
}

/** `lfs`, `lctl` and `lnetctl` of the recorded node, as root sees them. */
export const TOOLS: NonNullable<Scene["lfs"]> = {
  ...WELL,
  "df -i /mnt/lustre": { stdout: recorded("lfs-df-i.txt") },
  quota: { stdout: "", stderr: "quotactl failed: Operation not supported\n", status: 1 },
  "lnetctl net show -v": { stdout: recorded("lnetctl-net-show-v.txt") },
  "lctl list_nids": { stdout: recorded("lctl-list_nids.txt") },
  "lctl get_param osc.*.import": { stdout: recorded("get_param-osc.import.txt") },
  "lctl get_param osc.*.stats": { stdout: recorded("get_param-osc.stats.txt") },
  dmesg: { stdout: "" },
};

/** A port of `sys/class/infiniband`. */
export function port(
  device: string,
  { layer = "InfiniBand", driver = "mlx5_core", state = "4: ACTIVE", rate = "400 Gb/sec (4X NDR)", net = "" } = {},
): Record<string, string> {
  const folder = `sys/class/infiniband/${device}`;
  return {
    [`${folder}/ports/1/state`]: `${state}\n`,
    [`${folder}/ports/1/rate`]: `${rate}\n`,
    [`${folder}/ports/1/link_layer`]: `${layer}\n`,
    [`${folder}/device/uevent`]: `DRIVER=${driver}\nPCI_SLOT_NAME=0000:17:00.0\n`,
    ...(net === "" ? {} : { [`${folder}/device/net/${net}/operstate`]: "up\n" }),
  };
}

const PYTHON: Facts["python"] = {
  command: "python3",
  version: "3.11.7",
  packages: { numpy: "2.4.6", torch: "2.15.0", deepspeed: "0.19.8", athanor: "0.1.0" },
};

export class Node {
  readonly replay: Replay;
  /** By options: each asks some fifteen processes. */
  private readonly gathered = new Map<string, Promise<Facts>>();

  constructor(t: TestContext, scene: Scene) {
    this.replay = replay(t, { lfs: TOOLS, sys: TREE, ...scene, host: { ...NODE, ...scene.host } });
  }

  /** What of the machine that runs the test would differ is fixed, and can be changed. */
  async facts(changes: Partial<Facts> = {}, options: Partial<GatherOptions> = {}): Promise<Facts> {
    const key = JSON.stringify(options);
    const made =
      this.gathered.get(key) ?? this.replay.inside(() => gather({ loaderTimeout: 540, timeoutMs: 60_000, ...options }));
    this.gathered.set(key, made);
    const facts = await made;
    const fixed = [...facts.spaces].map(([path, space]): [string, Space] => [
      path,
      path === "/dev/shm"
        ? { total: 64 * GIB, available: 60 * GIB }
        : "total" in space
          ? { total: 1024 * GIB, available: 512 * GIB }
          : space,
    ]);
    const user = { uid: 1000, gid: 1000 };
    return {
      ...facts,
      spaces: new Map(fixed),
      python: PYTHON,
      node: "20.20.2",
      athanor: "0.1.0",
      user,
      runDir: undefined,
      env: {},
      ...changes,
    };
  }

  async report(changes: Partial<Facts> = {}, options: Partial<GatherOptions> = {}): Promise<string> {
    const text = this.replay.plain(`${diagnosisText(diagnose(await this.facts(changes, options)))}\n`);
    // Quotas are asked for whoever runs the test.
    return text.replace(/(user|-u) \d+/g, "$1 UID").replace(/(?<!control )(group|-g) \d+/g, "$1 GID");
  }

  async siteConfig(): Promise<string> {
    return this.replay.plain(`${siteConfig(diagnose(await this.facts()))}\n`);
  }
}

/** ATHANOR_WRITE_GOLDEN=1 writes the reports anew; look at the difference before it is committed. */
export function golden(name: string, found: string): void {
  const file = `${GOLDEN}${name}.txt`;
  if (process.env["ATHANOR_WRITE_GOLDEN"] !== undefined) writeFileSync(file, found);
  assert.equal(found, readFileSync(file, "utf8"), name);
}

export { recorded, sampled };
