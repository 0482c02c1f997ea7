/**
 * Shards in memory for tests of a `ColumnFormat`, and its contract: columns() of a block, of a span of it and of some of its
 * fields gives what scan() gave.
 *
 * @example
 * const { blocks, end } = await checkShard(jsonl, shardOf("a.jsonl", bytes));
 */
import assert from "node:assert/strict";
import { dense, widened } from "../../src/formats/dense.ts";
import { gunzipSync, inflateSync } from "node:zlib";
import { AthanorError } from "../../src/base/errors.ts";
import { ZstdStream } from "../../src/formats/codecs/zstd-stream.ts";
import { unpackBlock } from "../../src/formats/packed.ts";
import {
  isStream,
  RESTART_EVERY,
  type BlockColumns,
  type Column,
  type ColumnFormat,
  type Encoding,
  type Format,
  type IndexOptions,
  type RawBlock,
  type ScanEnd,
  type ScannedBlock,
  type ShardContent,
  type ShardFiles,
} from "../../src/formats/types.ts";
import type { Kernels } from "../../src/kernels/kernels.ts";
import { createKernels } from "../../src/kernels/load.ts";
import { createPosixStorage, type PosixStorage } from "../../src/storage/posix.ts";
import type { ReadableObject } from "../../src/storage/types.ts";
import type { Random } from "./damage.ts";
import { memoryObject } from "./tfrecord/memory-object.ts";

/** One for all: each reserves 4 GiB of addresses. */
let kernels: Kernels | undefined;
/** One for all: each has threads of its own. */
let storage: PosixStorage | undefined;

export interface TestShard {
  /** Path of the shard relative to the root: that of its only or first file, or of its folder. */
  path: string;
  /** The shard's own file first. */
  files: readonly { path: string; bytes: Uint8Array }[];
  /** The shard is a folder: all its files are `beside`. */
  folder?: boolean;
  /** The folder on disk that holds the files: for self-reading formats. */
  root?: string;
}

export function shardOf(path: string, bytes: Uint8Array): TestShard {
  // A Buffer's `slice` is no copy: damage would stay.
  return { path, files: [{ path, bytes: new Uint8Array(bytes) }] };
}

/** The shard as the index opens it. */
export async function shardFiles(shard: TestShard): Promise<ShardFiles> {
  const { path, files, folder = false, root } = shard;
  const open = async (name: string): Promise<ReadableObject> => {
    if (root !== undefined) return (storage ??= createPosixStorage()).open(`${root}/${name}`);
    return memoryObject(`/${name}`, files.find((file) => file.path === name)!.bytes);
  };
  const beside = (folder ? files : files.slice(1)).map(({ path: name, bytes }) => {
    return { path: name, size: bytes.length, mtimeNs: "0" };
  });
  return { object: await open(files[0]!.path), path, beside, open: (file) => open(file.path) };
}

/** The bytes that segments count, by number of the file: of a stream the decompressed ones. */
export async function contentOf(shard: TestShard, encoding: Encoding, end?: ScanEnd): Promise<Uint8Array[]> {
  const { files } = shard;
  const own = files[0]!.bytes;
  if (isStream(encoding)) return [await decompressed(own, encoding)];
  const others = end?.files ?? files.slice(1);
  return [own, ...others.map(({ path }) => files.find((file) => file.path === path)!.bytes)];
}

async function decompressed(bytes: Uint8Array, encoding: Encoding): Promise<Uint8Array> {
  if (encoding === "zstd") {
    const stream = new ZstdStream("/", () => stream.push(bytes, true));
    const target = new Uint8Array(1 << 20);
    const parts: Uint8Array[] = [];
    for (let n = await stream.readSome(target); n > 0; n = await stream.readSome(target))
      parts.push(target.slice(0, n));
    return Buffer.concat(parts);
  }
  try {
    return encoding === "gzip" ? gunzipSync(bytes) : inflateSync(bytes);
  } catch (error) {
    throw new AthanorError("ATH_STREAM_CORRUPT", 1, "the test's own decoder refuses the stream", {}, undefined, error);
  }
}

export async function scanShard(
  format: ColumnFormat,
  shard: TestShard,
  options: Partial<IndexOptions> = {},
): Promise<{ blocks: ScannedBlock[]; end: ScanEnd }> {
  await format.ready?.();
  kernels ??= createKernels(0);
  const files = await shardFiles(shard);
  const scan = format.scan(files, { kernels, ...options });
  const blocks: ScannedBlock[] = [];
  try {
    for (;;) {
      const next = await scan.next();
      if (next.done === true) return { blocks, end: next.value };
      blocks.push(next.value);
    }
  } finally {
    await files.object.close();
  }
}

