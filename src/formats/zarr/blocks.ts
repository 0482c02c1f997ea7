/**
 * Blocks of a Zarr folder: which rows belong together, and which bytes hold them.
 *
 * A block is rows of chunks of the token array, joined until they hold about 4 MiB. One such row that holds more is cut where its
 * chunks lie in the file as they are; compressed chunks are never cut: each piece would decompress the whole.
 */
import { BLOCK_BYTES, type Segment, type ShardFiles } from "../types.ts";
import { ChunkMissing, Unsupported } from "../errors.ts";
import { unitCount, unitsOf, type UnitSegment } from "./columns.ts";
import { FAULT_KINDS, chunkError, faultKind } from "./faults.ts";
import { checkSize } from "./codecs.ts";
import { indexBytes, parseIndex, type ShardIndex } from "./sharding.ts";
import { describeChunk, fileKey, volume, type ArraySpec } from "./spec.ts";
import { folderOf, type Store } from "./store.ts";

/** A block before its bytes are read. */
export interface PlannedBlock {
  from: number;
  to: number;
  segments: PlannedSegment[];
}

export type PlannedSegment = Segment & { field: number; fault?: UnitSegment["fault"] };

/** Decoded bytes of a block: what compresses well, or was never written, is not to fill the memory. */
const DECODED_BYTES = 8 * BLOCK_BYTES;
const MOST_ROWS = 1 << 16;
const MOST_UNITS = 1 << 12;
/** Chunks of one row of chunks. */
const TOO_MANY_UNITS = 1 << 20;
/** Elements in a row that no file holds: a shape that is far larger than what was written is damage. */
const FILL_BYTES = 1 << 26;

export class BlockPlan {
  missing = 0;
  firstMissing: string | undefined;
  private readonly shard: ShardFiles;
  private readonly store: Store;
  private readonly folder: string;
  /** Of the shards of the sharding codec that hold the rows in work, by file. */
  private readonly indexes = new Map<number, ShardIndex | Error>();
  private unwritten = 0;

  constructor(shard: ShardFiles, store: Store) {
    this.shard = shard;
    this.store = store;
    this.folder = folderOf(shard);
  }

  async *blocks(): AsyncGenerator<PlannedBlock> {
    const { arrays, token, records } = this.store;
    const { chunk, plain } = arrays[token]!;
    let from = 0;
    let weight = 0;
    let units = 0;
    for (let row = 0; row < records;) {
      const to = Math.min(records, (Math.floor(row / chunk[0]!) + 1) * chunk[0]!);
      const own = this.weigh(row, to);
      const count = arrays.reduce((sum, array) => sum + unitCount(array, row, to), 0);
      if (count > TOO_MANY_UNITS)
        throw new Unsupported(
          `${count} chunks hold ${to - row} rows`,
          { file: this.folder, record: row },
          "write larger chunks",
        );
      if (row > from && (weight + own > BLOCK_BYTES || to - from > MOST_ROWS || units + count > MOST_UNITS)) {
        yield await this.block(from, row);
        [from, weight, units] = [row, 0, 0];
      }
      const pieces = Math.ceil(own / BLOCK_BYTES);
      if (pieces > 1 && (plain === true || this.isUnwritten(row, to))) {
        const step = Math.max(1, Math.ceil((to - row) / pieces));
        for (let at = row; at < to; at += step) yield await this.block(at, Math.min(to, at + step));
        from = to;
      } else {
        weight += own;
        units += count;
      }
      row = to;
    }
    if (from < records) yield await this.block(from, records);
  }

  /** Stored bytes of rows, by the sizes of files; or an eighth of what they decode to, if that is more. */
  private weigh(from: number, to: number): number {
    let stored = 0;
    let decoded = 0;
    for (const array of this.store.arrays) {
      decoded += (to - from) * (volume(array.shape.slice(1)) * (array.type.size || 16) + 8);
      const rows = (array.outer?.chunk ?? array.chunk)[0]!;
      if (unitCount(array, from, to) > TOO_MANY_UNITS) continue;
      const seen = new Set<number>();
      for (const at of unitsOf(array, from, to)) {
        const file = this.store.files.get(fileKey(array, at));
        if (file === undefined || seen.has(file.number)) continue;
        seen.add(file.number);
        const first = Math.floor((at[0]! * array.chunk[0]!) / rows) * rows;
        const inside = Math.min(to, first + rows) - Math.max(from, first);
        stored += (file.size * inside) / Math.min(rows, array.shape[0]! - first);
      }
    }
    return Math.max(stored, (decoded * BLOCK_BYTES) / DECODED_BYTES);
  }

