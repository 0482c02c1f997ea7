/**
 * Groups of MDS: the `index.json` that lists shards is no data, and goes with each of them.
 *
 * @example
 * groupMds([{ path: "index.json", beside: [] }, { path: "s.mds", beside: [] }]); // [{ path: "s.mds", beside: ["index.json", "s.mds"] }]
 */
import type { FileGroup } from "../groups.ts";

const MDS_SHARD = /\.mds(\.[a-z0-9]+)?$/;
const MDS_LISTING = /(^|\/)index\.json$/;

/**
 * MDS shards get the nearest `index.json` of their folder or one above it, and the name of the next shard that it could list. Of
 * a shard that lies there compressed and decompressed, as a cache leaves it, the decompressed file is the shard.
 */
export function groupMds(groups: FileGroup[]): FileGroup[] {
  const paths = new Set(groups.map(({ path }) => path));
  const isShard = (path: string): boolean => {
    const packed = MDS_SHARD.exec(path)?.[1];
    return packed === undefined ? MDS_SHARD.test(path) : !paths.has(path.slice(0, -packed.length));
  };
  const listed = new Map<string, FileGroup[]>();
  const left: FileGroup[] = [];
  for (const group of groups) {
    const { path } = group;
    if (MDS_SHARD.test(path) && !isShard(path)) continue;
    left.push(group);
    if (!MDS_SHARD.test(path)) continue;
    const listing = nearestListing(path, paths);
    if (listing === undefined) continue;
    const shards = listed.get(listing);
    if (shards === undefined) listed.set(listing, [group]);
    else shards.push(group);
  }
  for (const [listing, shards] of listed) {
    shards.forEach((group, i) => group.beside.push(listing, shards[(i + 1) % shards.length]!.path));
  }
  // An index.json above others, which list the same shards (streaming's `merge_index` leaves both), is no data either.
  const folders = [...listed.keys()];
  return left.filter(({ path }) => {
    if (!MDS_LISTING.test(path)) return true;
    const folder = path.slice(0, -"index.json".length);
    return !folders.some((other) => other.startsWith(folder));
  });
}

function nearestListing(path: string, paths: ReadonlySet<string>): string | undefined {
  for (let end = path.lastIndexOf("/"); ; end = path.lastIndexOf("/", end - 1)) {
    const listing = `${path.slice(0, end + 1)}index.json`;
    if (paths.has(listing)) return listing;
    if (end <= 0) return undefined;
  }
}

/** What `beside` of a shard says: its other files, or what lists it and which shard comes next. */
export function splitBeside(
  path: string,
  beside: readonly string[],
): { parts: readonly string[]; listing?: { file: string; next: string } } {
  const [file, next] = beside;
  if (!MDS_SHARD.test(path) || file === undefined || next === undefined) return { parts: beside };
  return { parts: [], listing: { file, next } };
}
