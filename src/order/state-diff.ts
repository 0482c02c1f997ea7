/**
 * State diff: what two states differ in, and whether the second may be loaded by the job that wrote the first.
 *
 * @example
 * const { differences, verdict } = compareStates(a, b); // verdict: "same" | "moved" | "reordered" | "refused"
 */
import { progressOf } from "./state.ts";
import type { OrderState } from "./types.ts";

export interface Difference {
  what: string;
  a: string;
  b: string;
  /** Such a state is refused by the other's job (ATH_STATE_MISMATCH). */
  refused: boolean;
}

/**
 * same: nothing differs. moved: the same sequence at another position. reordered: it is loaded, and the job goes on in
 * another order, because what the state's segments hold wins over the loader's arguments. refused: another view, seed or
 * optimizer batch.
 */
export type Verdict = "same" | "moved" | "reordered" | "refused";

export interface StateDiff {
  differences: Difference[];
  verdict: Verdict;
  /** Samples from the position of A to that of B. */
  ahead: number;
}

type Segment = OrderState["segments"][number];

export function compareStates(a: OrderState, b: OrderState): StateDiff {
  const differences: Difference[] = [];
  const compare = (what: string, ofA: string, ofB: string, refused = false): void => {
    if (ofA !== ofB) differences.push({ what, a: ofA, b: ofB, refused });
  };
  compare("seed", a.seed, b.seed, true);
  compare("number of sources", String(a.sources.length), String(b.sources.length), true);
  for (const [i, source] of a.sources.entries()) {
    const other = b.sources[i];
    if (other === undefined) break;
    const name = (what: string): string => (a.sources.length === 1 ? what : `${what} of source ${i}`);
    compare(name("view (data, columns, max_length or tokenizer)"), source.view, other.view, true);
    compare(name("samples"), source.samples, other.samples, true);
    compare(name("name of the source"), source.name, other.name);
  }
  compare("number of segments", String(a.segments.length), String(b.segments.length));
  // The last segment is the one in force; earlier ones only say how it came about.
  const ofA = a.segments.at(-1)!;
  const ofB = b.segments.at(-1)!;
  compare("samples of one optimizer batch", String(ofA.G), String(ofB.G), true);
  for (const [what, field] of ORDER_FIELDS) compare(what, field(ofA), field(ofB));
  if (differences.length === 0 && JSON.stringify(a.segments) !== JSON.stringify(b.segments))
    differences.push({ what: "earlier segments", a: "their own", b: "others", refused: false });
  const reordered = differences.some(({ what }) => what !== "name of the source");
  const refused = differences.some((difference) => difference.refused);
  compare("position", a.position, b.position);
  compare("epoch", String(progressOf(a).epoch), String(progressOf(b).epoch));
  const verdict: Verdict = refused ? "refused" : reordered ? "reordered" : a.position === b.position ? "same" : "moved";
  return { differences, verdict, ahead: Number(b.position) - Number(a.position) };
}

const ORDER_FIELDS: [string, (segment: Segment) => string][] = [
  ["shuffle", ({ shuffle }) => shuffle],
  ["lanes", ({ L }) => String(L)],
  ["shuffle window (samples)", ({ window }) => String(window)],
  ["extent (blocks, 0: whole shards)", ({ extent }) => String(extent)],
  ["last", ({ last }) => last],
  ["beginning of the order", ({ from }) => from],
  ["weights", ({ sources }) => sources.map(({ view, weight }) => `${view}:${weight}`).join(" ")],
];
