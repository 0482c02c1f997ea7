/** The files of `bench storage`: written into its own folder, on Lustre one OST each; or those that are there, chosen and only read. */
import { formatNumber, formatSize } from "../base/units.ts";
import { Usage } from "../base/usage.ts";
import type { Mount } from "../storage/mounts.ts";
import { BenchData } from "./errors.ts";
import type { Crew } from "./storage-crew.ts";
import type { Job, Listed, Span } from "./storage-jobs.ts";
import { LEAST, WRITE_CHUNK, dealt, piecesOf } from "./storage-plan.ts";
import type { Piece, Pieces } from "./storage-plan.ts";
import { checkRoom } from "./storage-room.ts";
import { chooseTargets, homesOf, layOn } from "./storage-targets.ts";
import type { Home } from "./storage-targets.ts";

export interface Place {
  /** Real and absolute. */
  path: string;
  size: number;
  processes: number;
  osts: number;
  timeoutMs: number;
  mount: Mount;
  root: string;
  crew: Crew;
  /** Filled as it is known. */
  homes: Map<string, readonly string[]>;
}

export interface Prepared {
  pieces: Pieces;
  /** Shards that lie on one target whole, by its name. */
  onTarget: Map<string, Piece[]>;
  targetsInAll: number;
  /** Targets of the one shard that all read. */
  sharedWidth: number | undefined;
  /** Of all files at their most. */
  bytes: number;
  notes: string[];
}

/** A file up to so long lies on one chunk server of MooseFS. */
const MFS_CHUNK = 64 << 20;
/** Names that are looked at. */
const MOST_LISTED = 100_000;

export async function writeFiles(folder: string, place: Place): Promise<Prepared> {
  const { crew, size, processes, osts, mount, timeoutMs, homes } = place;
  if (size < LEAST) throw new Usage(`--size must be at least ${formatSize(LEAST)}, got ${formatSize(size)}`);
  const { targets, all, notes } = await chooseTargets(mount, { ...place, most: osts, bytes: size });
  // As many on each target.
  const each = Math.max(1, targets.length);
  const least = mount.kind === "moosefs" ? Math.max(processes, Math.ceil(size / 2 / MFS_CHUNK)) : processes;
  const pieces = piecesOf(folder, size, Math.ceil(least / each) * each);
  const { shards, small, checkpoint, shared } = pieces;
  const parts = [...shards, ...small, checkpoint, shared];
  const bytes = parts.reduce((sum, piece) => sum + piece.bytes, 0);
  if (bytes > size)
    throw new Usage(`--size is too little for ${formatNumber(shards.length, "shard")}: at least ${formatSize(bytes)}`);
  const [space] = await crew.run([{ do: "space", path: folder }]);
  const files = parts.length + processes;
  const { available } = space as { available: number };
  notes.push(...(await checkRoom(available, mount, { path: place.path, bytes, files, timeoutMs })));
  for (const [i, { path }] of targets.length === 0 ? [] : shards.entries()) {
    const target = targets[i % each]!;
    // oxlint-disable-next-line no-await-in-loop -- one at a time is the manners of a guest
    const said = await layOn(path, target.index, timeoutMs);
    if (said === undefined) homes.set(path, [target.name]);
    else notes.push(`${target.name}: ${said}`);
  }
  const write = (spans: Span[]): Job => ({ do: "write", spans, chunk: WRITE_CHUNK, fresh: false, sync: "within" });
  await crew.run(dealt(shards, processes).map(write));
  await crew.run(dealt([shared], 1).map(write));
  const known = await learnHomes([...shards, shared], place);
  return {
    pieces,
    onTarget: byTarget(shards, homes, osts),
    targetsInAll: all,
    sharedWidth: known.at(-1)!.targets?.length,
    bytes,
    notes: [...new Set(notes)],
  };
}

export async function chooseFiles(place: Place): Promise<Prepared> {
  const { crew, path, size, osts, homes } = place;
  const [listed] = await crew.run([{ do: "list", path, most: MOST_LISTED }]);
  const { files, cut } = listed as { files: Listed[]; cut: boolean };
  const notes = cut ? [`only the first ${formatNumber(MOST_LISTED, "name")} were looked at`] : [];
  // A byte read of a released file would bring all of it back.
  const here = files.filter((file) => file.size > 0 && (file.stored > 512 || file.size <= 4096));
  const some = chosen(here, size);
  const known = await learnHomes(some, place);
  const shards = some.filter((_, i) => !known[i]!.released);
  const left = files.filter((file) => file.size > 0).length - here.length + some.length - shards.length;
  if (left > 0) notes.push(`${formatNumber(left, "file")} left out: released to HSM, or without data`);
  if (shards.length === 0)
    throw new BenchData("there are no files to read", { file: path }, "name a folder with shards, or leave --read out");
  const bytes = shards.reduce((sum, piece) => sum + piece.bytes, 0);
  const largest = shards.reduce((a, b) => (b.bytes > a.bytes ? b : a));
  const shared = { path: largest.path, bytes: Math.min(largest.bytes, Math.ceil(size / 4)) };
  return {
    pieces: { shards, small: [], checkpoint: { path: "", bytes: 0 }, shared },
    onTarget: byTarget(shards, homes, osts),
    targetsInAll: 0,
    sharedWidth: homes.get(shared.path)?.length,
    bytes,
    notes: [...notes, `${formatNumber(shards.length, "file")} of ${files.length}, ${formatSize(bytes)}`],
  };
}

/** Every so many, that they come to some `size` bytes; of the last one a part. */
function chosen(files: readonly Listed[], size: number): Piece[] {
  const whole = files.reduce((sum, file) => sum + file.size, 0);
  const every = Math.max(1, Math.floor(whole / size));
  const found: Piece[] = [];
  let left = size;
  for (let i = 0; i < files.length && left > 0; i += every) {
    const bytes = Math.min(files[i]!.size, left);
    found.push({ path: files[i]!.path, bytes });
    left -= bytes;
  }
  return found;
}

async function learnHomes(files: readonly Piece[], { mount, timeoutMs, homes }: Place): Promise<Home[]> {
  const known = await homesOf(files, mount, timeoutMs);
  for (const [i, { targets }] of known.entries()) if (targets !== undefined) homes.set(files[i]!.path, targets);
  return known;
}

function byTarget(
  files: readonly Piece[],
  homes: ReadonlyMap<string, readonly string[]>,
  most: number,
): Map<string, Piece[]> {
  const found = new Map<string, Piece[]>();
  for (const file of files) {
    const [target, ...others] = homes.get(file.path) ?? [];
    if (target !== undefined && others.length === 0) found.set(target, [...(found.get(target) ?? []), file]);
  }
  return new Map([...found].sort(([a], [b]) => (a < b ? -1 : 1)).slice(0, most));
}
