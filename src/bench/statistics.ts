/**
 * Statistics of interleaved passes: median, least and greatest, and ratios formed inside a pass.
 *
 * Contract: neighbours on a shared machine move all contenders of one pass together (seen: ±40 %), so a ratio is
 * formed between numbers of the same pass, and the median is taken of the ratios, never a ratio of medians.
 */

export interface Spread {
  median: number;
  min: number;
  max: number;
}

/** Mean of the two middle values when their number is even. Throws on no values. */
export function median(values: readonly number[]): number {
  if (values.length === 0) throw new RangeError("median of no values");
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
}

export function spread(values: readonly number[]): Spread {
  return { median: median(values), min: Math.min(...values), max: Math.max(...values) };
}

/**
 * Pass by pass value[i] / base[i]; undefined without a pass that both have. A contender with fewer passes (the naive
 * one stops after 3) is compared in the passes it ran: passes are matched by their number.
 */
export function ratios(value: ReadonlyMap<number, number>, base: ReadonlyMap<number, number>): Spread | undefined {
  const quotients: number[] = [];
  for (const [pass, number] of value) {
    const divisor = base.get(pass);
    if (divisor !== undefined && divisor > 0) quotients.push(number / divisor);
  }
  return quotients.length === 0 ? undefined : spread(quotients);
}

/** The same of one figure of each pass. */
export function passRatios<P extends { pass: number }>(
  passes: readonly P[],
  base: readonly P[],
  figure: (pass: P) => number,
): Spread | undefined {
  const of = (list: readonly P[]) => new Map(list.map((each) => [each.pass, figure(each)]));
  return ratios(of(passes), of(base));
}
