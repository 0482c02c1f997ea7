/** MosaicML's MDS shards, plain or compressed, as a `Format`. */
import { indexColumns } from "../index-columns.ts";
import type { ColumnFormat } from "../types.ts";
import { detect } from "./detect.ts";
import { ready } from "./packed.ts";
import { columns, scan } from "./scan.ts";

export const mds: ColumnFormat = {
  name: "mds",
  kind: "columns",
  detect,
  scan,
  index: (shard, options) => indexColumns(scan(shard, options), shard, options),
  ready,
  columns,
};
