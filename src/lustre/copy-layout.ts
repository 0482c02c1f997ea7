/**
 * Layout of a copy: how a folder that data will be copied into should be striped, and whether the file system has room for it.
 *
 * The advice is that of `advice.ts` for the same files in a folder that has the default which the new one would inherit: its OST pool is
 * kept, and what is overridden is told.
 *
 * @example
 * const { change, room } = await copyLayout({ to: "/mnt/lustre/new", there: false, mount, files, use: "shards" }, {});
 */
import { dirname } from "node:path";
import { advise, poolOf } from "./advice.ts";
import type { Change, Use } from "./advice.ts";
import type { AskOptions } from "./ask.ts";
import { emptyComponent } from "./layout.ts";
import type { Layout } from "./layout.ts";
import { roomByQuota } from "./quota.ts";
import type { Owner } from "./quota.ts";
import { hasSlowLinks } from "./slow-links.ts";
import { defaultOf } from "./survey.ts";
import { readTargets, roomOf, usableTargets } from "./targets.ts";
import type { Mount } from "../storage/mounts.ts";

export interface CopyPlace {
  /** Absolute; its parent is there. */
  to: string;
  /** The folder itself is there, too. */
  there: boolean;
  mount: Mount;
  use: Use;
  files: readonly { path: string; size: number }[];
  /** Of the files to come; undefined: this process. */
  owner: Owner | undefined;
  /** What is still to be written. */
  left: { bytes: number; files: number };
}

export interface CopyLayout {
  /** Undefined: the default that it has, or would inherit, fits. */
  change: Change | undefined;
  why: readonly string[];
  /** Why there is no room. */
  short: string[];
  notes: string[];
}

/** How a file lies now says nothing of how its copy should. */
const UNKNOWN: Layout = {
  composite: false,
  generation: undefined,
  mirrors: 1,
  components: [emptyComponent()],
  foreign: undefined,
};

export async function copyLayout(place: CopyPlace, options: AskOptions & { root: string }): Promise<CopyLayout> {
  const { to, there, mount, use, owner, left } = place;
  const parent = dirname(to);
  const above = await defaultOf(parent, options);
  const top = parent === mount.point ? above : await defaultOf(mount.point, options);
  const current = there ? await defaultOf(to, options) : above;
  const { targets, notes } = await readTargets(mount, options.root, options.timeoutMs);
  const { working, placeable } = await usableTargets(
    poolOf(current) ?? poolOf(above),
    mount,
    targets,
    options.timeoutMs,
  );
  const { change, why } = advise({
    folder: to,
    use,
    files: place.files.map((file) => ({ ...file, layout: UNKNOWN })),
    count: place.files.length,
    osts: Math.max(1, working.length),
    current,
    above,
    mount: top,
    slowLinks: hasSlowLinks(mount, options.root),
  });
  const room = placeable.reduce((sum, target) => sum + roomOf(target), 0);
  const quota = await roomByQuota(mount.point, there ? to : parent, owner, left, options.timeoutMs);
  const full =
    targets.length > 0 && room < left.bytes ? ["the OSTs would become more than 85 % full (`lfs df` shows them)"] : [];
  const unknown = room === Infinity ? ["how full the OSTs are is not known: not looked at"] : [];
  return { change, why, short: [...full, ...quota.short], notes: [...notes, ...unknown, ...quota.notes] };
}
