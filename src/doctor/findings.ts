/**
 * The table of all findings: severity and source by name. docs/reference/doctor.md has the same names, which a test holds against it.
 *
 * Severities: `problem`: training fails, hangs or cannot write; `warning`: it costs time, or fails once something else happens; `hint`:
 * good to know, or a value to try. Problems and warnings make the exit code 1.
 */
export type Severity = "problem" | "warning" | "hint";

const SEEN = "seen on a Lustre 2.17.0";
const DESIGN = "docs/guides/doctor.md";

const table = <Id extends string>(rows: Record<Id, readonly [Severity, string]>): typeof rows => rows;

/** Severity and source by name. */
export const FINDINGS = table({
  "mount-silent": ["problem", `${SEEN}: calls into a lost mount never return`],
  "mount-refused": ["problem", "statfs(2)"],
  "mount-read-only": ["hint", DESIGN],
  "mount-no-flock": ["hint", "mount.lustre(8), flock"],
  "mount-local-flock": ["hint", "mount.lustre(8), localflock"],
  "mount-network-option": ["hint", "mount.lustre(8), network="],
  "mount-no-lazystatfs": ["warning", "mount.lustre(8), lazystatfs"],
  "mount-bdi-read-ahead": ["warning", "Azure/az-hop pull request 1753"],
  "client-unhealthy": ["warning", "Lustre manual, health_check"],
  "client-old": ["hint", "Lustre source, defaults by release"],
  "client-no-hybrid-io": ["hint", "counters of a Lustre 2.17.0; LU-18033 brought hybrid I/O"],
  "client-hybrid-io-server": ["hint", "Azure/azhpc-images pull request 574; LU-18033"],
  "client-hybrid-io-old-server": ["warning", "Azure/azhpc-images pull request 574; LU-18033"],
  "client-hybrid-write-fault": ["hint", `${SEEN}, one build`],
  "client-kernel-panic": [
    "warning",
    "LU-18085; Cray/lustre issues 3 and 4; stackhpc/ansible-slurm-appliance pull request 688",
  ],
  "network-rdma-idle": ["warning", "Lustre manual, configuring LNet; AWS FSx, EFA clients"],
  "network-roce-idle": ["hint", "Lustre manual, configuring LNet"],
  "network-ni-down": ["problem", "lnetctl(8), net show"],
  "network-health": ["warning", "NVIDIA GPUDirect Storage guide, LNet health"],
  "network-rails": ["hint", "NVIDIA GPUDirect Storage guide, multi-rail"],
  "network-port-down": ["hint", "sysfs, infiniband"],
  "network-discovery-off": ["hint", "lnetctl(8), set discovery"],
  "network-health-off": ["hint", "lnetctl(8), set health_sensitivity"],
  "gds-absent": ["hint", "NVIDIA GPUDirect Storage guide"],
  "gds-no-peerdirect": ["hint", "NVIDIA GPUDirect Storage guide, troubleshooting"],
  "gds-over-tcp": ["hint", "NVIDIA GPUDirect Storage guide, Lustre"],
  "gds-iommu": ["hint", "NVIDIA GPUDirect Storage guide, IOMMU"],
  "tunable-rpcs-in-flight": [
    "hint",
    "DDN, MLPerf Storage v1.0 results; NVIDIA GPUDirect Storage guide; AWS EKS tuning page",
  ],
  "tunable-mdc-rpcs": ["hint", "AWS EKS tuning page"],
  "tunable-pages-per-rpc": ["hint", "NVIDIA GPUDirect Storage guide; Lustre default since 2.9"],
  "tunable-dirty": ["hint", "NVIDIA GPUDirect Storage guide"],
  "tunable-read-ahead-file": ["hint", "Lustre source, default of 64 to 256 MiB"],
  "tunable-read-ahead": ["hint", "Lustre source, default of 256 to 1024 MiB"],
  "tunable-hybrid-io": ["hint", "counters of a Lustre 2.17.0"],
  "tunable-hybrid-threshold": ["hint", "counters of a Lustre 2.17.0"],
  "tunable-open-cache": ["hint", "counters of a Lustre 2.17.0: 2 014 instead of 6 metadata calls for 1000 opens"],
  "tunable-checksums": ["hint", "Lustre manual, checksums"],
  "tunable-client-cache": ["hint", "AWS example (32 MiB), our judgement"],
  "tunable-peer-credits": ["hint", "NVIDIA GPUDirect Storage guide, ko2iblnd"],
  "tunable-ptlrpcd": ["hint", "AWS FSx for Lustre, performance tips"],
  "target-silent": ["problem", `${SEEN}: reads of a lost OST hang and cannot be killed`],
  "target-inactive": ["problem", `${SEEN}: EIO on stripes there`],
  "target-full": ["problem", `${SEEN}: ENOSPC although df shows free space`],
  "target-filling": ["warning", "AWS and GCP managed Lustre: act at 85 to 90 % an OST"],
  "target-degraded": ["warning", "lfs-df(1)"],
  "target-read-only": ["problem", "lfs-df(1)"],
  "target-disconnected": ["warning", "lctl get_param osc.*.import"],
  "target-slow": ["warning", "this client's own statistics, osc.*.stats"],
  "metadata-full": ["problem", "lfs-df(1), inodes"],
  "quota-over": ["problem", "lfs-quota(1)"],
  "quota-near": ["warning", "lfs-quota(1)"],
  "shm-missing": ["warning", "docs/design.md 4.6"],
  "shm-full": ["problem", "tmpfs(5)"],
  "shm-small": ["warning", "pytorch issue 5040; the default of Docker and Kubernetes is 64 MiB"],
  "shm-on-disk": ["warning", "docs/design.md 4.6"],
  "run-dir-unusable": ["problem", "docs/reference/errors.md, ATH_RUN_DIR"],
  "run-dir-network": ["problem", "docs/design.md 4.6"],
  "limit-open-files": ["warning", "getrlimit(2)"],
  "limit-address-space": ["problem", "docs/reference/errors.md, ATH_MEMORY_BUDGET"],
  "limit-locked-memory": ["warning", "NCCL troubleshooting guide; NVIDIA GPUDirect Storage guide"],
  "limit-processes": ["warning", "getrlimit(2)"],
  "cpu-few": ["warning", "docs/design.md 4.6"],
  "cpu-pinned": ["hint", "docs/design.md 4.6"],
  "cpu-throttled": ["warning", "Linux, cgroup v2, cpu.stat"],
  "cpu-far-from-gpu": ["warning", "sysfs, numa_node"],
  "memory-tight": ["warning", "docs/design.md 4.5"],
  "watchdog-short": ["problem", "DeepSpeed constants (DEEPSPEED_TIMEOUT); torch, default of a NCCL group"],
  "watchdog-unreadable": ["warning", "DeepSpeed constants (DEEPSPEED_TIMEOUT)"],
  "node-old": ["problem", "package.json, engines"],
  "python-missing": ["warning", "docs/design.md 4.7"],
  "python-old": ["problem", "docs/design.md 4.7"],
  "python-silent": ["warning", "docs/design.md 4.7"],
  "numpy-missing": ["warning", "docs/design.md 4.7"],
  "client-missing": ["hint", "docs/design.md 4.7"],
  "versions-differ": ["warning", "docs/reference/protocol.md"],
  "log-evicted": ["warning", "Lustre source, import.c"],
  "log-connection-lost": ["warning", "Lustre source, import.c"],
  "log-hung-task": ["warning", "Linux, hung task detector"],
  "log-network-timeout": ["warning", "Lustre source, o2iblnd"],
});

export type FindingId = keyof typeof FINDINGS;
