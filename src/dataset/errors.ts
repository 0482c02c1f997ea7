/** Errors of data sets and their index. Each code has a section in docs/reference/errors.md. */
import { defineError } from "../base/errors.ts";

export const NoShards = defineError("ATH_NO_SHARDS", 3);
export const SourceUnsupported = defineError("ATH_SOURCE_UNSUPPORTED", 2);
export const FormatConflict = defineError("ATH_FORMAT_CONFLICT", 1);
export const SchemaConflict = defineError("ATH_SCHEMA_CONFLICT", 1);
/** The view asks for samples that the data's format does not have. */
export const SampleRuleUnknown = defineError("ATH_SAMPLE_RULE", 2);
export const IndexStale = defineError("ATH_INDEX_STALE", 1);
export const IndexMissing = defineError("ATH_INDEX_MISSING", 1);
export const IndexCorrupt = defineError("ATH_INDEX_CORRUPT", 1);
/** A view needs counts of tokens that nobody has made. */
export const ViewMissing = defineError("ATH_VIEW_MISSING", 1);
export const IndexReadOnly = defineError("ATH_INDEX_READONLY", 3);
export const IndexWrite = defineError("ATH_INDEX_WRITE", 3);
export const StateWrite = defineError("ATH_STATE_WRITE", 3);
export const VerifyMismatch = defineError("ATH_VERIFY_MISMATCH", 1);

/** The line to run, with the path as the user gave it. */
export function indexCommand(source: string, indexDir: string | undefined, rebuild = false): string {
  const dir = indexDir === undefined ? "" : ` --index-dir ${indexDir}`;
  return `run \`athanor index ${source}${dir}${rebuild ? " --rebuild" : ""}\``;
}
