/**
 * Names of files that lie beside shards and are no data: documentation, descriptions, checksums, scripts.
 * Such a file is ignored (and listed in the index) when its content is of no format we read; any other file that is
 * of no format is an error, because a shard that was damaged or never downloaded must not vanish.
 */
import { basename, extname } from "node:path";

const SUFFIXES = new Set(
  (
    ".md .rst .txt .json .yaml .yml .toml .ini .cfg .xml .csv .tsv .html .htm .pdf .png .jpg .svg .py .sh .js .ts .ipynb .log " +
    ".sha1 .sha256 .sha512 .md5 .crc .sum .index .lock .model .pbtxt .license"
  ).split(" "),
);
const NAMES = new Set(
  "LICENSE LICENCE NOTICE README CHANGELOG AUTHORS CITATION MANIFEST Makefile Dockerfile _SUCCESS _metadata".split(" "),
);

/** Copies in progress and leftovers of writers, whatever is in them: never part of a data set. */
const UNFINISHED = new Set(".tmp .temp .part .partial .crdownload .swp .bak".split(" "));

/** Folders `_temporary` and `_tmp` (Spark, Hadoop and others write there first), and names that end like a copy in progress. */
export function isUnfinished(path: string): boolean {
  const folders = path.split("/").slice(0, -1);
  const name = basename(path);
  return (
    folders.some((folder) => folder === "_temporary" || folder === "_tmp") ||
    name.endsWith("~") ||
    UNFINISHED.has(extname(name).toLowerCase())
  );
}

export function isKnownNonData(path: string): boolean {
  const name = basename(path);
  return NAMES.has(name) || SUFFIXES.has(extname(name).toLowerCase());
}
