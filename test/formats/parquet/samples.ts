// Files that damage is done to.
import { readFileSync, readdirSync } from "node:fs";
import { basename } from "node:path";
import { bulkLimits } from "../../../src/formats/parquet/bulk.ts";
import { shardOf, type TestShard } from "../blocks.ts";
import { fixtures } from "../fixtures.ts";

/** Those of this folder's make.py, those of others, and the cases from the field. */
export function hostileShards(): TestShard[] {
  // Their pages are short: kernels get them all the same.
  bulkLimits.fewest = 1;
  const cases = readdirSync(`${fixtures}/cases`).filter((name) => /^2[01345]-parquet/.test(name));
  const folders = ["", "/public/hyparquet", "/public/parquet-testing"].map((name) => `${fixtures}/parquet${name}`);
  return [...folders, ...cases.map((name) => `${fixtures}/cases/${name}`)].flatMap((folder) =>
    readdirSync(folder)
      .filter((name) => name.endsWith(".parquet"))
      .map((name) => shardOf(basename(name), readFileSync(`${folder}/${name}`))),
  );
}
