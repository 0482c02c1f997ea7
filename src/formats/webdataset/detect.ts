/**
 * Is it a tar archive, plain or gzip? By content: the checksum of the first header; an empty or damaged one by its name.
 *
 * @example
 * detect(head, "shard-000000.tar.gz"); // { encoding: "gzip" }
 */
import { constants, gunzipSync } from "node:zlib";
import type { Detection } from "../types.ts";
import { looksLikeTar } from "./tar.ts";

const NAME = /\.(tar|tgz|tar\.gz)$/i;

export function detect(head: Uint8Array, name: string): Detection | undefined {
  const encoding = encodingOf(head);
  if (NAME.test(name)) return { encoding };
  const begin = encoding === "gzip" ? inflated(head) : head;
  return begin !== undefined && looksLikeTar(begin) ? { encoding } : undefined;
}

export function encodingOf(head: Uint8Array): "gzip" | "plain" {
  return head[0] === 0x1f && head[1] === 0x8b ? "gzip" : "plain";
}

function inflated(head: Uint8Array): Uint8Array | undefined {
  try {
    return gunzipSync(head, { finishFlush: constants.Z_SYNC_FLUSH, maxOutputLength: 16 * 1024 * 1024 });
  } catch {
    return undefined;
  }
}
