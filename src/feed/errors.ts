/** Errors of the feed. */
import { defineError } from "../base/errors.ts";

/** The rows that the order needs at once do not fit the node's memory budget. */
export const MemoryBudget = defineError("ATH_MEMORY_BUDGET", 3);
/** The view asks for a column that the data does not have, or cannot be delivered as numbers. */
export const ColumnUnknown = defineError("ATH_COLUMN_UNKNOWN", 1);
/** A list is longer than `max_length` under `strict=True`. */
export const RowTooLong = defineError("ATH_ROW_TOO_LONG", 1);
