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
  async columns({ file, firstRecord, records, meta }, fields) {
    const parts = (meta["parts"] ?? []) as readonly Part[];
    const names = (meta["names"] ?? fields) as readonly string[];
    const wanted = fields.filter((name) => names.includes(name));
    sameParts(parts, file);
    const found = await rowsAt(file, wanted, firstRecord, firstRecord + records);
    // They may have been replaced meanwhile.
    sameParts(parts, file);
    return found;
  },
};
