/** Zarr, versions 2 and 3, as a `ColumnFormat`. A shard is a folder: a group of arrays, or one array. */
import { readyBlosc } from "../codecs/blosc.ts";
import { baseName } from "../names.ts";
import type { ColumnFormat } from "../types.ts";
import { columns } from "./columns.ts";
import { index, scan } from "./scan.ts";
import { METADATA_NAMES } from "./store.ts";

export const zarr: ColumnFormat = {
  name: "zarr",
  kind: "columns",
  // By name: damaged metadata are still no other format. `groups.ts` has found the folder by the same names.
  detect: (_, name) => (METADATA_NAMES.includes(baseName(name)) ? { encoding: "plain" } : undefined),
  scan,
  index,
  columns,
  // Its inner codecs are all that have to be loaded.
  ready: readyBlosc,
};
