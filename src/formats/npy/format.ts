/**
 * `.npy`: one array of token ids as a stream. Its elements are its records; a view cuts them into samples.
 *
 * Contract: docs/reference/formats.md. The index reads the file whole, because its header says nothing of its content.
 */
import { SummedReader } from "../checksum.ts";
import {
  badToken,
  blockBorders,
  FEATURE,
  firstBad,
  IdRange,
  itemBytes,
  placeOf,
  tokenColumns,
  tokenValues,
  endsOf,
  type TokenMeta,
} from "../tokens.ts";
import type {
  BlockColumns,
  BlockTable,
  ColumnFormat,
  Field,
  IndexOptions,
  RawBlock,
  ScanEnd,
  ScannedBlock,
  ShardContent,
  ShardFiles,
} from "../types.ts";
import { hasMagic, readHeader } from "./header.ts";

export const npy: ColumnFormat = {
  name: "npy",
  kind: "columns",
  detect: (head, name) => (name.endsWith(".npy") || hasMagic(head) ? { encoding: "plain" } : undefined),
  scan,
  index,
  columns,
  tokens: { rules: ["stream"], place: placeOf },
};

async function* scan({ object }: ShardFiles, options: IndexOptions): AsyncGenerator<ScannedBlock, ScanEnd> {
  const meta = await readHeader(object);
  const borders = blockBorders(placeOf(meta));
  const reader = new SummedReader(object, options.kernels);
  const size = itemBytes(meta.type);
  try {
    for await (const _ of reader.pieces(0, meta.offset));
    for (let block = 0; block + 1 < borders.length; block++) {
      const [from, to] = [borders[block]!, borders[block + 1]!];
      const segment = { file: 0, offset: meta.offset + from * size, length: (to - from) * size, field: 0 };
      for await (const piece of reader.pieces(segment.offset, segment.offset + segment.length)) {
        const bytes = piece.slice();
        options.progress?.(segment.offset + bytes.length);
        const raw = {
          file: object.uri,
          block,
          firstRecord: from,
          records: to - from,
          segments: [{ ...segment, bytes }],
          meta,
          checkCrc: true,
        };
        const offsets = Float64Array.from({ length: to - from }, (_, i) => segment.offset + i * size);
        yield { records: to - from, segments: [segment], restarts: [], columns: columns(raw, [FEATURE]), offsets };
      }
    }
    return { encoding: "plain", crc32c: reader.crc32c, meta };
  } finally {
    reader.close();
  }
}

/** Without columns, which would hold a number for each token. A value that is no id is never kept: nothing stands in for it. */
async function index({ object }: ShardFiles, { kernels, progress }: IndexOptions): Promise<ShardContent> {
  const meta = await readHeader(object);
  const { type, offset, tokens } = meta;
  const size = itemBytes(type);
  const reader = new SummedReader(object, kernels);
  const range = new IdRange();
  try {
    for await (const _ of reader.pieces(0, offset));
    let token = 0;
    for await (const bytes of reader.pieces(offset, object.size)) {
      const values = tokenValues(bytes, type);
      const bad = firstBad(values, 0, values.length);
      if (bad >= 0) {
        throw badToken(BigInt(values[bad]!), type, object.uri, token + bad, offset + (token + bad) * size);
      }
      range.add(values);
      token += values.length;
      progress?.(offset + token * size);
    }
  } finally {
    reader.close();
  }
  const field: Field = {
    name: FEATURE,
    kind: "int64",
    present: tokens,
    minLength: 0,
    maxLength: tokens,
    values: tokens,
    prefixMask: false,
  };
  return {
    encoding: "plain",
    records: tokens,
    tokens,
    crc32c: reader.crc32c,
    schema: { fields: [tokens === 0 ? field : { ...field, ...range.finish() }] },
    table: tableOf(meta),
    meta,
  };
}

function tableOf(meta: TokenMeta): BlockTable {
  const borders = blockBorders(placeOf(meta));
  const blocks = borders.length - 1;
  const size = itemBytes(meta.type);
  const starts = borders.subarray(0, blocks);
  const tokens = starts.map((from, b) => borders[b + 1]! - from);
  return {
    stream: false,
    blocks,
    firstRecord: borders,
    tokens,
    segmentStart: Uint32Array.from({ length: blocks + 1 }, (_, b) => b),
    segmentFile: new Uint32Array(blocks),
    segmentField: new Uint32Array(blocks),
    segmentOffset: starts.map((from) => meta.offset + from * size),
    segmentLength: tokens.map((count) => count * size),
    restartStart: new Uint32Array(blocks + 1),
    restarts: new Uint32Array(0),
  };
}

function columns(raw: RawBlock, fields: readonly string[]): BlockColumns {
  const meta = raw.meta as TokenMeta;
  const begin = (raw.segments[0]!.offset - meta.offset) / itemBytes(meta.type);
  const ends =
    raw.samples === undefined ? Uint32Array.from({ length: raw.records }, (_, i) => i + 1) : endsOf(raw.samples.length);
  return tokenColumns(raw, fields, meta.type, ends, (_, value) => begin + value);
}
