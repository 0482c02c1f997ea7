/**
 * Lanes here: which lanes of a source the ranks of this node read from, found by dealing steps until every lane had its turn.
 */
import type { Order } from "../order/order.ts";
import type { SourceOrder } from "../order/source-order.ts";
import type { Steps } from "./audience.ts";
import type { LanesHere } from "./run-source.ts";

/** More lanes than anybody has: a look at so many steps takes a tenth of a second. */
const MOST_TURNS = 4096;

export interface NodeRanks {
  world: number;
  /** Ranks of this node. */
  local: readonly number[];
}

export class NodeLanes {
  private readonly order: Order;
  private readonly ranks: NodeRanks;
  private readonly step: number;
  /** Lanes of the spans that the first steps lie in, by their number of lanes and the source that has them to itself. */
  private readonly found: { source: number | undefined; lanes: Set<number> }[] = [];

  constructor(order: Order, steps: Steps, from: number, ranks: NodeRanks) {
    this.order = order;
    this.ranks = ranks;
    this.step = steps.size;
    const most = Math.max(...order.timeline.segments.map((segment) => segment.lanes));
    // Of steps that begin in every lane that they ever begin in. Fewer would leave lanes without room of their own.
    const turns = Math.min(most / greatestCommonDivisor(most, steps.size), MOST_TURNS);
    for (let k = 0, start = from; k < turns; k++, start = steps.after(start)) this.look(start);
    // The last step of an epoch that fills up is short, and dealt otherwise.
    if (order.last === "pad") this.look(steps.start(order.begin(order.epochOf(from) + 1) - 1));
  }

  /** Adds the lanes of the step that begins at `start`. */
  private look(start: number): void {
    const { world, local } = this.ranks;
    for (const rank of local) {
      for (const position of this.order.deal(start, this.step, world, rank).positions) this.add(position);
    }
  }

  of(source: SourceOrder): LanesHere {
    const { world, local } = this.ranks;
    const lanes = new Set<number>();
    for (const { source: own, lanes: some } of this.found) {
      if (own === undefined || own === source.number) for (const lane of some) lanes.add(lane % source.lanes);
    }
    return { lanes, atOnce: local.length === world ? source.lanes : this.atOnce(source, lanes.size) };
  }

  /**
   * Lanes whose rows this node holds at a time. Where a pass is not a whole number of steps, the ranks' lanes shift at its
   * end, and where a segment begins they may: then those of before and after are at work together.
   */
  private atOnce({ lanes }: SourceOrder, here: number): number {
    const { epochs, segments } = this.order.timeline;
    const known = here > 0 ? here : Math.ceil((lanes * this.ranks.local.length) / this.ranks.world);
    const whole = segments[0]!.sources.length > 1 || epochs.spans[0]!.length % this.step === 0;
    const steady = here > 0 && (epochs.last === "pad" || (segments.length === 1 && whole));
    return steady ? known : Math.min(lanes, 2 * known + 2);
  }

  private add(position: number): void {
    const { lane, source } = this.order.timeline.laneAt(position);
    let found = this.found.find((some) => some.source === source);
    if (found === undefined) {
      found = { source, lanes: new Set() };
      this.found.push(found);
    }
    found.lanes.add(lane);
  }
}

function greatestCommonDivisor(a: number, b: number): number {
  return b === 0 ? a : greatestCommonDivisor(b, a % b);
}