  private isUnwritten(from: number, to: number): boolean {
    return this.store.arrays.every((array) => {
      for (const at of unitsOf(array, from, to)) if (this.store.files.has(fileKey(array, at))) return false;
      return true;
    });
  }

  private async block(from: number, to: number): Promise<PlannedBlock> {
    const segments: PlannedSegment[] = [];
    let unwritten = 0;
    let written = false;
    for (const [i, array] of this.store.arrays.entries()) {
      const cellBytes = array.type.size || 16;
      for (const at of unitsOf(array, from, to)) {
        const segment = await this.segment(array, i + 1, at, from, to);
        segments.push(segment);
        if (segment.file !== this.store.noFile) {
          written = true;
          continue;
        }
        const first = at[0]! * array.chunk[0]!;
        const rows = Math.min(to, first + array.chunk[0]!) - Math.max(from, first);
        unwritten +=
          rows *
          cellBytes *
          array.chunk.slice(1).reduce((product, size, axis) => product * Math.min(size, array.shape[axis + 1]!), 1);
        // A chunk that several blocks need counts in the first of them.
        if (first >= from || from === 0) {
          this.missing++;
          this.firstMissing ??= describeChunk(array, at);
        }
      }
    }
    this.unwritten = written ? unwritten : this.unwritten + unwritten;
    if (this.unwritten > FILL_BYTES)
      throw new ChunkMissing(
        `no file holds records around ${from}: ${this.unwritten} bytes in a row would be fill values`,
        { file: this.folder, record: from },
        "check the shape in the metadata; put lost chunk files back, or cut the array to what was written",
      );
    return { from, to, segments };
  }

  private async segment(
    array: ArraySpec,
    field: number,
    at: readonly number[],
    from: number,
    to: number,
  ): Promise<PlannedSegment> {
    const missing = { file: this.store.noFile, offset: 0, length: 0, field };
    const file = this.store.files.get(fileKey(array, at));
    if (file === undefined) return missing;
    const first = at[0]! * array.chunk[0]!;
    let [offset, length] = [0, file.size];
    try {
      if (array.outer !== undefined) {
        const found = await this.inShard(array, array.outer, file.number, file.size, at);
        if (found === undefined) return missing;
        [offset, length] = found;
      }
      if (length === 0) checkSize(new Uint8Array(0), 1);
      if (array.plain === true) {
        const rowBytes = volume(array.chunk.slice(1)) * array.type.size;
        if (length !== rowBytes * array.chunk[0]!) checkSize({ length } as Uint8Array, rowBytes * array.chunk[0]!);
        const begin = Math.max(from, first);
        offset += (begin - first) * rowBytes;
        length = (Math.min(to, first + array.chunk[0]!) - begin) * rowBytes;
      }
    } catch (error) {
      const where = { file: `${this.folder}/${fileKey(array, at)}`, record: Math.max(first, from), byteOffset: offset };
      const cause = FAULT_KINDS.indexOf(faultKind(error));
      return {
        file: file.number,
        offset: cause,
        length: 0,
        field,
        fault: chunkError(error, describeChunk(array, at), where),
      };
    }
    return { file: file.number, offset, length, field };
  }

  /** Where a chunk lies in its shard; undefined: it was never written. */
  private async inShard(
    array: ArraySpec,
    outer: NonNullable<ArraySpec["outer"]>,
    file: number,
    size: number,
    at: readonly number[],
  ): Promise<[offset: number, length: number] | undefined> {
    const counts = outer.chunk.map((width, axis) => width / array.chunk[axis]!);
    let index = this.indexes.get(file);
    if (index === undefined) {
      // Rows go forward: those of a few shards beside each other are enough.
      if (this.indexes.size >= 256) this.indexes.clear();
      index = await this.readIndex(outer, counts, file, size).catch((error: unknown) => error as Error);
      this.indexes.set(file, index);
    }
    if (index instanceof Error) throw index;
    const place = at.reduce((sum, number, axis) => sum * counts[axis]! + (number % counts[axis]!), 0);
    return index.offset[place]! < 0 ? undefined : [index.offset[place]!, index.length[place]!];
  }

  private async readIndex(
    { codecs, atStart }: NonNullable<ArraySpec["outer"]>,
    counts: readonly number[],
    number: number,
    size: number,
  ): Promise<ShardIndex> {
    const length = indexBytes(volume(counts), codecs);
    // Before memory is taken for it: the counts may be damaged.
    if (length > size) checkSize({ length: size } as Uint8Array, length);
    const object = await this.shard.open(this.shard.beside[number - 1]!);
    try {
      const bytes = new Uint8Array(length);
      await object.readInto(bytes, atStart ? 0 : size - length);
      return parseIndex(bytes, codecs, size);
    } finally {
      await object.close();
    }
  }
}
