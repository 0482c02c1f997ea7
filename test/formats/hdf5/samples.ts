/** HDF5 fixtures (test/fixtures/hdf5/make.py) as shards on disk: the format reads by path. */
import { readFileSync } from "node:fs";
import { shardOf, type TestShard } from "../blocks.ts";
import { fixtures } from "../fixtures.ts";

export const HDF5_FIXTURES: string = `${fixtures}/hdf5`;

export function hdf5Shard(name: string, root: string = HDF5_FIXTURES): TestShard {
  return { ...shardOf(name, readFileSync(`${root}/${name}`)), root };
}

export function hostileShards(): TestShard[] {
  return ["numbers.h5", "text.h5", "plugins.h5", "flipped.h5"].map((name) => hdf5Shard(name));
}
