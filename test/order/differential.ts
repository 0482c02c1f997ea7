/**
 * Runs cases of python/tests/test_reference_differential.py through the TypeScript order: a JSON list on stdin, the answers
 * as a JSON list on stdout. No test by itself.
 */
import { readFileSync } from "node:fs";
import { planOrder, resolvedEntry, type Job, type PlannedOrder } from "../../src/order/job.ts";
import { Order } from "../../src/order/order.ts";
import { parseState, stateOf, timelineOf } from "../../src/order/state.ts";
import type { OrderState, OrderView, SourceOptions } from "../../src/order/types.ts";
import { extentsOf } from "./vectors.ts";

interface Case {
  /** Every view by fingerprint, with the sample counts of its extents. */
  views: Record<string, OrderView & { extents: number[] }>;
  /** One load after another: from the state at `position` of the run before (the first: without). */
  loads: {
    position: number;
    override: boolean;
    job: {
      seed: string;
      sources: { name: string; view: string; past: string[] }[];
      phases: Job["phases"];
      ramp: [number, number][];
      options: Omit<SourceOptions, "seed"> & { last: "carry" | "drop" | "pad" };
    };
  }[];
  length: number;
  steps: { step: number; world: number; starts: number[] }[];
}

function jobOf({ job }: Case["loads"][number], views: Case["views"]): Job {
  return {
    sources: job.sources.map(({ name, view, past }) => ({
      name,
      view: views[view]!,
      past: past.map((fingerprint) => views[fingerprint]!),
    })),
    phases: job.phases,
    ramp: job.ramp.map(([from, size]) => ({ from, size })),
    options: { ...job.options, seed: BigInt(job.seed) },
  };
}

function answer({ views, loads, length, steps }: Case): unknown {
  let plan: PlannedOrder | undefined;
  let state: OrderState | undefined;
  for (const load of loads) {
    if (plan !== undefined) state = parseState(JSON.stringify(stateOf(plan, load.position)));
    plan = planOrder(jobOf(load, views), state, load.override);
  }
  const planned = plan!;
  const { options } = jobOf(loads.at(-1)!, views);
  const parts = planned.entries.map(({ view: fingerprint, extentBlocks }, number) => {
    const view = views[fingerprint]!;
    const merged = extentBlocks === 0 ? view.extents : merge(view.extents, extentBlocks);
    return { number, view, extents: extentsOf(merged), resolved: resolvedEntry(planned, number, view, options) };
  });
  const order = new Order(timelineOf(planned.entries, planned.segments), parts);
  const first = planned.segments[0]!.from;
  const rows = Array.from({ length }, (_, i) => {
    const { source, pass, lane, row, sample } = order.locate(first + i);
    return [source, pass, lane, row, sample];
  });
  return {
    position: planned.position,
    state: stateOf(planned, planned.position),
    rows,
    begin: Array.from({ length: 8 }, (_, e) => order.begin(e)),
    epochOf: Array.from({ length }, (_, i) => order.epochOf(first + i)),
    steps: steps.map(({ step, world, starts }) =>
      starts.map((start) =>
        Array.from({ length: world }, (_, rank) => {
          const { positions, valid } = order.deal(first + start, step, world, rank);
          return [[...positions], valid];
        }),
      ),
    ),
  };
}

/** One block an extent → `blocks` of them. */
function merge(extents: number[], blocks: number): number[] {
  const merged: number[] = [];
  for (let at = 0; at < extents.length; at += blocks) {
    merged.push(extents.slice(at, at + blocks).reduce((a, b) => a + b, 0));
  }
  return merged;
}

const cases = JSON.parse(readFileSync(0, "utf8")) as Case[];
const answers = cases.map((one) => {
  try {
    return answer(one);
  } catch (error) {
    if (error instanceof Error && "code" in error) return { error: error.code };
    throw error;
  }
});
process.stdout.write(JSON.stringify(answers));
