/**
 * Columns: the rows of a block from the bytes of the chunks that overlap them.
 *
 * A field's segments stand in the order of its chunks: row of chunks by row of chunks, and in C order within one. A segment of
 * the file `noFile` is a chunk that was never written; an empty one of another file could not be found when the index was made,
 * for the cause (`FAULT_KINDS`) that its offset counts.
 *
 * Contract: a chunk that cannot be decoded is a fault of its rows (one error for all of them).
 */
import type { AthanorError } from "../../base/errors.ts";
import { workbench } from "../../kernels/workbench.ts";
import { ChunkMissing, RecordMalformed, Unsupported } from "../errors.ts";
import { tellUnfit } from "../stats.ts";
import type { BlockColumns, PlacedSegment, RawBlock } from "../types.ts";
import { swapped, type Cells } from "./cells.ts";
import { checkSize, decodeChunk } from "./codecs.ts";
import { isText } from "./dtype.ts";
import { ChunkFault, FAULT_KINDS, chunkError } from "./faults.ts";
import { placeOf } from "./sharding.ts";
import { describeChunk, fileKey, volume, type ArraySpec, type ZarrMeta } from "./spec.ts";
import { numbers, texts, valueRange } from "./values.ts";

/** A segment whose chunk the scan knows to be bad. */
export interface UnitSegment extends PlacedSegment {
  fault?: AthanorError | undefined;
}

/** A chunk, and rows [from, to) of the array that it gives. */
export interface Unit {
  at: readonly number[];
  from: number;
  to: number;
  /** Undefined: never written. */
  cells: Cells | undefined;
  /** First row that `cells` hold. */
  base: number;
}

/** A fault over more rows than this is one of the block. */
const MOST_FAULTS = 1 << 18;

/** The chunks of a field, decoded. */
interface Decoded {
  array: ArraySpec;
  fill: Uint8Array | null;
  units: Unit[];
  /** No chunk is bad. */
  whole: boolean;
}

/** Values lie in the thread's workbench until they are given back. */
export async function columns(raw: RawBlock, fields: readonly string[]): Promise<BlockColumns> {
  const faults: BlockColumns["faults"] = new Map();
  const decoded = await decode(raw, fields, faults);
  const { result, release } = workbench().lend(() => assembled(raw, decoded, faults, false));
  return { ...result, release };
}

/** As `columns`, for a scan: with values that stay, and none that does not fit int64 is a fault of its record. */
export async function keptColumns(raw: RawBlock, fields: readonly string[]): Promise<BlockColumns> {
  const faults: BlockColumns["faults"] = new Map();
  return assembled(raw, await decode(raw, fields, faults), faults, true);
}

async function decode(
  raw: RawBlock,
  fields: readonly string[],
  faults: BlockColumns["faults"],
): Promise<Map<string, Decoded>> {
  const { arrays, noFile } = raw.meta as unknown as ZarrMeta;
  const found = new Map<string, Decoded>();
  for (const [i, array] of arrays.entries()) {
    if (!fields.includes(array.name)) continue;
    const segments = raw.segments.filter(({ field }) => field === i + 1);
    found.set(array.name, await decodeArray(array, segments, noFile, raw, faults));
  }
  return found;
}

function assembled(
  raw: RawBlock,
  decoded: ReadonlyMap<string, Decoded>,
  faults: BlockColumns["faults"],
  scanned: boolean,
): BlockColumns {
  const { firstRecord, records } = raw;
  const fields: BlockColumns["fields"] = new Map();
  for (const [name, { array, fill, units, whole }] of decoded) {
    const { column, tooLarge } =
      array.type.size === 0 || isText(array.type)
        ? texts(array, units, raw, fill, faults)
        : numbers(array, units, whole, firstRecord, records, fill);
    const faultOf = (row: number): AthanorError => valueRange(array, raw.file, firstRecord + row);
    tellUnfit(column, [...tooLarge], faultOf, scanned ? undefined : faults);
    fields.set(name, column);
  }
  return { fields, faults };
}

