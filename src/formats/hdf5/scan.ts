/**
 * Scan: all blocks of an HDF5 shard with all its fields. The library reads the file by its path; the segments are
 * chunks of datasets that can be read without it (`direct.ts`).
 *
 * @example
 * for await (const block of scan(shard, options)) console.log(block.records, block.columns.fields.keys());
 */
import { crc32c } from "../../base/crc32c.ts";
import type { Value } from "../../base/json.ts";
import { shownNumbers } from "../shown.ts";
import type { Column, IndexOptions, ScanEnd, ScannedBlock, ShardFiles } from "../types.ts";
import type { Hdf5Field, Hdf5Layout } from "./layout.ts";
import { layoutAt, rowsAt } from "./reader.ts";

export async function* scan({ object }: ShardFiles, { progress }: IndexOptions): AsyncGenerator<ScannedBlock, ScanEnd> {
  const path = object.uri;
  const layout = await layoutAt(path);
  const { rows, fields, blockRows, parts, left } = layout;
  const names = fields.map(({ name }) => name);
  const direct = fields.map(({ direct: spec }) => spec ?? null);
  // Of the values, not of the bytes: those are read by the library, and a copy by h5repack is the same data.
  let crc = crc32c(Buffer.from(shapeOf(layout)));
  for (let from = 0; from < rows; from += blockRows) {
    const to = Math.min(from + blockRows, rows);
    const places = new Map<string, readonly number[]>();
    const columns = await rowsAt(path, names, from, to, places);
    for (const { values, ends } of columns.fields.values()) crc = crcOf(ends, crcOf(values, crc));
    for (const { name, reading } of fields) if (reading.how === "list") columns.fields.get(name)!.list = true;
    progress?.(Math.floor((object.size * to) / rows));
    yield {
      records: to - from,
      segments: segmentsOf(names, places),
      restarts: [],
      columns,
      record: recordsOf(fields, columns.fields),
    };
  }
  return {
    encoding: "plain",
    crc32c: crc,
    meta: { rows, names, fields: names, direct, ...(parts.length > 0 && { parts }) },
    notColumns: left,
  };
}

function segmentsOf(
  names: readonly string[],
  places: ReadonlyMap<string, readonly number[]>,
): ScannedBlock["segments"] {
  return names.flatMap((name, i) => {
    const own = places.get(name) ?? [];
    return Array.from({ length: own.length / 2 }, (_, k) => ({
      file: 0,
      offset: own[2 * k]!,
      length: own[2 * k + 1]!,
      field: i + 1,
    }));
  });
}

function crcOf({ buffer, byteOffset, byteLength }: ArrayBufferView, seed: number): number {
  return crc32c(new Uint8Array(buffer, byteOffset, byteLength), seed);
}

function shapeOf({ rows, fields }: Hdf5Layout): string {
  return JSON.stringify([rows, fields.map(({ name, kind, perRow }) => [name, kind, perRow])]);
}

/** Record i of a block for eyes: scalars as such, text as text, bools as bools. */
function recordsOf(
  fields: readonly Hdf5Field[],
  columns: ReadonlyMap<string, Column>,
): (i: number) => { readonly [field: string]: Value } {
  return (i) => Object.fromEntries(fields.map((field) => [field.name, valueOf(field, columns.get(field.name), i)]));
}

function valueOf({ reading, shape }: Hdf5Field, column: Column | undefined, i: number): Value {
  if (column === undefined) return null;
  const { values, ends } = column;
  const own = values.subarray(i === 0 ? 0 : ends[i - 1], ends[i]);
  if (own instanceof Uint8Array) return asText(own);
  const bool = reading.how === "list" ? reading.item.bool : reading.how === "int" && reading.bool;
  const item = reading.how === "list" ? reading.item : reading;
  const list = shownNumbers(own, item.how === "int" && !item.signed);
  const shown = bool ? list.map((value) => Number(value) !== 0) : list;
  const scalar = shape.length === 1 && (reading.how === "int" || reading.how === "float") && reading.values === 1;
  return scalar && shown.length === 1 ? shown[0]! : shown;
}

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Text where it is text, else its bytes. */
function asText(bytes: Uint8Array): Value {
  try {
    return utf8.decode(bytes);
  } catch {
    return bytes;
  }
}
