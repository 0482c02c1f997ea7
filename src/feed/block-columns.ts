/**
 * Block columns: what a `ColumnFormat` makes of a block, or of a span of it, with its faults as a function of the bytes alone.
 *
 * Contract: which records are bad, and the values of the others, do not depend on what part of the block was asked for. Where
 * damage shifts records against their numbers (a newline that is gone), it ends at the next place whose record the index
 * knows, every 64 records. What cannot be decoded at all makes all of its records bad: those of such a stretch, or of a block
 * that is read whole (a page whose checksum does not fit).
 *
 * @example
 * const { fields, faults } = await blockColumns(format, raw, ["text"], restartsOf(table, block, span));
 */
import { AthanorError } from "../base/errors.ts";
import { dense } from "../formats/dense.ts";
import { unpackBlock, type UnpackedBlock } from "../formats/packed.ts";
import { RESTART_EVERY } from "../formats/types.ts";
import type { BlockColumns, Column, ColumnReader, PlacedSegment, RawBlock } from "../formats/types.ts";
import { isBadContent } from "./errors.ts";

/** `restarts`: offsets in the bytes of records 0, 64, 128 … of them; none where the block is read whole. */
export async function blockColumns(
  format: ColumnReader,
  raw: RawBlock,
  fields: readonly string[],
  restarts: ArrayLike<number>,
): Promise<BlockColumns> {
  // Nothing stands in for a sample that was cut out of tokens.
  if (raw.samples !== undefined) return await format.columns(raw, fields);
  if (raw.origin !== undefined) {
    let unpacked: UnpackedBlock;
    try {
      unpacked = unpackBlock(raw, restarts);
    } catch (error) {
      if (!(error instanceof AthanorError) || !isBadContent(error.code)) throw error;
      return allBad(raw.records, error);
    }
    const found = await blockColumns(format, unpacked.raw, fields, unpacked.restarts);
    const release = (): void => {
      found.release?.();
      unpacked.release();
    };
    return { ...found, release };
  }
  const known = restarts.length > 1;
  try {
    const found = await format.columns(raw, fields);
    if (found.faults.size === 0 || !known) return found;
    found.release?.();
  } catch (error) {
    if (!(error instanceof AthanorError) || !isBadContent(error.code)) throw error;
    if (!known) return allBad(raw.records, error);
  }
  const parts: { records: number; found: BlockColumns }[] = [];
  for (const part of stretches(raw, restarts)) {
    parts.push({ records: part.records, found: await blockColumns(format, part, fields, []) });
  }
  const all = joined(parts);
  for (const { found } of parts) found.release?.();
  return all;
}

function allBad(records: number, fault: AthanorError): BlockColumns {
  return { fields: new Map(), faults: new Map(Array.from({ length: records }, (_, i) => [i, fault])) };
}

/** Pieces of 64 records. */
function* stretches(raw: RawBlock, restarts: ArrayLike<number>): Generator<RawBlock> {
  const [whole] = raw.segments as [PlacedSegment];
  for (let k = 0; k < restarts.length; k++) {
    const [from, to] = [restarts[k]!, restarts[k + 1] ?? whole.length];
    const bytes = whole.bytes.subarray(from, to);
    const before = k * RESTART_EVERY;
    yield {
      ...raw,
      firstRecord: raw.firstRecord + before,
      records: Math.min(RESTART_EVERY, raw.records - before),
      segments: [{ ...whole, offset: whole.offset + from, length: to - from, bytes }],
    };
  }
}

function joined(parts: readonly { records: number; found: BlockColumns }[]): BlockColumns {
  const faults: BlockColumns["faults"] = new Map();
  let before = 0;
  for (const { records, found } of parts) {
    for (const [i, fault] of found.faults) faults.set(before + i, fault);
    before += records;
  }
  const names = new Set(parts.flatMap(({ found }) => [...found.fields.keys()]));
  const columns = [...names].map((name) => {
    const own = parts.map(({ records, found }) => ({ records, column: found.fields.get(name) }));
    return [name, joinedColumn(own, before)] as const;
  });
  return { fields: new Map(columns), faults };
}

function joinedColumn(parts: readonly { records: number; column: Column | undefined }[], records: number): Column {
  const some = parts.flatMap(({ column }) => (column === undefined ? [] : dense(column)));
  const values = joinedValues(some.map((column) => column.values));
  const [{ kind, loose, json }] = some as [Column];
  const ends = new Uint32Array(records);
  const present = new Uint8Array(records).fill(1);
  const cut = new Uint8Array(records);
  let row = 0;
  let end = 0;
  let next = 0;
  for (const part of parts) {
    const { records: count } = part;
    const column = part.column && some[next++];
    for (let i = 0; i < count; i++) {
      ends[row + i] = end + (column?.ends[i] ?? 0);
      present[row + i] = column === undefined ? 0 : (column.present?.[i] ?? 1);
      cut[row + i] = column?.cut?.[i] ?? 0;
    }
    row += count;
    end = row === 0 ? 0 : ends[row - 1]!;
  }
  return { kind, values, ends, present, cut, ...(loose === true && { loose }), ...(json === true && { json }) };
}

/** In the widest type of them. */
function joinedValues(lists: readonly Column["values"][]): Column["values"] {
  const length = lists.reduce((sum, values) => sum + values.length, 0);
  if (lists.some((values) => values instanceof BigInt64Array)) {
    return joinedIn(
      new BigInt64Array(length),
      lists.map((values) =>
        values instanceof BigInt64Array ? values : BigInt64Array.from(values as Int32Array, BigInt),
      ),
    );
  }
  const narrow = lists as Exclude<Column["values"], BigInt64Array>[];
  if (narrow.every((values) => values instanceof Uint8Array)) return joinedIn(new Uint8Array(length), narrow);
  if (
    narrow.every(
      (values) => values instanceof Int32Array || values instanceof Int8Array || values instanceof Uint8Array,
    )
  )
    return joinedIn(new Int32Array(length), narrow);
  if (narrow.every((values) => values instanceof Float32Array)) return joinedIn(new Float32Array(length), narrow);
  return joinedIn(new Float64Array(length), narrow);
}

function joinedIn<List extends { set(values: Part, at: number): void }, Part extends { length: number }>(
  all: List,
  lists: readonly Part[],
): List {
  let at = 0;
  for (const values of lists) {
    all.set(values, at);
    at += values.length;
  }
  return all;
}
