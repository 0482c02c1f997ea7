/** Errors of the feed. */
import { defineError } from "../base/errors.ts";

/** The rows that the order needs at once do not fit the node's memory budget. */
export const MemoryBudget = defineError("ATH_MEMORY_BUDGET", 3);
/** The view asks for a column that the data does not have, or cannot be delivered as numbers. */
export const ColumnUnknown = defineError("ATH_COLUMN_UNKNOWN", 1);
/** A list is longer than `max_length` under `strict=True`. */
export const RowTooLong = defineError("ATH_ROW_TOO_LONG", 1);
/** More bad records than `corrupt_quota` allows. */
export const QuarantineQuota = defineError("ATH_QUARANTINE_QUOTA", 1);
/** A shard holds no record that could stand in for a bad one. */
export const NoGoodRecord = defineError("ATH_NO_GOOD_RECORD", 1);
/** The ledger of replaced records cannot be read or written. */
export const LedgerWrite = defineError("ATH_LEDGER_WRITE", 3);

const BAD_RECORD: ReadonlySet<string> = new Set([
  "ATH_RECORD_CRC",
  "ATH_RECORD_MALFORMED",
  "ATH_RECORD_TRUNCATED",
  "ATH_RECORD_TOO_LONG",
  "ATH_FEATURE_KIND",
  "ATH_VALUE_RANGE",
  "ATH_VALUE_MISSING",
  "ATH_TEXT_RUN_TOO_LONG",
]);

/** Faults of single records. */
export function isBadRecord(code: string): boolean {
  return BAD_RECORD.has(code);
}

/** Faults of bytes of a block: of single records, or of what holds several of them, such as a compressed page. */
export function isBadContent(code: string): boolean {
  return isBadRecord(code) || code === "ATH_STREAM_CORRUPT";
}
