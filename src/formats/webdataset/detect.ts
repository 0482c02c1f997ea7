/**
 * Is it a tar archive, plain or gzip? By content: the checksum of the first header; an empty or damaged one by its name.
 *
 * @example
 * detect(head, "shard-000000.tar.gz"); // { encoding: "gzip" }
 */
import { inflateHead } from "../inflate-head.ts";
import type { Detection } from "../types.ts";
import { looksLikeTar } from "./tar.ts";

const NAME = /\.(tar|tgz|tar\.gz)$/i;

export function detect(head: Uint8Array, name: string): Detection | undefined {
  const encoding = encodingOf(head);
  if (NAME.test(name)) return { encoding };
  const begin = encoding === "gzip" ? inflateHead(head, "gzip") : head;
  return begin !== undefined && looksLikeTar(begin) ? { encoding } : undefined;
}

export function encodingOf(head: Uint8Array): "gzip" | "plain" {
  return head[0] === 0x1f && head[1] === 0x8b ? "gzip" : "plain";
}
