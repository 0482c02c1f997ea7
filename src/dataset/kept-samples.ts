/**
 * Samples of blocks that were looked up lately: lanes, single rows and `state verify` ask for a block more than once.
 *
 * @example
 * const samples = await kept.get("0 12", () => samplesOf(0, 12));
 */
import type { BlockSamples } from "../formats/types.ts";

/** Samples of all blocks that are kept: 16 bytes each, and 12 a piece. */
const KEPT_SAMPLES = 1 << 19;

export class KeptSamples {
  private readonly blocks = new Map<string, Promise<BlockSamples>>();
  /** Samples of those of `blocks` that have come. */
  private readonly lengths = new Map<string, number>();
  private kept = 0;

  get(key: string, make: () => Promise<BlockSamples>): Promise<BlockSamples> {
    const known = this.blocks.get(key);
    if (known !== undefined) return known;
    const samples = make();
    this.blocks.set(key, samples);
    samples.then(
      ({ length, pieces }) => this.keep(key, length.length + (pieces?.counts.length ?? 0)),
      // A failed read must not poison later ones.
      () => this.blocks.delete(key),
    );
    return samples;
  }

  /** Forgets the blocks that came first. */
  private keep(key: string, samples: number): void {
    this.lengths.set(key, samples);
    this.kept += samples;
    for (const [first, length] of this.lengths) {
      if (this.kept <= KEPT_SAMPLES || first === key) return;
      this.lengths.delete(first);
      this.blocks.delete(first);
      this.kept -= length;
    }
  }
}
