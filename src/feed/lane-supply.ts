/**
 * Lane supply: rows of a source in a `window` or `none` order. Each lane that a local rank reads from has its windows here.
 */
import type { Audience } from "./audience.ts";
import type { EarlyRows } from "./early.ts";
import { Lane } from "./lane.ts";
import type { LaneParts } from "./lane.ts";
import { ROW_COMING, ROW_FIRST } from "./supply.ts";
import type { Strand, Supply } from "./supply.ts";
import type { SourceOrder } from "../order/source-order.ts";

export class LaneSupply implements Supply {
  private readonly lanes: (Lane | undefined)[];
  private readonly order: SourceOrder;
  private readonly early: EarlyRows;
  private readonly audience: Audience;
  private readonly parts: LaneParts;
  private readonly from: number;
  private active: Lane[] = [];

  /** `lanes`: those that local ranks read from; others are added when a position in them is asked for. */
  constructor(from: number, lanes: Iterable<number>, parts: LaneParts) {
    this.order = parts.order;
    this.early = parts.early;
    this.audience = parts.audience;
    this.parts = parts;
    this.from = from;
    this.lanes = Array.from({ length: this.order.lanes }, () => undefined);
    for (const lane of lanes) if (this.order.rowAt(lane, from) !== undefined) this.lane(lane);
  }

  find(position: number): number {
    const { pass, lane, row } = this.order.locate(position);
    const found = this.lane(lane).find(pass, row);
    if (found >= ROW_FIRST || this.early.size === 0) return found;
    return this.early.get(position) ?? found;
  }

  take(position: number, row: number): void {
    if (this.early.size > 0 && this.early.get(position) === row) return this.early.take(position);
    const { pass, lane, row: laneRow } = this.order.locate(position);
    this.lane(lane).take(pass, laneRow, row);
  }

  prepare(): void {}

  /** While a lane fills for the first time, the rows of the waiting batch are fetched singly. */
  starving(positions: Float64Array): void {
    const rows = this.active.reduce((sum, lane) => sum + lane.toFill, 0);
    if (!this.early.isWorth(rows)) return;
    const single: number[] = [];
    for (const position of positions) {
      const { lane } = this.order.locate(position);
      if (this.lane(lane).opening && this.find(position) === ROW_COMING) single.push(position);
    }
    this.early.fetch(single);
  }

  sweep(): void {
    for (const lane of this.active) lane.sweep();
    this.early.sweep((position) => this.audience.wants(position));
  }

  strands(): readonly Strand[] {
    return this.active;
  }

  close(): void {
    this.early.close();
    for (const lane of this.active) lane.close();
  }

  private lane(number: number): Lane {
    let lane = this.lanes[number];
    if (lane === undefined) {
      const first = this.order.rowAt(number, this.from);
      if (first === undefined) throw new Error(`lane ${number} has no row at or after position ${this.from}`);
      lane = new Lane(number, first.pass, first.row, this.parts);
      this.lanes[number] = lane;
      this.active.push(lane);
    }
    return lane;
  }
}