/** Chunks of an array that overlap rows [from, to), in the order of segments. */
export function* unitsOf({ shape, chunk }: ArraySpec, from: number, to: number): Generator<number[]> {
  const grid = shape.slice(1).map((size, axis) => Math.ceil(size / chunk[axis + 1]!));
  const perRow = volume(grid);
  for (let row = Math.floor(from / chunk[0]!); row * chunk[0]! < to; row++)
    for (let i = 0; i < perRow; i++) yield [row, ...placeOf(i, grid)];
}

export function unitCount({ shape, chunk }: ArraySpec, from: number, to: number): number {
  const perRow = shape.slice(1).reduce((product, size, axis) => product * Math.ceil(size / chunk[axis + 1]!), 1);
  return (Math.ceil(to / chunk[0]!) - Math.floor(from / chunk[0]!)) * perRow;
}

async function decodeArray(
  array: ArraySpec,
  segments: readonly UnitSegment[],
  noFile: number,
  raw: RawBlock,
  faults: BlockColumns["faults"],
): Promise<Decoded> {
  const { firstRecord, records } = raw;
  const behind = firstRecord + records;
  if (segments.length !== unitCount(array, firstRecord, behind))
    throw new RecordMalformed(
      `array ${JSON.stringify(array.path)}: the index names ${segments.length} chunks of records ${firstRecord} to ${behind - 1}, expected ${unitCount(array, firstRecord, behind)}`,
      { file: raw.file, record: firstRecord },
      "run `athanor index --rebuild`",
    );
  const fill = array.fill === null ? null : new Uint8Array(Buffer.from(array.fill, "base64"));
  const units: Unit[] = [];
  let next = 0;
  for (const at of unitsOf(array, firstRecord, behind)) {
    const first = at[0]! * array.chunk[0]!;
    const from = Math.max(first, firstRecord);
    const to = Math.min(first + array.chunk[0]!, behind);
    const segment = segments[next++]!;
    try {
      const cells = await cellsOf(array, segment, at, to - from, noFile, fill, raw.file, from);
      units.push({ at, from, to, cells, base: array.plain === true ? from : first });
    } catch (error) {
      const file = `${raw.file}/${fileKey(array, at)}`;
      const where = { file, record: from, byteOffset: segment.offset };
      const fault = chunkError(error, describeChunk(array, at), where);
      if (to - from > MOST_FAULTS) throw fault;
      for (let row = from; row < to; row++) if (!faults.has(row - firstRecord)) faults.set(row - firstRecord, fault);
    }
  }
  return { array, fill, units, whole: units.length === segments.length };
}

async function cellsOf(
  array: ArraySpec,
  segment: UnitSegment,
  at: readonly number[],
  rows: number,
  noFile: number,
  fill: Uint8Array | null,
  folder: string,
  record: number,
): Promise<Cells | undefined> {
  const { type, chunk, codecs, plain } = array;
  if (segment.fault !== undefined) throw segment.fault;
  if (segment.file === noFile) {
    if (fill !== null) return undefined;
    const file = `${folder}/${fileKey(array, at)}`;
    throw new ChunkMissing(
      `${describeChunk(array, at)} is missing, and the array has no fill value: its elements are undefined`,
      { file, record },
      "put the file back",
    );
  }
  if (segment.length === 0)
    throw new ChunkFault(FAULT_KINDS[segment.offset] ?? "malformed", "it was damaged when the index was made");
  if (volume(chunk) * Math.max(type.size, 1) > 2 ** 31)
    throw new Unsupported(
      `${describeChunk(array, at)} decodes to more than 2 GiB`,
      { file: folder, record },
      "write smaller chunks",
    );
  if (plain !== true) return decodeChunk(codecs, type, chunk, segment.bytes, fill);
  checkSize(segment.bytes, rows * volume(chunk.slice(1)) * type.size);
  const width = type.kind === "U" ? 4 : type.kind === "S" ? 1 : type.size;
  const big = codecs[0]!.config["endian"] === "big" && width > 1;
  return { data: big ? swapped(segment.bytes, width) : segment.bytes, size: type.size };
}
