/**
 * Files that are looked at. None of them asks a server: `kbytesfree`, `ping` and their like would, and hang with a lost OST.
 */

import { VENDOR_FILE } from "../lustre/slow-links.ts";
import { GPU_NODES } from "./facts.ts";
import { TUNABLES } from "./tunable-list.ts";

const LNET = ["networks", "lnet_peer_discovery_disabled", "lnet_health_sensitivity"];

export const PATTERNS: readonly string[] = [
  "proc/self/status",
  "proc/self/limits",
  "proc/modules",
  "proc/meminfo",
  "proc/cmdline",
  "proc/sys/kernel/osrelease",
  "proc/driver/nvidia/version",
  "proc/driver/nvidia-fs/stats",
  GPU_NODES,
  VENDOR_FILE,
  "sys/devices/system/cpu/online",
  "sys/devices/system/node/node*/cpulist",
  "sys/class/infiniband/*/ports/*/state",
  "sys/class/infiniband/*/ports/*/rate",
  "sys/class/infiniband/*/ports/*/link_layer",
  "sys/class/infiniband/*/device/uevent",
  "sys/class/infiniband/*/device/net/*/operstate",
  "sys/class/cxi/*/device/uevent",
  "sys/class/cxi/*/device/net/*/operstate",
  "sys/class/bdi/lustre-*/read_ahead_kb",
  "sys/fs/lustre/version",
  "sys/fs/lustre/health_check",
  "sys/fs/lustre/llite/*/lazystatfs",
  "sys/fs/lustre/osc/*/ost_conn_uuid",
  // `osc/FS-OST*/checksums`, of every file system.
  ...TUNABLES.map(({ file }) => `sys/fs/lustre/${file.replace(/FS-[^/]*/, "*")}`),
  "sys/kernel/debug/lustre/llite/*/max_cached_mb",
  ...LNET.map((name) => `sys/module/lnet/parameters/${name}`),
  "sys/module/ko2iblnd/parameters/peer_credits",
  "sys/module/ptlrpc/parameters/ptlrpcd_per_cpt_max",
];

/** Variables of the environment that are looked at. */
export const VARIABLES: readonly string[] = [
  "ATHANOR_PYTHON",
  "DEEPSPEED_TIMEOUT",
  "RANK",
  "SLURM_PROCID",
  "OMPI_COMM_WORLD_RANK",
  "PMI_RANK",
];
