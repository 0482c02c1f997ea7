/** JSON Lines and JSON arrays, plain, gzip or Zstandard, as a `Format`. */
import { indexColumns } from "../index-columns.ts";
import type { ColumnFormat } from "../types.ts";
import { readyZstd } from "../codecs/zstd.ts";
import { columns } from "./columns.ts";
import { detect } from "./detect.ts";
import { scan } from "./scan.ts";

export const jsonl: ColumnFormat = {
  name: "jsonl",
  kind: "columns",
  detect,
  scan,
  index: (shard, options) => indexColumns(scan(shard, options), shard, options),
  columns,
  ready: readyZstd,
};
