/**
 * How long counting will take, before it begins: of the text that is in the shards, not of what they take when they are compressed.
 *
 * @example
 * const text = await textBytes(index, [0, 1], ["text"]);
 * countSeconds(text, 8, false);
 */
import { formatOf } from "../formats/registry.ts";
import type { DatasetIndex } from "../dataset/types.ts";

/** Bytes that one worker counts in a second: of text (docs/guides/text.md; words that it has not seen yet), and of conversations, which are rendered first. */
const TEXT_RATE = 8e6;
const CHAT_RATE = 1.5e6;
/** Until the workers have the tokenizer's tables. */
const START_SECONDS = 1;

/** Bytes of `fields` in the shards; where the index does not know (TFRecord), of their records. */
export async function textBytes(
  index: DatasetIndex,
  shards: readonly number[],
  fields: readonly string[],
): Promise<number> {
  if (formatOf(index.format).kind === "columns") {
    const stored = shards.reduce((sum, shard) => sum + index.shards[shard]!.size, 0);
    const all = index.schema.fields.reduce((sum, { name, values }) => sum + (fields.includes(name) ? values : 0), 0);
    return index.totals.bytes === 0 ? 0 : all * (stored / index.totals.bytes);
  }
  let bytes = 0;
  for (const shard of shards) {
    // Of a compressed shard segments count the bytes that it decompresses to.
    const { segmentLength } = (await index.shardTable(shard)).table;
    bytes += segmentLength.reduce((sum, length) => sum + length, 0);
  }
  return bytes;
}

export function countSeconds(bytes: number, workers: number, chat: boolean): number {
  return START_SECONDS + bytes / ((chat ? CHAT_RATE : TEXT_RATE) * workers);
}
