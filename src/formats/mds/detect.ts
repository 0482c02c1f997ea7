/**
 * Is it an MDS shard? MDS has no magic number: by name, or by a header whose description of the columns lies in the first bytes.
 *
 * @example
 * detect(head, "shard.00000.mds.zstd"); // { encoding: "plain" }: the whole file is one block
 */
import type { Detection } from "../types.ts";
import { packingOf } from "./packed.ts";
import { u32 } from "./sample.ts";

const NAME = /\.mds(\.(gz|zstd|zst|br|snappy|bz2))?$/;

export function detect(head: Uint8Array, name: string): Detection | undefined {
  if (NAME.test(name)) return { encoding: packingOf(head, name) === "gzip" ? "gzip" : "plain" };
  if (head.length < 16) return undefined;
  const table = 4 + 4 * (u32(head, 0) + 1);
  const first = u32(head, 4);
  if (table >= first || first > head.length) return undefined;
  const config = new TextDecoder("latin1").decode(head.subarray(table, first));
  return /^\{.*"column_encodings".*\}$/s.test(config) ? { encoding: "plain" } : undefined;
}
