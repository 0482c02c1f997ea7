/**
 * Fingerprints (design §4.3): what tells two data sets, and two views of one, apart. 32 hex digits: the first half
 * of a SHA-256.
 *
 * Data: over the lines `path \0 size \0 records \0 crc32c \n`, UTF-8, numbers in decimal, in byte order of the
 * paths. No mtime: a copy has the same fingerprint.
 * View: over `data fingerprint \0 canonical JSON \n` (RFC 8785) of the members of `ViewSpec`.
 *
 * @example
 * viewFingerprint(index.fingerprint, { columns: null, max_length: 512, sample_rule: "record", tokenizer: null });
 */
import { createHash } from "node:crypto";
import { canonicalJson } from "../base/json.ts";
import type { ShardRow } from "./types.ts";

/** What fixes how many samples there are and what is in them. */
export type ViewSpec = {
  /** Delivered columns in order; null: all of them. */
  columns: readonly string[] | null;
  max_length: number;
  /** How records become samples; "record": one sample a record. */
  sample_rule: string;
  /** Hash of the tokenizer, null for data that holds token ids. */
  tokenizer: string | null;
};

/** `shards` in byte order of their paths. */
export function dataFingerprint(shards: readonly Pick<ShardRow, "path" | "size" | "records" | "crc32c">[]): string {
  const hash = createHash("sha256");
  for (const { path, size, records, crc32c } of shards) hash.update(`${path}\0${size}\0${records}\0${crc32c}\n`);
  return hash.digest("hex").slice(0, 32);
}

export function viewFingerprint(data: string, view: ViewSpec): string {
  return createHash("sha256")
    .update(`${data}\0${canonicalJson(view)}\n`)
    .digest("hex")
    .slice(0, 32);
}
