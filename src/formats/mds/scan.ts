/**
 * Scan of an MDS shard: samples in file order. A plain or gzip one has 4 MiB a block; of the others, compressed as a whole, the file
 * is one block.
 *
 * @example
 * for await (const block of scan(shard, { kernels })) console.log(block.records, block.record(0));
 */
import { FramedBlocks } from "../framed.ts";
import { FieldKinds, RecordFields } from "../record-fields.ts";
import { RecordMalformed, ShardInvalid, Unsupported } from "../errors.ts";
import type { BlockColumns, IndexOptions, RawBlock, ScanEnd, ScannedBlock, ShardFiles, KeptKind } from "../types.ts";
import { MemoryWindow, Window } from "../window.ts";
import { readHeader } from "./header.ts";
import type { MdsColumn } from "./layout.ts";
import { findListed, REBUILD, type Listed } from "./listing.ts";
import { MAX_PACKED, packingOf, unpack, type Packing } from "./packed.ts";
import { SampleDecoder } from "./sample.ts";
import { scanSamples } from "./samples.ts";

/** What decoding needs to know of a shard. */
interface MdsMeta {
  readonly packing: Packing | undefined;
  readonly columns: readonly MdsColumn[];
  readonly kinds: { readonly [field: string]: KeptKind };
}

export async function* scan(shard: ShardFiles, options: IndexOptions): AsyncGenerator<ScannedBlock, ScanEnd> {
  const { object, path } = shard;
  const listed = await findListed(shard);
  const head = new Uint8Array(Math.min(64, object.size));
  await object.readInto(head, 0);
  const packing = packingOf(head, path);
  const encoding = packing === "gzip" ? "gzip" : "plain";
  const window = new Window(object, encoding, options);
  const known = new FieldKinds();
  try {
    let columns: MdsColumn[];
    if (packing === undefined || packing === "gzip") {
      const header = await readHeader(window, object.uri, packing === "gzip" ? undefined : object.size, listed);
      ({ columns } = header);
      yield* scanSamples(window, object.uri, header, listed, new FramedBlocks(known));
    } else columns = yield* scanPacked(window, shard, packing, listed, known);
    const { kinds, ...end } = known.end();
    const meta: MdsMeta = { packing, columns, kinds };
    return { encoding, crc32c: window.crc32c, meta: { ...meta }, ...end };
  } finally {
    window.close();
  }
}

async function* scanPacked(
  window: Window,
  { object }: ShardFiles,
  packing: Exclude<Packing, "gzip">,
  listed: Listed | undefined,
  known: FieldKinds,
): AsyncGenerator<ScannedBlock, MdsColumn[]> {
  const { uri: file, size } = object;
  if (size > MAX_PACKED) {
    throw new Unsupported(
      `a compressed shard of ${size} bytes, at most ${MAX_PACKED} are read (it is decompressed at once)`,
      { file },
      "write smaller shards (size_limit of MDSWriter), or do not compress them",
    );
  }
  await window.fill(size);
  const expected = listed?.entry.packedBytes;
  if (expected !== undefined && expected !== size) {
    throw new ShardInvalid(
      `the shard is ${size} bytes, index.json says ${expected}`,
      { file },
      `copy the shard again; or ${REBUILD}`,
    );
  }
  const bytes = unpack(packing, window.bytes, file);
  const whole = new MemoryWindow(bytes);
  const header = await readHeader(whole, file, bytes.length, listed);
  for await (const block of scanSamples(whole, file, header, listed, new FramedBlocks(known, true))) {
    yield { ...block, segments: [{ file: 0, offset: 0, length: size, field: 0 }], restarts: [] };
  }
  return header.columns;
}

/** Decodes wanted fields of a block, or of a span of it. */
export async function columns(raw: RawBlock, fields: readonly string[]): Promise<BlockColumns> {
  const { packing, columns: layout, kinds } = raw.meta as unknown as MdsMeta;
  const { file, firstRecord, records } = raw;
  let bytes = raw.segments[0]!.bytes;
  const decoder = new SampleDecoder(layout);
  let at = 0;
  let offset = raw.segments[0]!.offset;
  if (packing !== undefined && packing !== "gzip") {
    bytes = unpack(packing, bytes, file);
    const whole = new MemoryWindow(bytes);
    await readHeader(whole, file, bytes.length, undefined);
    at = whole.offset;
    offset = 0;
  }
  const set = new RecordFields(new FieldKinds(kinds), fields, bytes);
  for (let i = 0; i < records; i++) {
    const where = { file, record: firstRecord + i, byteOffset: offset + at };
    const end = decoder.measure(bytes, at, bytes.length);
    if (end < 0 || end > bytes.length) throw changed(where);
    try {
      decoder.decode(bytes, at, set);
      set.end();
    } catch (error) {
      set.fail(error, where);
    }
    at = end;
  }
  if (at !== bytes.length) throw changed({ file, record: firstRecord + records - 1, byteOffset: offset + at });
  return set.finish();
}

function changed(where: { file: string; record: number; byteOffset: number }): Error {
  return new RecordMalformed(
    "the sizes of the samples are not those of the index",
    where,
    "the shard is damaged, or was changed since it was indexed: copy it again, or run `athanor index`",
  );
}
