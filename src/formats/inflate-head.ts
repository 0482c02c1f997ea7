/**
 * The head of a gzip or zlib file, inflated as far as it goes: to tell what is inside.
 *
 * @example
 * const encoding = compression(head);
 * const inside = encoding === undefined ? undefined : inflateHead(head, encoding);
 */
import { constants, gunzipSync, inflateRawSync, inflateSync } from "node:zlib";

/** By the first two bytes. */
export function compression(head: Uint8Array): "gzip" | "zlib" | undefined {
  const [a, b] = head;
  if (a === undefined || b === undefined) return undefined;
  if (a === 0x1f && b === 0x8b) return "gzip";
  // RFC 1950: deflate, window ≤ 32 KiB, no dictionary, check bits.
  return (a & 0x0f) === 8 && a >> 4 <= 7 && (b & 0x20) === 0 && (a * 256 + b) % 31 === 0 ? "zlib" : undefined;
}

/** What the head of a compressed file inflates to. `whole`: undefined also if the head ends inside the stream, as it may otherwise. */
export function inflateHead(head: Uint8Array, encoding: "gzip" | "zlib", whole = false): Uint8Array | undefined {
  const options = {
    finishFlush: whole ? constants.Z_FINISH : constants.Z_SYNC_FLUSH,
    maxOutputLength: 64 * 1024 * 1024,
  };
  try {
    return encoding === "gzip" ? gunzipSync(head, options) : inflateSync(head, options);
  } catch {
    return whole ? undefined : firstMember(head, encoding, options);
  }
}

/** What stands behind the first stream, or in its checksum, may be wrong: its content is there all the same. */
function firstMember(head: Uint8Array, encoding: "gzip" | "zlib", options: object): Uint8Array | undefined {
  try {
    const content = inflateRawSync(head.subarray(encoding === "gzip" ? gzipHeader(head) : 2), options);
    return content.length > 0 ? content : undefined;
  } catch {
    return undefined;
  }
}

/** Bytes of a gzip header (RFC 1952 §2.3). */
function gzipHeader(head: Uint8Array): number {
  const flags = head[3] ?? 0;
  let at = 10;
  if ((flags & 4) !== 0) at += 2 + (head[at] ?? 0) + 256 * (head[at + 1] ?? 0);
  for (const text of [8, 16]) if ((flags & text) !== 0) at = head.indexOf(0, at) + 1 || head.length;
  return (flags & 2) !== 0 ? at + 2 : at;
}
