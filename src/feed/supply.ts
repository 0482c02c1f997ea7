/** Supply: where the rows of positions come from. One supply serves sessions that move through the order together. */

/** `find` answers with an address, or with one of these. */
export const ROW_COMING = 0;
/** Its block is being decoded right now. */
export const ROW_SCHEDULED = 1;
/** Copied out already. */
export const ROW_TAKEN = 2;
/** Nobody here wanted it when its block was decoded. */
export const ROW_SKIPPED = 3;
/** Addresses of rows are above this. */
export const ROW_FIRST = 64;

export interface Supply {
  /** Address of the position's row, or a `ROW_…` state. */
  find(position: number): number;
  /** The row was copied out and may be reused. */
  take(position: number, row: number): void;
  /** Positions that will be asked for soon (used where nothing is read ahead by itself). */
  prepare(positions: Float64Array): void;
  /** A session waits for these positions and has nothing else to do. */
  starving(positions: Float64Array): void;
  /** A consumer left or moved: rows that nobody wants are freed. */
  sweep(): void;
  /** Reads and decodes what there is room for. */
  pump(): void;
  close(): void;
}