/** The index of a shard. */
export async function indexShard(
  format: Format,
  shard: TestShard,
  options: Partial<IndexOptions> = {},
): Promise<ShardContent> {
  if (format.kind === "columns") await format.ready?.();
  kernels ??= createKernels(0);
  const files = await shardFiles(shard);
  try {
    return await format.index(files, { kernels, ...options });
  } finally {
    await files.object.close();
  }
}

/** Scans a shard and checks that columns() gives the same; returns the scan. */
export async function checkShard(
  format: ColumnFormat,
  shard: TestShard,
  options: Partial<IndexOptions> = {},
  random: Random = (below) => below >> 1,
): Promise<{ blocks: ScannedBlock[]; end: ScanEnd }> {
  const { blocks, end } = await scanShard(format, shard, options);
  await checkBlocks(format, shard, blocks, end, random);
  return { blocks, end };
}

/** columns() of all blocks: whole, with one field only, and (with restarts) of one span. */
export async function checkBlocks(
  format: ColumnFormat,
  shard: TestShard,
  blocks: readonly ScannedBlock[],
  end: ScanEnd,
  random: Random,
): Promise<void> {
  const content = await contentOf(shard, end.encoding, end);
  let firstRecord = 0;
  for (const [number, block] of blocks.filter(({ records }) => records > 0).entries()) {
    // A later block may have shown that a field is no column.
    const names = [...block.columns.fields.keys()].filter((name) => !Object.hasOwn(end.notColumns ?? {}, name));
    const whole = rawOf(shard, content, block, end, number, firstRecord);
    const all = await format.columns(whole, names);
    if (names.length > 1) {
      const one = [names[random(names.length)]!];
      const raw = rawOf(shard, content, block, end, number, firstRecord, one);
      const part = await format.columns(raw, one);
      compare(part, block, 0, block.records, one, `block ${number}, ${one[0]} only`);
      part.release?.();
    }
    // Behind another: what was given stays as it was until it is given back.
    compare(all, block, 0, block.records, names, `block ${number}`);
    all.release?.();
    // Of a packed block the last one is its end.
    const restarts =
      block.origin === undefined ? block.restarts : block.restarts.slice(0, -1).map((at) => at - block.restarts[0]!);
    if (restarts.length > 1) {
      assert.equal(restarts.length, Math.ceil(block.records / RESTART_EVERY), `restarts of block ${number}`);
      const head = random(restarts.length);
      const tail = head + 1 + random(restarts.length - head);
      const from = head * RESTART_EVERY;
      const to = Math.min(block.records, tail * RESTART_EVERY);
      const [segment] = whole.segments;
      const begin = restarts[head]!;
      const stop = restarts[tail] ?? segment!.length;
      const piece = {
        ...segment!,
        offset: segment!.offset + begin,
        length: stop - begin,
        bytes: segment!.bytes.subarray(begin, stop),
      };
      const span = { ...whole, firstRecord: firstRecord + from, records: to - from, segments: [piece] };
      const part = await format.columns(span, names);
      compare(part, block, from, to, names, `block ${number}, records ${from} to ${to}`);
      part.release?.();
    }
    firstRecord += block.records;
  }
}

/** columns() of blocks over other bytes than they were indexed from: values, or `coded` gets what was thrown. */
export async function tryColumns(
  format: ColumnFormat,
  shard: TestShard,
  content: readonly Uint8Array[],
  blocks: readonly ScannedBlock[],
  end: ScanEnd,
  coded: (error: unknown) => void,
): Promise<void> {
  let firstRecord = 0;
  for (const [number, block] of blocks.filter(({ records }) => records > 0).entries()) {
    // Storage refuses to read behind the end of a file.
    if (block.segments.every(({ file, offset, length }) => offset + length <= (content[file]?.length ?? 0))) {
      try {
        const raw = rawOf(shard, content, block, end, number, firstRecord);
        const found = await format.columns(raw, [...block.columns.fields.keys()]);
        try {
          wellFormed(copied(found), block.records, `block ${number} of damaged bytes`);
          for (const fault of found.faults.values()) coded(fault);
        } finally {
          // A workbench that is not given back is not used again.
          found.release?.();
        }
      } catch (error) {
        coded(error);
      }
    }
    firstRecord += block.records;
  }
}

/** A block as the feed reads it: its segments in shared memory, only those that `fields` need. */
export function rawOf(
  shard: TestShard,
  content: readonly Uint8Array[],
  block: ScannedBlock,
  { meta = {} }: ScanEnd,
  number: number,
  firstRecord: number,
  fields?: readonly string[],
): RawBlock {
  const wanted = (field: number): boolean =>
    field === 0 || fields === undefined || fields.includes(meta.fields?.[field - 1] ?? "");
  const segments = block.segments
    .filter(({ field }) => wanted(field))
    .map((segment) => {
      const bytes = content[segment.file]!.subarray(segment.offset, segment.offset + segment.length);
      assert.equal(bytes.length, segment.length, `block ${number} names bytes that are not there`);
      const shared = new Uint8Array(new SharedArrayBuffer(bytes.length));
      shared.set(bytes);
      return { ...segment, bytes: shared };
    });
  const file = shard.root === undefined ? `/${shard.path}` : `${shard.root}/${shard.path}`;
  const raw: RawBlock = { file, block: number, firstRecord, records: block.records, segments, meta, checkCrc: true };
  return block.origin === undefined ? raw : unpackBlock({ ...raw, origin: block.origin }, block.restarts).raw;
}

