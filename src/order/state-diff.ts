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
 * same: nothing differs. moved: the same sequence, at another position or in other optimizer batches. reordered: it is loaded, and
 * the job goes on in another order, because what the state's segments hold wins over the loader's arguments. refused: another
 * seed, or other data under the same name (the loader takes it only if it knows that shards were appended).
 */
export type Verdict = "same" | "moved" | "reordered" | "refused";

export interface StateDiff {
  differences: Difference[];
  verdict: Verdict;
  /** Samples from the position of A to that of B. */
  ahead: number;
}

export function compareStates(a: OrderState, b: OrderState): StateDiff {
  const differences: Difference[] = [];
  const compare = (what: string, ofA: string, ofB: string, refused = false): void => {
    if (ofA !== ofB) differences.push({ what, a: ofA, b: ofB, refused });
  };
  compare("seed", a.seed, b.seed, true);
  const [ofA, ofB] = [sourcesOf(a), sourcesOf(b)];
  compare("sources", ofA.map(({ name }) => name).join(", "), ofB.map(({ name }) => name).join(", "));
  const several = ofA.length > 1 || ofB.length > 1;
  for (const [i, source] of ofB.entries()) {
    // One source is one source, however it is called.
    const other = several ? ofA.find(({ name }) => name === source.name) : ofA[i];
    if (other === undefined) continue;
    const name = (what: string): string => (several ? `${what} of source ${source.name}` : what);
    const known = a.sources.some((entry) => entry.name === other.name && entry.view === source.view);
    compare(name("view (data, columns, max_length or tokenizer)"), other.view, source.view, !known);
    compare(name("samples"), other.samples, source.samples, !known);
    for (const [what, field] of SOURCE_FIELDS) compare(name(what), field(other), field(source));
  }
  compare("number of segments", String(begun(a).length), String(begun(b).length));
  // The segment in force at each one's position; earlier ones only say how it came about, later ones are the job's to say.
  for (const [what, field] of SEGMENT_FIELDS) compare(what, field(begun(a).at(-1)!), field(begun(b).at(-1)!));
  const reordered = sequenceOf(a, b.position) !== sequenceOf(b, b.position);
  if (differences.length === 0 && reordered)
    differences.push({ what: "earlier segments", a: "their own", b: "others", refused: false });
  const refused = differences.some((difference) => difference.refused);
  compare("position", a.position, b.position);
  compare("epoch", String(progressOf(a).epoch), String(progressOf(b).epoch));
  const same = differences.every(({ what }) => what === "sources");
  const verdict: Verdict = refused ? "refused" : reordered ? "reordered" : same ? "same" : "moved";
  return { differences, verdict, ahead: Number(b.position) - Number(a.position) };
}

type Entry = OrderState["sources"][number];
type Segment = OrderState["segments"][number];

function begun({ segments, position }: OrderState): Segment[] {
  return segments.filter(({ from }, s) => s === 0 || Number(from) <= Number(position));
}

/** Each source's latest view that was in force. */
function sourcesOf(state: OrderState): Entry[] {
  const used = new Set(begun(state).flatMap(({ sources }) => sources));
  const entries = state.sources.filter((_, number) => used.has(number));
  return entries.filter(({ name }, i) => entries.findLastIndex((entry) => entry.name === name) === i);
}

/** What decides which samples come, up to a position and beyond it until the job wants otherwise. */
function sequenceOf({ sources, segments }: OrderState, position: string): string {
  const served = segments.filter((segment, s) => {
    const before = segments[s - 1];
    if (before === undefined) return true;
    const { sources: now, weights, last, from } = segment;
    // Under `carry` a segment that changes G only changes no sample.
    const other = last !== "carry" || now.join() !== before.sources.join() || weights.join() !== before.weights.join();
    return other && Number(from) < Number(position);
  });
  return JSON.stringify(
    served.map(({ G, sources: numbers, ...segment }) => ({
      ...segment,
      // Under `carry` optimizer batches are no part of the sequence.
      G: segment.last === "carry" ? undefined : G,
      sources: numbers.map((number) => ({
        ...sources[number]!,
        name: numbers.length > 1 ? sources[number]!.name : "",
      })),
    })),
  );
}

const SOURCE_FIELDS: [string, (entry: Entry) => string][] = [
  ["shuffle", ({ shuffle }) => shuffle],
  ["lanes", ({ L }) => String(L)],
  ["shuffle window (samples)", ({ window }) => String(window)],
  ["extent (blocks, 0: whole shards)", ({ extent }) => String(extent)],
];
const SEGMENT_FIELDS: [string, (segment: Segment) => string][] = [
  ["samples of one optimizer batch", ({ G }) => String(G)],
  ["last", ({ last }) => last],
  ["beginning of the order", ({ from }) => from],
  ["weights", ({ weights }) => weights.join(" ")],
];
