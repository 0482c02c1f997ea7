/**
 * Index of one TFRecord shard: one pass over its bytes, bounded in memory, every CRC checked.
 *
 * Contract: block b holds the records that begin in one [k · 4 MiB, (k + 1) · 4 MiB) of the file (of the decompressed
 * stream for gzip and zlib); ranges in which no record begins make no block. Throws at the first fault, unless bad records
 * are to be kept.
 *
 * @example
 * const { records, schema, table } = await index(object, kernels, (bytes) => show(bytes / object.size));
 */
import type { AthanorError } from "../../base/errors.ts";
import type { Kernels } from "../../kernels/kernels.ts";
import type { ReadableObject } from "../../storage/types.ts";
import { NotFormat } from "../errors.ts";
import { BLOCK_BYTES, RESTART_EVERY, type BlockTable, type Encoding, type ShardContent } from "../types.ts";
import { describe } from "../describe.ts";
import { detect } from "./detect.ts";
import { FrameReader, returnWorkspace, takeWorkspace, type Batch, type Workspace } from "./frames.ts";
import { FeatureTable } from "./schema.ts";

const HEAD_BYTES = 4096;

/**
 * Works in a memory of its own; of `kernels` it takes the implementation. `progress` gets the stored bytes read so far.
 * With `onBad` a bad record counts as a record, is told of, and says nothing of the schema; without it its fault is thrown.
 */
export async function index(
  object: ReadableObject,
  kernels: Kernels,
  progress?: (bytes: number) => void,
  onBad?: (fault: AthanorError) => void,
): Promise<ShardContent> {
  const encoding = await encodingOf(object);
  const workspace = takeWorkspace(kernels.implementation);
  const reader = new FrameReader(object, encoding, workspace, onBad !== undefined);
  try {
    const features = new FeatureTable(workspace, object.uri, onBad);
    const blocks = new BlockBuilder(features);
    let records = 0;
    for (let batch = await reader.next(); batch !== undefined; batch = await reader.next()) {
      blocks.add(batch, workspace);
      records += batch.records;
      progress?.(reader.fileBytes);
    }
    const table = blocks.finish(encoding !== "plain", records, reader.offset);
    progress?.(reader.fileBytes);
    return {
      encoding,
      records,
      tokens: table.tokens.reduce((sum, n) => sum + n, 0),
      crc32c: reader.crc32c,
      schema: features.schema(),
      table,
    };
  } finally {
    reader.destroy();
    // A read that is still under way (after an error) may write into the memory: then it is not used again.
    if (reader.idle) returnWorkspace(workspace);
  }
}

/** The encoding of a shard, by its first bytes; ATH_NOT_FORMAT, saying what the file is, if it is no TFRecord. */
export async function encodingOf(object: ReadableObject): Promise<Encoding> {
  const head = new Uint8Array(Math.min(HEAD_BYTES, object.size));
  const found = head.length === 0 ? 0 : await object.readInto(head, 0);
  const detection = detect(head.subarray(0, found));
  if (detection !== undefined) return detection.encoding;
  throw new NotFormat(
    `not TFRecord: ${why(head.subarray(0, found))}`,
    { file: object.uri, record: 0, byteOffset: 0 },
    "give a folder or glob that holds TFRecord shards only",
  );
}

function why(head: Uint8Array): string {
  if (head.length < 12) return `the file has ${head.length} bytes, a record takes 16 at least`;
  const what = describe(head);
  return what.startsWith("the file begins") ? `length CRC wrong at byte 0 and ${what}` : what;
}

class BlockBuilder {
  private readonly features: FeatureTable;
  private readonly firstRecord: number[] = [];
  private readonly offsets: number[] = [];
  private readonly restartStart: number[] = [];
  private readonly restarts: number[] = [];
  /** int64 values of each feature when each block ended. */
  private readonly values: number[][] = [];
  private range = -1;

  constructor(features: FeatureTable) {
    this.features = features;
  }

  add(batch: Batch, workspace: Workspace): void {
    const at = new Uint32Array(workspace.kernels.memory.buffer, workspace.offsets, batch.records);
    let from = 0;
    for (let i = 0; i < batch.records; i++) {
      const offset = batch.offset + at[i]! - 12;
      const range = Math.floor(offset / BLOCK_BYTES);
      if (range !== this.range) {
        this.features.fold(batch, from, i);
        from = i;
        if (this.range >= 0) this.values.push(this.features.int64Values());
        this.range = range;
        this.firstRecord.push(batch.firstRecord + i);
        this.offsets.push(offset);
        this.restartStart.push(this.restarts.length);
      }
      const inBlock = batch.firstRecord + i - this.firstRecord.at(-1)!;
      if (inBlock % RESTART_EVERY === 0) this.restarts.push(offset - this.offsets.at(-1)!);
    }
    this.features.fold(batch, from, batch.records);
  }

  finish(stream: boolean, records: number, bytes: number): BlockTable {
    const blocks = this.offsets.length;
    if (blocks > 0) this.values.push(this.features.int64Values());
    const column = this.features.tokenColumn();
    const total = (b: number): number => (b < 0 || column < 0 ? 0 : (this.values[b]![column] ?? 0));
    return {
      stream,
      blocks,
      firstRecord: Float64Array.from([...this.firstRecord, records]),
      tokens: Float64Array.from(this.offsets, (_, b) => total(b) - total(b - 1)),
      segmentStart: Uint32Array.from({ length: blocks + 1 }, (_, b) => b),
      segmentFile: new Uint32Array(blocks),
      segmentOffset: Float64Array.from(this.offsets),
      segmentLength: Float64Array.from(this.offsets, (offset, b) => (this.offsets[b + 1] ?? bytes) - offset),
      segmentField: new Uint32Array(blocks),
      restartStart: Uint32Array.from([...this.restartStart, this.restarts.length]),
      restarts: Uint32Array.from(this.restarts),
    };
  }
}