/** Values that were left in the bytes of the block, as those that were copied out. */
export function copied({ fields, faults }: BlockColumns): BlockColumns {
  const all = [...fields].map(([name, column]) => {
    const { starts, ends, values } = column;
    for (const [i, start] of (starts ?? []).entries()) {
      assert.ok(
        start <= ends[i]! && ends[i]! <= values.length,
        `field ${name}, record ${i}: values ${start} to ${ends[i]}`,
      );
    }
    return [name, widened(dense(column))] as const;
  });
  return { fields: new Map(all), faults };
}

function compare(
  given: BlockColumns,
  { columns, records }: ScannedBlock,
  from: number,
  to: number,
  names: readonly string[],
  where: string,
): void {
  const found = copied(given);
  wellFormed(columns, records, `${where} of scan`);
  wellFormed(found, to - from, `${where} of columns`);
  for (let i = from; i < to; i++) {
    const fault = columns.faults.get(i);
    const other = found.faults.get(i - from);
    // A fault of a field that is not asked for need not be found.
    if (fault !== undefined || other !== undefined) {
      // Parquet: of a value that no column can hold the scan says that the record does not have the field.
      if (fault === undefined && names.some((name) => columns.fields.get(name)?.present?.[i] === 0)) continue;
      // Nor need it be the same, where the record is bad in several fields.
      if (other !== undefined && names.length < columns.fields.size)
        assert.ok(fault !== undefined, `${where}, record ${i}`);
      else if (other !== undefined) assert.equal(other.code, fault?.code, `${where}, record ${i}: fault`);
      continue;
    }
    for (const name of names) {
      const [a, b] = [found.fields.get(name), columns.fields.get(name)];
      if (sameRow(a, i - from, b, i)) continue;
      const [row, expected] = [rowOf(a, i - from), rowOf(b, i)];
      // Integers of early blocks can be those of a field that is float in the end.
      if (b?.loose === true && b.kind === "int64" && a?.kind === "float") {
        assert.deepEqual(row, expected && expected.map(Number), `${where}, record ${i}, field ${name}`);
      } else assert.deepEqual(row, expected, `${where}, record ${i}, field ${name}`);
    }
  }
}

/** The quick way: equal bytes. */
function sameRow(a: Column | undefined, i: number, b: Column | undefined, k: number): boolean {
  if (a === undefined || b === undefined || a.values.constructor !== b.values.constructor) return false;
  if ((a.present?.[i] === 0) !== (b.present?.[k] === 0)) return false;
  const bytes = ({ values, ends }: Column, at: number): Uint8Array => {
    const row = values.subarray(at === 0 ? 0 : ends[at - 1]!, ends[at]);
    return new Uint8Array(row.buffer, row.byteOffset, row.byteLength);
  };
  return Buffer.compare(bytes(a, i), bytes(b, k)) === 0;
}

/** A record's values of one field; null where it has none. */
export function rowOf(column: Column | undefined, i: number): (number | bigint)[] | null {
  if (column === undefined || column.present?.[i] === 0) return null;
  const values = Array.from<number | bigint>(column.values.subarray(i === 0 ? 0 : column.ends[i - 1]!, column.ends[i]));
  // i32 and i64 are the same values.
  return column.kind === "int64" ? values.map(BigInt) : values;
}

function wellFormed({ fields, faults }: BlockColumns, records: number, where: string): void {
  for (const [name, { values, kind, ends, present }] of fields) {
    const label = `${where}, field ${name}`;
    assert.ok(ends.length >= records, `${label}: ${ends.length} ends for ${records} records`);
    assert.ok(present === undefined || present.length >= records, `${label}: present`);
    let before = 0;
    for (let i = 0; i < records; i++) {
      assert.ok(ends[i]! >= before, `${label}: end of record ${i} lies before its begin`);
      before = ends[i]!;
    }
    assert.ok(before <= values.length, `${label}: ends behind its values`);
    const kinds = { int64: [Int32Array, BigInt64Array], float: [Float32Array, Float64Array], bytes: [Uint8Array] };
    assert.ok(
      kinds[kind].some((type) => values instanceof type),
      `${label}: ${kind} in ${values.constructor.name}`,
    );
  }
  for (const [i, fault] of faults) {
    assert.ok(fault instanceof AthanorError, `${where}, record ${i}: fault`);
    assert.ok(i >= 0 && i < records, `${where}: fault of record ${i} of ${records}`);
  }
}
