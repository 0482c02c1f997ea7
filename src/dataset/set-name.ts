/**
 * What a data set is called in messages: its one file, or its folder.
 *
 * @example
 * nameOf(index); // "/d/a.jsonl" of a set of that file, "/d" of a set of several
 */
import { join } from "node:path";
import type { DatasetIndex } from "./types.ts";

export function nameOf({ root, shards }: Pick<DatasetIndex, "root" | "shards">): string {
  const [only] = shards;
  return only !== undefined && shards.length === 1 ? join(root, only.path) : root;
}
