/** HDF5 as a `Format`: rows of all datasets of one first dimension, read by the HDF5 library itself (docs/reference/formats.md). */
import { workbench } from "../../kernels/workbench.ts";
import { indexColumns } from "../index-columns.ts";
import type { BlockColumns, Column, ColumnFormat } from "../types.ts";
import { detect } from "./detect.ts";
import { directColumn, type DirectSpec } from "./direct.ts";
import { sameParts, type Part } from "./parts.ts";
import { rowsAt } from "./reader.ts";
import { scan } from "./scan.ts";

/** Rows [from, to), as the library reads them. */
async function fromLibrary(
  parts: readonly Part[],
  file: string,
  names: readonly string[],
  from: number,
  to: number,
): Promise<BlockColumns> {
  sameParts(parts, file);
  const found = await rowsAt(file, names, from, to);
  // They may have been replaced meanwhile.
  sameParts(parts, file);
  return found;
}

export const hdf5: ColumnFormat = {
  name: "hdf5",
  kind: "columns",
  selfReading: true,
  detect,
  scan,
  index: (shard, options) => indexColumns(scan(shard, options), shard, options),
  async columns({ file, firstRecord, records, segments, meta }, fields) {
    const parts = (meta["parts"] ?? []) as readonly Part[];
    const names = (meta["names"] ?? fields) as readonly string[];
    const wanted = fields.filter((name) => names.includes(name));
    const direct = (meta["direct"] ?? []) as readonly (DirectSpec | null)[];
    const decode = (): Map<string, Column> => {
      const columns = new Map<string, Column>();
      for (const name of wanted) {
        const at = names.indexOf(name);
        const spec = direct[at] ?? undefined;
        const own = spec === undefined ? [] : segments.filter(({ field }) => field === at + 1);
        const column = spec && directColumn(spec, own, firstRecord, firstRecord + records);
        if (column !== undefined) columns.set(name, column);
      }
      return columns;
    };
    const { result: columns, release } = workbench().lend(decode);
    if (columns.size === wanted.length) return { fields: columns, faults: new Map(), release };
    const rest = wanted.filter((name) => !columns.has(name));
    const found = await fromLibrary(parts, file, rest, firstRecord, firstRecord + records).catch((error: unknown) => {
      release?.();
      throw error;
    });
    for (const [name, column] of columns) found.fields.set(name, column);
    return { ...found, release };
  },
};
