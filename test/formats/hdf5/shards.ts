/** HDF5 fixtures (test/fixtures/hdf5/make.py) as shards on disk: the format reads by path. */
import { readFileSync } from "node:fs";
import { fixtures } from "../fixtures.ts";
import { shardOf, type TestShard } from "../blocks.ts";

export const HDF5_FIXTURES: string = `${fixtures}/hdf5`;

export function hdf5Shard(name: string, root: string = HDF5_FIXTURES): TestShard {
  return { ...shardOf(name, readFileSync(`${root}/${name}`)), root };
}
