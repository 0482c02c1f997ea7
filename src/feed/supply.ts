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

/** Rows that are read front to back. */
export interface Strand {
  /** Position of the next row to read; infinite when there is none. */
  readonly frontier: number;
  /** Starts one read if there is one to start and room for it. Returns whether it did. */
  advance(): boolean;
}

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
  /** What reads ahead by itself; the one furthest behind has its turn first. */
  strands(): readonly Strand[];
  close(): void;
}
