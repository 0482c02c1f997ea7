/**
 * Judge: is a file of JSON under a name that is no data's (`info.json`) a shard all the same? JSON is also what data sets are
 * described in, so it counts as data only where no other format is in the set, and never under a name such as
 * `dataset_info.json` beside other files.
 *
 * @example
 * const judge = await judgeOf(found, storage);
 * const why = await judge("info.json"); // "JSON beside shards of tfrecord", undefined: it is as any other file
 */
import { basename } from "node:path";
import { AthanorError } from "../base/errors.ts";
import type { Storage } from "../storage/types.ts";
import type { Discovered } from "./discover.ts";
import { isKnownNonData } from "./non-data.ts";
import { findShard, openShard } from "./shard-scan.ts";

/** Descriptions that tools write beside their shards. */
const DESCRIPTIONS =
  /^(\.?index|manifest|meta(data)?|info|dataset(_infos?|_dict|_card)?|state|stats|statistics|config|schema|features|README|package|croissant|generation_config|tokenizer(_config)?|special_tokens_map|vocab)\.json$/i;
const JSON_FORMAT = "jsonl";

/** Why a file is passed over; undefined: nothing speaks against it but its content. */
export type Judge = (path: string) => Promise<string | undefined>;

/** `known`: the format of the set, where it is known. */
export async function judgeOf(
  { root, paths, beside }: Pick<Discovered, "root" | "paths" | "beside">,
  storage: Storage,
  known?: string,
): Promise<Judge> {
  const formatOf = async (path: string): Promise<string | undefined> => {
    try {
      const { format, shard } = await openShard(storage, root, await findShard(storage, root, path, beside.get(path)));
      await shard.object.close();
      return format.name;
    } catch (error) {
      // Whoever reads it tells what is wrong.
      if (error instanceof AthanorError) return undefined;
      throw error;
    }
  };
  let ofSet: Promise<string | undefined> | undefined;
  const certain = paths.find((path) => !isKnownNonData(path));
  return async (path) => {
    if (paths.length === 1 || !isKnownNonData(path) || (await formatOf(path)) !== JSON_FORMAT) return undefined;
    ofSet ??= known === undefined && certain !== undefined ? formatOf(certain) : Promise.resolve(known);
    const format = await ofSet;
    if (format !== undefined && format !== JSON_FORMAT) return `JSON beside shards of ${format}`;
    return DESCRIPTIONS.test(basename(path)) ? "JSON that describes a data set, by its name" : undefined;
  };
}
