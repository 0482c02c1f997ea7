/**
 * What is wrong with a compressed shard in which something bad was found: a bit that flips in the compressed bytes mostly still
 * decompresses, to other records. The stream's own checksum tells that from a shard that was written badly.
 *
 * @example
 * catch (error) { throw await blameStream(object, path, error, kernels); }
 */
import { AthanorError } from "../base/errors.ts";
import { StreamCorrupt } from "../formats/errors.ts";
import { openSource } from "../formats/jsonl/source.ts";
import { compression } from "../formats/inflate-head.ts";
import { detectFormat } from "../formats/registry.ts";
import { isStream } from "../formats/types.ts";
import type { Kernels } from "../kernels/kernels.ts";
import type { ReadableObject } from "../storage/types.ts";

/** Faults of content. */
const CONTENT = new Set(
  [
    "RECORD_TRUNCATED",
    "RECORD_CRC",
    "RECORD_MALFORMED",
    "RECORD_TOO_LONG",
    "VALUE_RANGE",
    "FEATURE_KIND",
    "NOT_FORMAT",
  ].map((name) => `ATH_${name}`),
);
/** Stored bytes that are read once more for a better message: some 20 s. */
const MOST_BYTES = 2 ** 30;
/** And what they may become: zeros are 1000 times as many. */
const MOST_DECOMPRESSED = 2 ** 32;
const HEAD_BYTES = 4096;

/**
 * ATH_STREAM_CORRUPT where the checksum of the stream says that it is damaged; else, and where that is not known after `most`
 * decompressed bytes, the error as it is.
 */
export async function blameStream(
  object: ReadableObject,
  path: string,
  error: unknown,
  kernels: Kernels,
  most = MOST_DECOMPRESSED,
): Promise<unknown> {
  if (!(error instanceof AthanorError) || !CONTENT.has(error.code) || object.size > MOST_BYTES) return error;
  const head = new Uint8Array(Math.min(HEAD_BYTES, object.size));
  await object.readInto(head, 0);
  // Of no format where its first bytes are damaged, and gzip all the same.
  const encoding = detectFormat(head, path)?.encoding ?? (compression(head) === "gzip" ? "gzip" : "plain");
  if (!isStream(encoding)) return error;
  const source = openSource(object, encoding, kernels);
  try {
    let left = most;
    for (let bytes = await source.read(); bytes !== undefined && left > 0; bytes = await source.read())
      left -= bytes.length;
    return error;
  } catch (fault) {
    if (!(fault instanceof StreamCorrupt)) return error;
    const { file, byteOffset } = fault.where;
    const record = error.where.record === undefined ? "" : `record ${error.where.record}: `;
    return new StreamCorrupt(
      `${fault.what}; what it decompresses to is wrong from here on: ${record}${error.what}`,
      { ...(file === undefined ? {} : { file }), ...(byteOffset === undefined ? {} : { byteOffset }) },
      fault.remedy,
      error,
    );
  } finally {
    source.close();
  }
}
