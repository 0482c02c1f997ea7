/**
 * Megatron's `.bin/.idx`: tokens of documents, and where each begins. A pair is one shard, named by its `.bin`; its documents are
 * its records, which a view cuts into samples, by themselves or as one stream.
 *
 * Contract: docs/reference/formats.md. The index reads the `.idx` only; what the `.bin` holds is looked at as it is decoded.
 */
import { NotFound } from "../../storage/errors.ts";
import type { ReadableObject } from "../../storage/types.ts";
import { RecordTooLong } from "../errors.ts";
import { compression } from "../inflate-head.ts";
import { endsOf, FEATURE, greatest, itemBytes, placeOf, tokenColumns } from "../tokens.ts";
import type {
  BlockColumns,
  ColumnFormat,
  Detection,
  Field,
  IndexOptions,
  RawBlock,
  ScanEnd,
  ScannedBlock,
  ShardContent,
  ShardFile,
  ShardFiles,
} from "../types.ts";
import { documentBlocks, segmentsOf, TableMaker, type DocumentBlock } from "./blocks.ts";
import { bordersIn, readBorders } from "./borders.ts";
import { hasMagic, invalid, readIdx, type MegatronMeta } from "./idx.ts";

/** A document that is shown whole must fit memory. */
const MAX_SHOWN = 2 ** 30;

export const megatron: ColumnFormat = {
  name: "megatron",
  kind: "columns",
  detect,
  claims: (path, beside) => path.endsWith(".bin") && beside.length === 1 && beside[0] === idxOf(path),
  scan,
  index,
  columns,
  tokens: {
    rules: ["document", "stream"],
    place: placeOf,
    borders: (meta, file, from, to) => readBorders(meta as MegatronMeta, file, from, to),
  },
};

function idxOf(path: string): string {
  return `${path.slice(0, -".bin".length)}.idx`;
}

/** Half a pair: what is of no other format. Whole ones are claimed by their names. */
function detect(head: Uint8Array, name: string): Detection | undefined {
  const half = name.endsWith(".idx")
    ? hasMagic(head)
    : name.endsWith(".bin") && head.length > 0 && compression(head) === undefined;
  return half ? { encoding: "plain" } : undefined;
}

interface OpenedIdx {
  idx: ReadableObject;
  file: ShardFile;
  meta: MegatronMeta;
  crc32c: number;
}

async function openIdx({ object, path, beside, open }: ShardFiles, options: IndexOptions): Promise<OpenedIdx> {
  const [file] = beside;
  if (file === undefined) throw halfPair(object.uri, path);
  const idx = await open(file);
  try {
    return { idx, file, ...(await readIdx(idx, object, options.kernels, options.progress)) };
  } catch (error) {
    await idx.close();
    throw error;
  }
}

function halfPair(uri: string, path: string): Error {
  const stem = path.slice(path.lastIndexOf("/") + 1, -".bin".length);
  const other = `${stem}${path.endsWith(".bin") ? ".idx" : ".bin"}`;
  return new NotFound(
    `${other} is missing: Megatron's .bin and .idx are read together`,
    { file: uri },
    "copy it beside this file",
  );
}

async function index(shard: ShardFiles, options: IndexOptions): Promise<ShardContent> {
  const opened = await openIdx(shard, options);
  const { idx, file, meta, crc32c } = opened;
  try {
    const table = new TableMaker(meta);
    for await (const block of documentBlocks(meta, idx)) {
      table.add(block);
      if (options.everything === true) await lookAtTokens(shard, opened, block, options);
    }
    const field: Field = {
      name: FEATURE,
      kind: "int64",
      present: meta.documents,
      minLength: 0,
      maxLength: meta.tokens,
      values: meta.tokens,
      prefixMask: false,
    };
    // The .bin is not read: any value of its type may be in it.
    const range = meta.tokens === 0 ? {} : { min: "0", max: String(greatest(meta.type)) };
    return {
      encoding: "plain",
      records: meta.documents,
      tokens: meta.tokens,
      crc32c,
      schema: { fields: [{ ...field, ...range }] },
      table: table.finish(),
      meta,
      files: [file],
    };
  } finally {
    await idx.close();
  }
}

