/**
 * Largest block: how many bytes of each field the largest block of a set holds, so that the feed knows what one read must have room
 * for without a look at all block tables.
 *
 * @example
 * const largest = new LargestBlock();
 * largest.add(table, meta);
 * largestBlock(largest.found, new Set(["input_ids"])); // bytes
 */
import type { BlockTable, ShardMeta } from "../formats/types.ts";

/** Bytes by field; those that every view reads under "". */
export type BytesByField = { readonly [field: string]: number };

/** Pieces of a read begin at multiples of it. */
const ALIGNED = 64;

export class LargestBlock {
  private readonly most = new Map<string, number>();

  add({ blocks, segmentStart, segmentField, segmentLength }: BlockTable, meta: ShardMeta | undefined): void {
    const names = ["", ...(meta?.fields ?? [])];
    const own = new Float64Array(names.length);
    for (let block = 0; block < blocks; block++) {
      own.fill(0);
      for (let s = segmentStart[block]!; s < segmentStart[block + 1]!; s++) {
        own[segmentField[s]!]! += Math.ceil(segmentLength[s]! / ALIGNED) * ALIGNED;
      }
      for (const [field, bytes] of own.entries()) {
        if (bytes > (this.most.get(names[field]!) ?? 0)) this.most.set(names[field]!, bytes);
      }
    }
  }

  get found(): BytesByField {
    return Object.fromEntries(this.most);
  }
}

/** Stored bytes (of a stream decompressed ones) that no block passes in a view of these fields. */
export function largestBlock(found: BytesByField, fields: ReadonlySet<string>): number {
  return Object.entries(found).reduce(
    (sum, [field, bytes]) => sum + (field === "" || fields.has(field) ? bytes : 0),
    0,
  );
}
