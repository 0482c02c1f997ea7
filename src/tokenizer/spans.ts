/**
 * Spans: parts of a text that are marked, followed through the pieces and words that the text is cut into.
 *
 * @example
 * const spans = new PieceSpans([[4, 9]], new Set());
 * spans.touches(0, 5); // true
 */

/** [from, to), rising. */
export type Spans = readonly (readonly [from: number, to: number])[];

export class PieceSpans {
  /** Where the next word begins. */
  at = 0;
  readonly literal: ReadonlySet<number>;
  private readonly spans: Spans;
  /** Spans before this one end before all that is asked for: places only rise. */
  private next = 0;

  constructor(spans: Spans, literal: ReadonlySet<number>) {
    this.spans = spans;
    this.literal = literal;
  }

  /** Those of [from, to), counted from its beginning; `moved`: a place in the piece as it is now. */
  piece(from: number, to: number, moved: (place: number) => number): PieceSpans {
    const local = this.spans
      .filter(([begin, end]) => begin < to && end > from)
      .map(([begin, end]) => [moved(Math.max(0, begin - from)), moved(Math.min(to, end) - from)] as const);
    const literal = [...this.literal]
      .filter((place) => place >= from && place < to)
      .map((place) => moved(place - from));
    return new PieceSpans(local, new Set(literal));
  }

  /** Does a span have a part of [from, to)? */
  touches(from: number, to: number): boolean {
    const { spans } = this;
    while (this.next < spans.length && spans[this.next]![1] <= from) this.next++;
    return this.next < spans.length && spans[this.next]![0] < to;
  }

  /** Does one span have all of [from, to), which one touches? */
  holds(from: number, to: number): boolean {
    const span = this.spans[this.next];
    return span !== undefined && span[0] <= from && to <= span[1];
  }
}