async function lookAtTokens(
  shard: ShardFiles,
  opened: OpenedIdx,
  block: DocumentBlock,
  { onBad }: IndexOptions,
): Promise<void> {
  const { faults } = columns(await rawOf(shard, opened, block), [FEATURE]);
  for (const [, fault] of faults) {
    if (onBad === undefined) throw fault;
    onBad(fault);
  }
}

async function* scan(shard: ShardFiles, options: IndexOptions): AsyncGenerator<ScannedBlock, ScanEnd> {
  const opened = await openIdx(shard, options);
  const { idx, file, meta, crc32c } = opened;
  try {
    const size = itemBytes(meta.type);
    for await (const block of documentBlocks(meta, idx)) {
      const raw = await rawOf(shard, opened, block);
      const found = columns(raw, [FEATURE]);
      const { ends } = found.fields.get(FEATURE)!;
      const begin = block.firstToken * size;
      const offsets = Float64Array.from(ends, (_, i) => begin + (i === 0 ? 0 : ends[i - 1]! * size));
      const segments = segmentsOf(meta, block);
      if (block.documents > 0) yield { records: block.documents, segments, restarts: [], columns: found, offsets };
    }
    return { encoding: "plain", crc32c, meta, files: [file] };
  } finally {
    await idx.close();
  }
}

/** A block as the feed would read it. */
async function rawOf({ object }: ShardFiles, { idx, meta }: OpenedIdx, block: DocumentBlock): Promise<RawBlock> {
  const segments = [];
  for (const segment of segmentsOf(meta, block)) {
    if (segment.length > MAX_SHOWN) {
      throw new RecordTooLong(
        `the documents that begin here hold ${segment.length} bytes, at most ${MAX_SHOWN} can be looked at`,
        { file: object.uri, record: block.firstDocument, byteOffset: segment.offset },
        "train on it all the same: samples are read piece by piece",
      );
    }
    const bytes = new Uint8Array(segment.length);
    if (bytes.length > 0) await (segment.file === 0 ? object : idx).readInto(bytes, segment.offset);
    segments.push({ ...segment, bytes });
  }
  const { firstDocument: firstRecord, documents: records } = block;
  return { file: object.uri, block: block.block, firstRecord, records, segments, meta, checkCrc: true };
}

function columns(raw: RawBlock, fields: readonly string[]): BlockColumns {
  const meta = raw.meta as MegatronMeta;
  const { samples, records, firstRecord, segments } = raw;
  if (samples !== undefined) {
    // The document of a bad token, where samples go over borders, only the whole index knows: see `SampleCut.recordAt`.
    return tokenColumns(raw, fields, meta.type, endsOf(samples.length), (row) => samples.record[row]!);
  }
  if (records === 0 || segments.length < 3) {
    return tokenColumns(
      { ...raw, segments: [segments[0] ?? { file: 0, offset: 0, length: 0, field: 0, bytes: new Uint8Array(0) }] },
      fields,
      meta.type,
      new Uint32Array(records),
      () => firstRecord,
    );
  }
  const [tokens, documents, pointers] = segments as [Placed, Placed, Placed];
  const first = bordersIn(documents.bytes, pointers.bytes, meta, records, raw.file);
  const held = Math.floor(tokens.bytes.length / itemBytes(meta.type));
  const begin = tokens.offset / itemBytes(meta.type);
  if (first[0] !== begin || first[records]! - begin !== held) {
    const what = `the documents of a block begin at token ${first[0]} and end at ${first[records]}, its bytes at ${begin} and ${begin + held}`;
    throw invalid(raw.file, what, tokens.offset, firstRecord);
  }
  const ends = Uint32Array.from({ length: records }, (_, i) => first[i + 1]! - begin);
  return tokenColumns(raw, fields, meta.type, ends, (row) => firstRecord + row);
}

type Placed = RawBlock["segments"][number];
