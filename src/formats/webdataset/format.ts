/** WebDataset: tar archives whose members of one key are a sample, plain or gzip, as a `Format`. */
import { indexColumns } from "../index-columns.ts";
import type { ColumnFormat } from "../types.ts";
import { detect } from "./detect.ts";
import { columns, scan } from "./scan.ts";

export const webdataset: ColumnFormat = {
  name: "webdataset",
  kind: "columns",
  detect,
  scan,
  index: (shard, options) => indexColumns(scan(shard, options), shard, options),
  columns,
};
