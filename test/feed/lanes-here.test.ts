import assert from "node:assert/strict";
import { test } from "node:test";
import { Steps } from "../../src/feed/audience.ts";
import { NodeLanes } from "../../src/feed/lanes-here.ts";
import { planOrder } from "../../src/order/job.ts";
import { Order } from "../../src/order/order.ts";
import type { SourceOrder } from "../../src/order/source-order.ts";
import { timelineOf } from "../../src/order/state.ts";
import type { OrderView } from "../../src/order/types.ts";

function viewOf(name: string, samples: number): OrderView {
  const fingerprint = Buffer.from(name.padEnd(16, "0")).toString("hex");
  return { fingerprint, samples, bytes: samples * 100, blocks: samples / 4, largestBlock: 4, rowBytes: 100 };
}

test("lanes that the ranks of a node come to only after many steps have room, too", () => {
  // Steps of 21 over 64 lanes begin in another lane each time, 64 times.
  for (const [world, perNode, batch] of [
    [3, 1, 7],
    [4, 2, 17],
    [3, 1, 11],
    [8, 2, 8],
  ] as const) {
    const step = world * batch;
    for (const weights of [[1], [0.7, 0.3]]) {
      const plan = planOrder({
        sources: weights.map((_, i) => ({ name: `s${i}`, view: viewOf(`s${i}`, 64 * step * 4) })),
        phases: [{ from: 0, weights }],
        ramp: [{ from: 0, size: step }],
        options: { seed: 1n, lanes: 64, window: 50 },
      });
      const timeline = timelineOf(plan.entries, plan.segments);
      const order = new Order(timeline, []);
      for (let first = 0; first < world; first += perNode) {
        const local = Array.from({ length: perNode }, (_, i) => first + i);
        const nodeLanes = new NodeLanes(order, new Steps(order, 0, step), 0, { world, local });
        const seen = plan.entries.map(() => new Set<number>());
        for (let k = 0; k < 128; k++) {
          for (const rank of local) {
            for (const position of order.deal(k * step, step, world, rank).positions) {
              const { source, lane } = timeline.locate(position);
              seen[source]!.add(lane);
            }
          }
        }
        for (const [number, { lanes }] of plan.entries.entries()) {
          const here = nodeLanes.of({ number, lanes } as SourceOrder);
          assert.ok([...seen[number]!].every((lane) => here.lanes.has(lane)));
          assert.ok(here.atOnce >= seen[number]!.size, `${here.atOnce} of ${seen[number]!.size} lanes`);
        }
      }
    }
  }
});
