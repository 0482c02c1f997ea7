/** Mix supply: each position from the supply of its source. */
import type { Timeline } from "../order/timeline.ts";
import type { Strand, Supply } from "./supply.ts";

export class MixSupply implements Supply {
  private readonly timeline: Timeline;
  /** By number of the source. */
  private readonly supplies: readonly (Supply | undefined)[];

  constructor(timeline: Timeline, supplies: readonly (Supply | undefined)[]) {
    this.timeline = timeline;
    this.supplies = supplies;
  }

  find(position: number): number {
    return this.of(position).find(position);
  }

  take(position: number, row: number): void {
    this.of(position).take(position, row);
  }

  prepare(positions: Float64Array): void {
    this.each(positions, (supply, own) => supply.prepare(own));
  }

  starving(positions: Float64Array): void {
    this.each(positions, (supply, own) => supply.starving(own));
  }

  sweep(): void {
    for (const supply of this.supplies) supply?.sweep();
  }

  strands(): readonly Strand[] {
    return this.supplies.flatMap((supply) => supply?.strands() ?? []);
  }

  close(): void {
    for (const supply of this.supplies) supply?.close();
  }

  private of(position: number): Supply {
    const { source } = this.timeline.locate(position);
    const supply = this.supplies[source];
    if (supply === undefined)
      throw new Error(`position ${position} is of source ${source}, which this run does not have`);
    return supply;
  }

  private each(positions: Float64Array, ask: (supply: Supply, own: Float64Array) => void): void {
    for (const supply of this.supplies) {
      if (supply === undefined) continue;
      const own = positions.filter((position) => this.of(position) === supply);
      if (own.length > 0) ask(supply, own);
    }
  }
}
