/**
 * Past: the sets that a data set was before shards were appended. A run that began over such a set ends its epoch over it
 * (design §4.4.10). The index keeps for each only which shards came after it; a shard that changed or went away ends the list.
 *
 * @example
 * const [before] = pastSets(index); // the index as it was, over the shards of then
 */
import { dataFingerprint } from "./fingerprint.ts";
import type { DatasetIndex, PastSet, ShardRow } from "./types.ts";

/** Sets that are kept; a run that is further behind must begin anew. */
const MOST = 64;

/** What a new index keeps of the old one, the newest set last. */
export function pastOf(old: DatasetIndex | undefined, shards: readonly ShardRow[]): PastSet[] {
  if (old === undefined) return [];
  const rows = new Map(shards.map((row) => [row.path, row]));
  for (const { path, size, crc32c, records } of old.shards) {
    const now = rows.get(path);
    if (now?.size !== size || now.crc32c !== crc32c || now.records !== records) return [];
  }
  const before = new Set(old.shards.map(({ path }) => path));
  const added = shards.map(({ path }) => path).filter((path) => !before.has(path));
  const past = added.length === 0 ? old.past : [...old.past, { fingerprint: old.fingerprint, added }];
  return past.slice(-MOST);
}

/** The earlier sets as indexes of their own, the newest first. */
export function* pastSets(index: DatasetIndex): Generator<DatasetIndex> {
  const later = new Set<string>();
  for (const { fingerprint, added } of index.past.toReversed()) {
    for (const path of added) later.add(path);
    const numbers = index.shards.flatMap(({ path }, i) => (later.has(path) ? [] : [i]));
    const shards = numbers.map((number) => index.shards[number]!);
    if (dataFingerprint(shards) !== fingerprint) return;
    yield {
      ...facts(index),
      shards,
      fingerprint,
      past: [],
      totals: totalsOf(shards),
      shardTable: (shard) => index.shardTable(numbers[shard]!),
    };
  }
}

export function totalsOf(shards: readonly ShardRow[]): DatasetIndex["totals"] {
  const totals = { shards: shards.length, bytes: 0, records: 0, tokens: 0, blocks: 0 };
  for (const { size, records, tokens, blocks } of shards) {
    totals.bytes += size;
    totals.records += records;
    totals.tokens += tokens;
    totals.blocks += blocks;
  }
  return totals;
}

function facts({
  root,
  folder,
  format,
  ignored,
  schema,
  largestBlock,
}: DatasetIndex): Pick<DatasetIndex, "root" | "folder" | "format" | "ignored" | "schema" | "largestBlock"> {
  return { root, folder, format, ignored, schema, largestBlock };
}
