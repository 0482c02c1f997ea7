// A toy format for tests of the harness for damaged shards: every byte is a record with one value.
import { RecordMalformed } from "../../src/formats/errors.ts";
import { indexColumns } from "../../src/formats/index-columns.ts";
import type { BlockColumns, ColumnFormat, RawBlock, ScannedBlock } from "../../src/formats/types.ts";
import { shardOf } from "./blocks.ts";

export type Decode = (bytes: Uint8Array, records: number) => BlockColumns;

/** 0xff is a bad record. */
export const bytesAsInts: Decode = (bytes, records) => {
  const faults = new Map(
    [...bytes].flatMap((byte, i) => (byte === 0xff ? [[i, new RecordMalformed("0xff", { record: i })]] : [])),
  );
  const values = Int32Array.from(bytes);
  const ends = Uint32Array.from({ length: records }, (_, i) => i + 1);
  return { fields: new Map([["n", { kind: "int64", values, ends }]]), faults };
};

export function toy(scan: Decode, columns: Decode = scan): ColumnFormat {
  const blocks: ColumnFormat["scan"] = async function* ({ object }) {
    const bytes = new Uint8Array(object.size);
    await object.readInto(bytes, 0);
    const restarts = Array.from({ length: Math.ceil(bytes.length / 64) }, (_, i) => i * 64);
    const segments = [{ file: 0, offset: 0, length: bytes.length, field: 0 }];
    yield { records: bytes.length, segments, restarts, columns: scan(bytes, bytes.length) } satisfies ScannedBlock;
    return { encoding: "plain", crc32c: 0 };
  };
  return {
    name: "toy",
    kind: "columns",
    detect: () => ({ encoding: "plain" }),
    scan: blocks,
    index: (shard, options) => indexColumns(blocks(shard, options), shard, options),
    columns: ({ segments, records }: RawBlock) => columns(segments[0]!.bytes.slice(), records),
  };
}

export const shard = shardOf(
  "toy",
  Uint8Array.from({ length: 200 }, (_, i) => i % 200),
);
