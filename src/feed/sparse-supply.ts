/**
 * Sparse supply: rows fetched singly through restart offsets, some batches ahead: `global` orders over views that do
 * not fit memory, and random access (`DeepSeekDataset`).
 */
import type { EarlyRows } from "./early.ts";
import { ROW_COMING } from "./supply.ts";
import type { Supply } from "./supply.ts";

export class SparseSupply implements Supply {
  private readonly rows: EarlyRows;
  private readonly wants: (position: number) => boolean;

  constructor(rows: EarlyRows, wants: (position: number) => boolean) {
    this.rows = rows;
    this.wants = wants;
  }

  find(position: number): number {
    return this.rows.get(position) ?? ROW_COMING;
  }

  take(position: number): void {
    this.rows.take(position);
  }

  prepare(positions: Float64Array): void {
    this.rows.fetch(positions);
  }

  starving(): void {}

  sweep(): void {
    this.rows.sweep(this.wants);
  }

  strands(): [] {
    return [];
  }

  close(): void {
    this.rows.close();
  }
}
