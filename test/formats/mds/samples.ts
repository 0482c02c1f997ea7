// Shards of MosaicML's writer (test/fixtures/mds), also for damage.
import { readFileSync, readdirSync } from "node:fs";
import { shardOf, type TestShard } from "../blocks.ts";
import { fixtures } from "../fixtures.ts";

export function shardsOf(folder: string): TestShard[] {
  const names = readdirSync(`${fixtures}/mds/${folder}`).filter((name) => name !== "index.json");
  return names.sort().map((name) => shardOf(name, readFileSync(`${fixtures}/mds/${folder}/${name}`)));
}

export function hostileShards(): TestShard[] {
  return ["raw", "gz", "zstd", "br", "snappy", "bz2"].flatMap((folder) => shardsOf(folder).slice(0, 2));
}
