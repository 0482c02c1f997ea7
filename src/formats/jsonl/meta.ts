/** What columns() needs to know of a shard beyond its table, and what the schema is told at the end of a scan. */
import type { Encoding, KeptKind, ScanEnd, ShardMeta } from "../types.ts";
import type { Layout } from "./decode.ts";
import type { Keys } from "./keys.ts";

export interface JsonMeta extends ShardMeta {
  readonly layout: Layout;
  /** Kinds of the shard's columns: another shard can have integers where this one has fractions. */
  readonly kinds: { readonly [field: string]: KeptKind };
}

export function metaOf(layout: Layout, keys: Keys, encoding: Encoding, crc32c: number): ScanEnd {
  const kinds: [string, KeptKind][] = [];
  const notColumns: [string, string][] = [];
  const empty = new Map<string, number>();
  for (const { name, kind, json, unfit, empties } of keys.fields.values()) {
    if (unfit !== undefined) notColumns.push([name, unfit]);
    else if (kind !== undefined) {
      kinds.push([name, json ? "json" : kind]);
      if (empties > 0) empty.set(name, empties);
    }
  }
  const meta: JsonMeta = { layout, kinds: Object.fromEntries(kinds) };
  return { encoding, crc32c, meta, notColumns: Object.fromEntries(notColumns), empty };
}
