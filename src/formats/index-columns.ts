/**
 * The index of a shard of a `ColumnFormat`, from one scan of its blocks.
 *
 * @example
 * index: (shard, options) => indexColumns(scan(shard, options), shard, options),
 */
import { ColumnStats } from "./stats.ts";
import { isStream } from "./types.ts";
import type { BlockTable, IndexOptions, ScanEnd, ScannedBlock, ShardContent, ShardFiles } from "./types.ts";

/** Throws the first fault; with `onBad` bad records are told of and count as records. */
export async function indexColumns(
  blocks: AsyncGenerator<ScannedBlock, ScanEnd>,
  { object }: ShardFiles,
  { onBad }: IndexOptions,
): Promise<ShardContent> {
  const stats = new ColumnStats(object.uri);
  const builder = new TableBuilder();
  for (;;) {
    const next = await blocks.next();
    if (next.done === true) {
      const { encoding, crc32c, meta, files, notColumns = {}, empty = [] } = next.value;
      for (const [name, count] of empty) stats.addEmpty(name, count);
      stats.drop(notColumns);
      const { schema, tokens, total } = stats.finish();
      const table = builder.finish(isStream(encoding), tokens);
      const content: ShardContent = { encoding, records: builder.records, tokens: total, crc32c, schema, table };
      if (meta !== undefined) content.meta = meta;
      if (files !== undefined) content.files = files;
      return content;
    }
    const { columns, records } = next.value;
    // In the order of the records, whatever order they were found in.
    for (const [, fault] of [...columns.faults].sort(([a], [b]) => a - b)) {
      if (onBad === undefined) throw fault;
      onBad(fault);
    }
    if (records === 0) continue;
    stats.add(columns, records);
    builder.add(next.value);
  }
}

class TableBuilder {
  records = 0;
  private readonly firstRecord: number[] = [];
  private readonly segmentStart: number[] = [];
  private readonly segmentFile: number[] = [];
  private readonly segmentOffset: number[] = [];
  private readonly segmentLength: number[] = [];
  private readonly segmentField: number[] = [];
  private readonly restartStart: number[] = [];
  private readonly restarts: number[] = [];
  private readonly origin: number[] = [];

  add({ records, segments, restarts, origin }: ScannedBlock): void {
    this.firstRecord.push(this.records);
    this.records += records;
    this.segmentStart.push(this.segmentFile.length);
    for (const { file, offset, length, field } of segments) {
      this.segmentFile.push(file);
      this.segmentOffset.push(offset);
      this.segmentLength.push(length);
      this.segmentField.push(field);
    }
    this.restartStart.push(this.restarts.length);
    for (const restart of restarts) this.restarts.push(restart);
    if (origin !== undefined) this.origin.push(origin);
  }

  finish(stream: boolean, tokens: Float64Array): BlockTable {
    return {
      stream,
      blocks: this.firstRecord.length,
      firstRecord: Float64Array.from([...this.firstRecord, this.records]),
      tokens,
      segmentStart: Uint32Array.from([...this.segmentStart, this.segmentFile.length]),
      segmentFile: Uint32Array.from(this.segmentFile),
      segmentOffset: Float64Array.from(this.segmentOffset),
      segmentLength: Float64Array.from(this.segmentLength),
      segmentField: Uint32Array.from(this.segmentField),
      restartStart: Uint32Array.from([...this.restartStart, this.restarts.length]),
      restarts: Uint32Array.from(this.restarts),
      ...(this.origin.length > 0 && { origin: Float64Array.from(this.origin) }),
    };
  }
}
