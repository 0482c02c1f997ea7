/**
 * Framed blocks: records that lie one behind the other in a shard, as blocks with restarts (design §4.2).
 *
 * Contract: block k holds the records that begin in [k · 4 MiB, (k + 1) · 4 MiB) of the shard (of its decompressed stream); a
 * block's segment is everything from its first record to the end of its last one.
 *
 * @example
 * const done = blocks.at(offset); // the block before, if this record begins the next one
 * decode(blocks.fields);
 * blocks.add(offset, offset + length, () => values);
 */
import type { Value } from "../base/json.ts";
import { RecordFields, type FieldKinds } from "./record-fields.ts";
import { BLOCK_BYTES, RESTART_EVERY, type ScannedBlock } from "./types.ts";

type Show = () => { readonly [field: string]: Value };

export class FramedBlocks {
  /** Columns of the block in work. */
  fields: RecordFields;
  /** Records of the blocks before. */
  private before = 0;
  private readonly kinds: FieldKinds;
  private readonly whole: boolean;
  private offsets: number[] = [];
  private shows: Show[] = [];
  private end = 0;

  /** `whole`: all of the shard is one block. */
  constructor(kinds: FieldKinds, whole = false) {
    this.kinds = kinds;
    this.whole = whole;
    this.fields = new RecordFields(kinds, undefined);
  }

  /** Number in the shard of the next record. */
  get record(): number {
    return this.before + this.offsets.length;
  }

  /** A record begins at `offset`: the block that it ends, if it does. */
  at(offset: number): ScannedBlock | undefined {
    const [first] = this.offsets;
    if (first === undefined || this.whole || Math.floor(first / BLOCK_BYTES) === Math.floor(offset / BLOCK_BYTES))
      return undefined;
    return this.finish();
  }

  /** The record that `fields` got is [begin, end) of the shard. */
  add(begin: number, end: number, show: Show): void {
    this.offsets.push(begin);
    this.shows.push(show);
    this.end = end;
  }

  /** The block in work; undefined if no record has begun. */
  finish(): ScannedBlock | undefined {
    const { offsets, shows, end, fields } = this;
    const [first] = offsets;
    if (first === undefined) return undefined;
    const restarts: number[] = [];
    for (let i = 0; i < offsets.length; i += RESTART_EVERY) restarts.push(offsets[i]! - first);
    this.before += offsets.length;
    this.offsets = [];
    this.shows = [];
    this.fields = new RecordFields(this.kinds, undefined);
    return {
      records: offsets.length,
      segments: [{ file: 0, offset: first, length: end - first, field: 0 }],
      restarts,
      columns: fields.finish(),
      offsets,
      record: (i) => shows[i]!(),
    };
  }
}
