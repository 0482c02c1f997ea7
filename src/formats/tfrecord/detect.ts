/**
 * Is it TFRecord, and how is it compressed? By content, never by name.
 *
 * Contract: a plain shard begins with a length whose CRC fits; gzip and zlib shards do so once inflated. A file of 0 bytes
 * is a valid shard of 0 records.
 *
 * @example
 * detect(head)?.encoding; // "plain" | "gzip" | "zlib"
 */
import { compression, inflateHead } from "../inflate-head.ts";
import type { Detection } from "../types.ts";

export function detect(head: Uint8Array): Detection | undefined {
  if (head.length === 0) return { encoding: "plain" };
  if (beginsWithFrame(head)) return { encoding: "plain" };
  const encoding = compression(head);
  if (encoding === undefined) return undefined;
  const inflated = inflateHead(head, encoding);
  if (inflated === undefined) return undefined;
  if (beginsWithFrame(inflated)) return { encoding };
  // Too little came out to tell. A whole stream of 0 bytes is a shard of 0 records; one that is cut this early is taken
  // too, since its reader names the cut.
  if (inflated.length >= 12 || (inflated.length > 0 && inflateHead(head, encoding, true) !== undefined))
    return undefined;
  return { encoding };
}

function beginsWithFrame(head: Uint8Array): boolean {
  if (head.length < 12) return false;
  const stored = new DataView(head.buffer, head.byteOffset, head.length).getUint32(8, true);
  let c = ~0;
  for (let i = 0; i < 8; i++) {
    c ^= head[i]!;
    for (let bit = 0; bit < 8; bit++) c = c & 1 ? (c >>> 1) ^ 0x82f63b78 : c >>> 1;
  }
  c = ~c;
  return (((c >>> 15) | (c << 17)) + 0xa282ead8) >>> 0 === stored;
}
