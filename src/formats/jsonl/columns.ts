/**
 * Fields of a block, or of a span of it, from the bytes that the feed has read.
 *
 * Contract: the same values and faults as scan() gave for these bytes. Where the bytes hold another number of records than the
 * index says, nobody knows which record is which from the first bad one on: all of those are bad.
 */
import { RecordMalformed } from "../errors.ts";
import type { BlockColumns, KeptKind, RawBlock } from "../types.ts";
import { columnsOf, decodeRecords, type Place } from "./decode.ts";
import { Keys } from "./keys.ts";
import type { JsonMeta } from "./meta.ts";

export function columns(raw: RawBlock, fields: readonly string[]): BlockColumns {
  const { layout, kinds } = raw.meta as JsonMeta;
  const wanted = fields.flatMap((name): [string, KeptKind][] =>
    Object.hasOwn(kinds, name) ? [[name, kinds[name]!]] : [],
  );
  const [segment] = raw.segments;
  if (segment === undefined) throw new RangeError("a block of JSON has one segment");
  const bytes = Buffer.from(segment.bytes.buffer, segment.bytes.byteOffset, segment.bytes.byteLength);
  const { file, firstRecord, records } = raw;
  const place: Place = { file, firstRecord, base: segment.offset };
  const keys = Keys.of(wanted);
  const piece = { from: 0, to: bytes.length, most: records + 1 };
  const found = decodeRecords(layout, keys, bytes, piece, place);
  const count = found.begins.length;
  if (count === records) return finished(keys, records, found.faults);
  const good = Math.min(records, ...found.faults.keys(), found.faults.size === 0 ? 0 : records);
  const front = decodeRecords(layout, keys, bytes, { ...piece, most: good }, place);
  const { faults } = front;
  for (let i = good; i < records; i++) {
    const lost = new RecordMalformed(
      `the bytes hold ${count > records ? "more" : count} records here, the index says ${records}`,
      { file, record: firstRecord + i, byteOffset: segment.offset + (found.begins[i] ?? bytes.length) },
      "the file is damaged: copy or write the shard again",
    );
    faults.set(i, (count > i ? found.faults.get(i) : undefined) ?? lost);
  }
  return finished(keys, records, faults);
}

function finished(keys: Keys, records: number, faults: BlockColumns["faults"]): BlockColumns {
  const release = (): void => {
    for (const field of keys.fields.values()) field.release();
  };
  return { fields: columnsOf(keys, records, true), faults, release };
}
