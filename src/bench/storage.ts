/**
 * `athanor bench storage`: what a mount gives, raw, in the four patterns of training: large shards read in order, many small files, a
 * checkpoint written and read back, one shard read by many; with 1 … N processes, and on Lustre for each OST by itself.
 *
 * Contract: writes only into a folder of its own that it makes in `path`, and removes that on every way out but its processes' being lost with
 * the mount; makes no call to the mount itself, its processes do; a call that does not return ends it within `timeoutMs` and some seconds.
 *
 * @example
 * const report = await benchStorage({ path: "/mnt/lustre/d", size: 1 << 30, processes: 4, passes: 3, osts: 8, read: false, timeoutMs: 60_000 }, watch);
 */
import { availableParallelism } from "node:os";
import { formatNumber } from "../base/units.ts";
import { realPath } from "../lustre/survey.ts";
import { hostRoot, mountOf, readMounts } from "../storage/mounts.ts";
import type { Mount } from "../storage/mounts.ts";
import { machineFacts } from "./machine.ts";
import { Crew } from "./storage-crew.ts";
import { chooseFiles, writeFiles } from "./storage-files.ts";
import type { Prepared } from "./storage-files.ts";
import { withFolder } from "./storage-folder.ts";
import { networkOf } from "./storage-network.ts";
import type { Network } from "./storage-network.ts";
import { coldWayOf, sampleOf } from "./storage-passes.ts";
import type { Stage } from "./storage-passes.ts";
import { checkpointOf, groupsOf, levelsOf } from "./storage-plan.ts";
import type { Measure } from "./storage-plan.ts";
import { bestOf, rowsOf, targetRowsOf } from "./storage-report.ts";
import type { StorageReport, Taken } from "./storage-report.ts";
import { homesOf } from "./storage-targets.ts";
import { limitsOf } from "./storage-verdict.ts";
import type { Watch } from "./train.ts";

export interface StorageOptions {
  /** The folder of the mount; with `read` also a file. */
  path: string;
  /** Read files that are there, write nothing. */
  read: boolean;
  /** Bytes of all files together. */
  size: number;
  /** The most processes; 1, 2, 4, … up to it are measured. */
  processes: number;
  passes: number;
  /** OSTs that are measured by themselves. */
  osts: number;
  /** Without any progress. Milliseconds. */
  timeoutMs: number;
}

/** Shorter rows say little. Seconds. */
const SHORT = 0.2;
/** Passes, without which a difference may be chance. */
const FEWEST = 3;

export async function benchStorage(options: StorageOptions, watch: Watch): Promise<StorageReport> {
  const { timeoutMs } = options;
  const machine = machineFacts({ python: "", numpy: "", torch: null }); // the load is that of the neighbours
  const root = hostRoot();
  const path = await realPath(options.path, timeoutMs);
  const mount = mountOf(path, readMounts(root));
  const network = await networkOf(mount, { root, timeoutMs });
  const homes = new Map<string, readonly string[]>();
  const crew = new Crew({ timeoutMs, targetOf: (file) => homes.get(file)?.join(", ") });
  const place = { ...options, path, mount, root, crew, homes };
  const all = async (prepared: Prepared): Promise<StorageReport> =>
    reportOf({ ...place, network, machine }, prepared, watch);
  try {
    if (options.read) return await all(await chooseFiles(place));
    return await withFolder(path, crew, timeoutMs, async (folder) => {
      watch.say("writing the files");
      return await all(await writeFiles(folder, place));
    });
  } finally {
    crew.leave();
  }
}

type Site = StorageOptions & { mount: Mount; crew: Crew; network: Network; machine: StorageReport["machine"] };

async function reportOf(site: Site, prepared: Prepared, watch: Watch): Promise<StorageReport> {
  const { crew, mount, timeoutMs, path, network } = site;
  const { pieces, onTarget, notes } = prepared;
  const written = !site.read;
  const levels = levelsOf(site.processes);
  const way = await coldWayOf(crew, pieces.shards[0]!, mount.kind === "memory", timeoutMs);
  const device = mount.source.startsWith("/dev/");
  const stage: Stage = { crew, pieces, way, device, onTarget, timeoutMs, cores: availableParallelism() };
  // One target is the whole.
  const names = onTarget.size > 1 ? [...onTarget.keys()] : [];
  const groups = groupsOf(levels, names, written);
  const taken: Taken[] = groups.flat().map((measure) => ({ measure, samples: [] }));
  const width = { checkpoints: undefined as number | undefined, shared: prepared.sharedWidth };
  for (let pass = 0; pass < site.passes; pass++) {
    for (const group of pass % 2 === 0 ? groups : groups.toReversed()) {
      for (const measure of group) {
        watch.say(`pass ${pass + 1} of ${site.passes}: ${textOf(measure)}`);
        // oxlint-disable-next-line no-await-in-loop -- measured one after the other
        const sample = await sampleOf(stage, measure);
        taken.find((each) => each.measure === measure)!.samples.push(sample);
        const { pattern, op, processes } = measure;
        if (pattern !== "checkpoints") continue;
        const files = checkpointOf(pieces, processes);
        if (op === "write" && processes === 1 && width.checkpoints === undefined)
          // oxlint-disable-next-line no-await-in-loop -- once
          width.checkpoints = (await homesOf(files, mount, timeoutMs))[0]!.targets?.length;
        // oxlint-disable-next-line no-await-in-loop -- the room of the next one
        if (op === "read") await crew.run([{ do: "remove", paths: files.map((file) => file.path) }]);
      }
    }
  }
  const targets = targetRowsOf(taken);
  const all = targets.length > 0 && targets.length === prepared.targetsInAll;
  const rows = rowsOf(taken, targets, { network: network.bytesPerSecond, all });
  const short = rows.filter(({ seconds }) => seconds < SHORT).length;
  if (short > 0) notes.push(`${short} of ${rows.length} rows took less than ${SHORT} s: a larger --size says more`);
  if (site.passes < FEWEST) notes.push(`what limits a pattern is said from ${FEWEST} passes on`);
  const { kind, type, point, source } = mount;
  const seen = { rows, targets, widths: width, mount: { kind, type, point, source }, path, written };
  return {
    ...seen,
    best: bestOf(taken),
    machine: site.machine,
    bytes: prepared.bytes,
    passes: site.passes,
    levels,
    way,
    network,
    targetsInAll: prepared.targetsInAll,
    limits: site.passes < FEWEST ? [] : limitsOf(seen),
    notes,
  };
}

function textOf({ pattern, op, processes, target }: Measure): string {
  return `${pattern} ${op}, ${formatNumber(processes, "process")}${target === undefined ? "" : `, ${target}`}`;
}
