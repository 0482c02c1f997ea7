/**
 * All formats, in the order in which they are asked whether a file is theirs.
 *
 * @example
 * const found = detectFormat(head, "train_000.tfrecord"); // { format, encoding } or undefined
 */
import { compression, inflateHead } from "./inflate-head.ts";
import { meantAs } from "./describe.ts";
import { NotFormat } from "./errors.ts";
import { hdf5 } from "./hdf5/format.ts";
import { jsonl } from "./jsonl/format.ts";
import { mds } from "./mds/format.ts";
import { megatron } from "./megatron/format.ts";
import { npy } from "./npy/format.ts";
import { parquet } from "./parquet/format.ts";
import { tfrecord } from "./tfrecord/format.ts";
import { webdataset } from "./webdataset/format.ts";
import { zarr } from "./zarr/format.ts";
import type { ColumnReader, Detection, Format } from "./types.ts";

// Zarr first: it is told by names, and its metadata may be an empty file. Megatron takes a `.bin` that nobody else does, and says
// that its `.idx` is missing: it comes last.
export const formats: readonly Format[] = [zarr, tfrecord, hdf5, parquet, npy, mds, webdataset, jsonl, megatron];

/** `head`: at least 512 bytes, or the whole file. `name`: path of the shard. `beside`: its other files. */
export function detectFormat(
  head: Uint8Array,
  name: string,
  beside: readonly string[] = [],
): ({ format: Format } & Detection) | undefined {
  const claims = formats.find((format) => format.claims?.(name, beside) === true);
  if (claims !== undefined) return { format: claims, encoding: "plain" };
  // An empty file is a TFRecord shard of no records, unless its name says that something else was to be there.
  for (const format of isEmpty(head) ? formats.toReversed() : formats) {
    const detection = format.detect(head, name);
    if (detection === undefined) continue;
    if (format === tfrecord && head.length === 0 && isNamedElse(name)) return undefined;
    return { format, ...detection };
  }
  return undefined;
}

/** Has the file the name of another format, or a suffix that TFRecord files do not have? `train-00003-of-00010` has none. */
function isNamedElse(name: string): boolean {
  if (/tfr/i.test(name)) return false;
  return meantAs(name) !== undefined || /\.[a-z][a-z0-9]*$/i.test(name);
}

/** A file of no bytes, or a whole compressed stream of none. */
function isEmpty(head: Uint8Array): boolean {
  if (head.length === 0) return true;
  const encoding = compression(head);
  return encoding !== undefined && inflateHead(head, encoding, true)?.length === 0;
}

/** Reads blocks of a format as typed columns. */
export function columnReader(name: string): ColumnReader {
  const format = formatOf(name);
  return format.kind === "columns" ? format : format.columns;
}

/** The same, once it can read: each format keeps what it has loaded; what failed to load is tried again by the next one who asks. */
export async function readyReader(name: string): Promise<ColumnReader> {
  const format = columnReader(name);
  await format.ready?.();
  return format;
}

/** The format of a name that an index holds. */
export function formatOf(name: string): Format {
  const found = formats.find((format) => format.name === name);
  if (found !== undefined) return found;
  const known = formats.map((format) => format.name).join(", ");
  throw new NotFormat(
    `unknown format ${JSON.stringify(name)}, expected one of ${known}`,
    {},
    "use the version of Athanor that made the index",
  );
}
