/**
 * Lane supply: rows for `window` and `none` orders. Each lane that a local rank reads from has its windows here;
 * the lane furthest behind reads first.
 */
import type { Audience } from "./audience.ts";
import type { EarlyRows } from "./early.ts";
import { Lane } from "./lane.ts";
import type { LaneParts } from "./lane.ts";
import { ROW_COMING, ROW_FIRST } from "./supply.ts";
import type { Supply } from "./supply.ts";
import type { Order } from "../order/order.ts";

export class LaneSupply implements Supply {
  private readonly lanes: (Lane | undefined)[];
  private readonly order: Order;
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
    for (const lane of lanes) this.lane(lane);
  }

  find(position: number): number {
    const { pass, place } = this.order.epochs.split(position);
    const lane = place % this.order.lanes;
    const found = this.lane(lane).find(pass, (place - lane) / this.order.lanes);
    if (found >= ROW_FIRST || this.early.size === 0) return found;
    return this.early.get(position) ?? found;
  }

  take(position: number, row: number): void {
    if (this.early.size > 0 && this.early.get(position) === row) return this.early.take(position);
    const { pass, place } = this.order.epochs.split(position);
    const lane = place % this.order.lanes;
    this.lane(lane).take(pass, (place - lane) / this.order.lanes, row);
  }

  prepare(): void {}

  /** While a lane fills for the first time, the rows of the waiting batch are fetched singly. */
  starving(positions: Float64Array): void {
    const rows = this.active.reduce((sum, lane) => sum + lane.toFill, 0);
    if (!this.early.isWorth(rows)) return;
    const single: number[] = [];
    for (const position of positions) {
      const { place } = this.order.epochs.split(position);
      if (this.lane(place % this.order.lanes).opening && this.find(position) === ROW_COMING) single.push(position);
    }
    this.early.fetch(single);
  }

  sweep(): void {
    for (const lane of this.active) lane.sweep();
    this.early.sweep((position) => this.audience.wants(position));
  }

  pump(): void {
    for (;;) {
      const byNeed = this.active.toSorted((a, b) => a.frontier - b.frontier);
      if (!byNeed.some((lane) => lane.advance())) return;
    }
  }

  close(): void {
    this.early.close();
    for (const lane of this.active) lane.close();
  }

  private lane(number: number): Lane {
    let lane = this.lanes[number];
    if (lane === undefined) {
      const { pass, place } = this.order.epochs.split(this.from);
      const row = Math.max(0, Math.ceil((place - number) / this.order.lanes));
      const beyond = row >= this.order.laneRows(number);
      lane = new Lane(number, beyond ? pass + 1 : pass, beyond ? 0 : row, this.parts);
      this.lanes[number] = lane;
      this.active.push(lane);
    }
    return lane;
  }
}
