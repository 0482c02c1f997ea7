/** HDF5 as a `Format`: rows of all datasets of one first dimension, read by the HDF5 library itself (docs/reference/formats.md). */
import { indexColumns } from "../index-columns.ts";
import type { ColumnFormat } from "../types.ts";
import { detect } from "./detect.ts";
import { sameParts, type Part } from "./parts.ts";
import { rowsAt, startReader } from "./reader.ts";
import { scan } from "./scan.ts";

export const hdf5: ColumnFormat = {
  name: "hdf5",
  kind: "columns",
  selfReading: true,
  detect,
  scan,
  index: (shard, options) => indexColumns(scan(shard, options), shard, options),
  ready: startReader,
  columns({ file, firstRecord, records, meta }, fields) {
    sameParts((meta["parts"] ?? []) as readonly Part[], file);
    const names = (meta["names"] ?? fields) as readonly string[];
    return rowsAt(
      file,
      fields.filter((name) => names.includes(name)),
      firstRecord,
      firstRecord + records,
    );
  },
};
