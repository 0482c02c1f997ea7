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
