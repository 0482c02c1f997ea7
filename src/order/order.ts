/**
 * Order: the endless sequence of samples of a run (design §4.4). Pure: the same views, seed and segments give the same
 * sequence on every node, at any world size, and seeking is arithmetic.
 *
 * Numbers: a *position* counts samples since the run began; it lies in a *pass* of a *source*, in a row of one of its lanes.
 *
 * @example
 * const resolved = resolveOrder(view, { seed: 1234n, globalBatch: 256 });
 * const order = Order.single(view, await extents(index, resolved.extentBlocks), resolved);
 * order.locate(1_000_000);                      // { source: 0, pass, lane, row, sample }
 * order.deal(0, 64, 2, 1).positions;            // what rank 1 of 2 gets in the first step of 64
 */
import { deal, owner, type Dealt } from "./deal.ts";
import type { Epochs } from "./epochs.ts";
import { OrderOption } from "./errors.ts";
import { SourceOrder } from "./source-order.ts";
import { WEIGHT_SUM } from "./schedule.ts";
import { Timeline } from "./timeline.ts";
import type { ExtentTable, LastRule, Located, OrderView, ResolvedOrder, ResolvedSource } from "./types.ts";

/** What the order of a source is made of. */
export interface OrderPart {
  /** Number of the source. */
  number: number;
  view: OrderView;
  extents: ExtentTable;
  resolved: ResolvedSource;
}

export class Order {
  readonly timeline: Timeline;
  readonly epochs: Epochs;
  readonly last: LastRule;
  /** By number; undefined: a source that nothing is served from any more. */
  readonly sources: readonly (SourceOrder | undefined)[];

  constructor(timeline: Timeline, parts: readonly OrderPart[]) {
    this.timeline = timeline;
    this.epochs = timeline.epochs;
    this.last = timeline.epochs.last;
    const sources: (SourceOrder | undefined)[] = [];
    for (const { number, view, extents, resolved } of parts) {
      sources[number] = new SourceOrder(view, extents, resolved, number, timeline);
    }
    this.sources = sources;
  }

  /** One source in one segment. */
  static single(view: OrderView, extents: ExtentTable, resolved: ResolvedOrder): Order {
    const { lanes, last, globalBatch, from } = resolved;
    const segment = { from, sources: [0], weights: [WEIGHT_SUM], lanes, last, globalBatch };
    const timeline = new Timeline(["data"], [{ samples: view.samples, lanes }], [segment]);
    return new Order(timeline, [{ number: 0, view, extents, resolved }]);
  }

  /** Throws ATH_ORDER_OPTION for a source that is not there. */
  source(number: number): SourceOrder {
    const found = this.sources[number];
    if (found === undefined) throw new OrderOption(`source ${number} is no part of this order`);
    return found;
  }

  /** Where a position lies, and its sample in file order. */
  locate(position: number): Located & { sample: number } {
    const located = this.timeline.locate(position);
    const { source, pass, lane, row } = located;
    return { ...located, sample: this.source(source).sampleOf(pass, lane, row) };
  }

  /** Sample number, in file order of its source. */
  sampleAt(position: number): number {
    return this.locate(position).sample;
  }

  /** The loader's epoch of a position: the greatest e with begin(e) ≤ position. */
  epochOf(position: number): number {
    return this.epochs.epochOf(position);
  }

  /** B(e). */
  begin(epoch: number): number {
    return this.epochs.begin(epoch);
  }

  /** Steps of `step` positions in the loader's epoch e. */
  steps(epoch: number, step: number): number {
    return this.epochs.steps(epoch, step);
  }

  /** End of the step that begins at `start`: `start + step`, or the epoch's end with `pad`. */
  stepEnd(start: number, step: number): number {
    return this.epochs.stepEnd(start, step);
  }

  /** Positions of a rank in one step, in delivery order. */
  deal(stepStart: number, step: number, world: number, rank: number): Dealt {
    return deal(this.timeline.spans(stepStart, this.stepEnd(stepStart, step)), step, world, rank);
  }

  /** The rank that `deal` gives a position to. */
  owner(position: number, stepStart: number, step: number, world: number): number {
    return owner(this.timeline.spans(stepStart, this.stepEnd(stepStart, step)), position, step, world);
  }
}
