/**
 * Check: GPUDirect Storage. Athanor hands batches over in memory and does not use it; checkpoints and weights may.
 */
import { typeOf } from "../lustre/nids.ts";
import type { Facts } from "./facts.ts";
import { gpusOf, lustreMounts, modulesOf } from "./facts.ts";
import { adderOf, checked } from "./finding.ts";
import type { Checked } from "./finding.ts";
import { networksTo } from "./lnet.ts";

export function checkGds(facts: Facts): Checked | undefined {
  const gpus = gpusOf(facts).length;
  const driver = facts.files.get("proc/driver/nvidia/version");
  if (gpus === 0 && driver === undefined) return undefined;
  const found = checked("GPUDirect Storage");
  const add = adderOf(found);
  const stats = facts.files.get("proc/driver/nvidia-fs/stats");
  const loaded = stats !== undefined || modulesOf(facts).has("nvidia_fs");
  found.seen.push(`${gpus} NVIDIA GPUs, nvidia-fs ${loaded ? "loaded" : "not loaded"}`);
  if (!loaded) {
    const fix =
      "nothing for Athanor; checkpoints go through host memory. Load nvidia-fs where torch.cuda.gds or cuFile is to be used";
    add("gds-absent", "GPUDirect Storage is not there", "no nvidia_fs in /proc/modules", fix);
    return found;
  }
  if (/PeerDirect Supported: False/i.test(stats ?? "")) {
    const fix =
      "install nvidia-peermem and an RDMA stack with peer memory, then load nvidia-fs anew; `gdscheck -p` tells";
    add(
      "gds-no-peerdirect",
      "nvidia-fs runs without PeerDirect: reads go through host memory",
      "/proc/driver/nvidia-fs/stats",
      fix,
    );
  }
  for (const { point, source } of lustreMounts(facts)) {
    const { nets, from } = networksTo(source, facts);
    if (!nets.every((net) => typeOf(net) === "tcp")) continue;
    const fix = "GDS needs RDMA to the servers: see the network findings";
    add(
      "gds-over-tcp",
      `GPUDirect Storage cannot work at ${point}: it is reached over TCP`,
      `mount source ${source}; ${from}`,
      fix,
    );
  }
  const line = facts.files.get("proc/cmdline") ?? "";
  if (/\b(intel|amd)_iommu=on\b/.test(line) && !/\biommu=pt\b/.test(line)) {
    const fix = "iommu=pt on the kernel's command line, as NVIDIA asks for; the site decides";
    add("gds-iommu", "the IOMMU translates every transfer between devices", "/proc/cmdline", fix);
  }
  return found;
}
